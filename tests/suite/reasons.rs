//! Checks that all reasons of conditions and events, on which users build alerts, are documented.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;

use crate::sources::{host_files, repository, shipped};

/// Reasons that Kubernetes gives and documents: in status replies, in rules of CRDs, and in the kubelet's
/// status of a container that ended with an exit code.
const OF_KUBERNETES: [&str; 8] = [
    "Error",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "Forbidden",
    "InternalError",
    "Invalid",
    "NotFound",
    "Unauthorized",
];

/// The documents that explain every reason and its remedy.
const DOCUMENTS: [&str; 2] = ["crds/README.md", MESSAGES];

const MESSAGES: &str = "charts/ipu-operator/docs/messages.md";

fn document(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap()
}

/// Position of a reason among the arguments of a function: the index of the argument, and the index in it if it is a
/// tuple.
type ArgumentPosition = (usize, Option<usize>);

/// The functions that take a reason, by name.
type Parameters = BTreeMap<String, BTreeSet<ArgumentPosition>>;

/// Finds the functions that take a reason.
#[derive(Default)]
struct TakesReason(Parameters);

impl<'ast> Visit<'ast> for TakesReason {
    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        let typed = signature.inputs.iter().filter_map(|input| match input {
            syn::FnArg::Typed(typed) => Some(&*typed.pat),
            syn::FnArg::Receiver(_) => None,
        });
        for (place, pattern) in typed.enumerate() {
            let element = match pattern {
                syn::Pat::Tuple(tuple) => tuple.elems.iter().position(is_reason).map(Some),
                _ => is_reason(pattern).then_some(None),
            };
            if let Some(element) = element {
                let places = self.0.entry(signature.ident.to_string()).or_default();
                places.insert((place, element));
            }
        }
    }
}

fn is_reason(pattern: &syn::Pat) -> bool {
    matches!(pattern, syn::Pat::Ident(name) if name.ident == "reason")
}

/// The constants that consist of one capitalised word, as reasons do, by name.
#[derive(Default)]
struct Constants(BTreeMap<String, BTreeSet<String>>);

impl<'ast> Visit<'ast> for Constants {
    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        if let syn::Expr::Lit(literal) = &*item.expr
            && let syn::Lit::Str(text) = &literal.lit
            && is_word(&text.value())
        {
            let values = self.0.entry(item.ident.to_string()).or_default();
            values.insert(text.value());
        }
    }
}

/// Collects the words that become a reason, as literals or constants: values of fields and variables of that name,
/// arguments of functions that take one, and results of functions of that name.
struct Reasons<'a> {
    takes: &'a Parameters,
    constants: &'a Constants,
    found: BTreeSet<String>,
}

impl Reasons<'_> {
    fn take(&mut self, expression: &syn::Expr) {
        let mut words = Words {
            constants: self.constants,
            found: BTreeSet::new(),
        };
        words.visit_expr(expression);
        self.found.extend(words.found);
    }

    fn call(&mut self, name: &str, arguments: &[&syn::Expr]) {
        for (place, element) in self.takes.get(name).into_iter().flatten() {
            match (arguments.get(*place), element) {
                (Some(syn::Expr::Tuple(tuple)), Some(element)) => {
                    if let Some(expression) = tuple.elems.get(*element) {
                        self.take(expression);
                    }
                }
                // Another function of this name takes the tuple.
                (Some(syn::Expr::Tuple(_)), None) | (None, _) => {}
                (Some(argument), _) => self.take(argument),
            }
        }
    }
}

impl<'ast> Visit<'ast> for Reasons<'_> {
    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if matches!(&field.member, syn::Member::Named(name) if name == "reason") {
            self.take(&field.expr);
        }
        syn::visit::visit_field_value(self, field);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        let mut names = Names::default();
        names.visit_pat(&local.pat);
        if let (true, Some(init)) = (names.has_reason, &local.init) {
            self.take(&init.expr);
        }
        syn::visit::visit_local(self, local);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let syn::Expr::Path(path) = &*call.func
            && let Some(last) = path.path.segments.last()
        {
            let arguments: Vec<_> = call.args.iter().collect();
            self.call(&last.ident.to_string(), &arguments);
        }
        syn::visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let arguments: Vec<_> = call.args.iter().collect();
        self.call(&call.method.to_string(), &arguments);
        syn::visit::visit_expr_method_call(self, call);
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if function.sig.ident == "reason" {
            self.take(&block(&function.block));
        }
        syn::visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if function.sig.ident == "reason" {
            self.take(&block(&function.block));
        }
        syn::visit::visit_impl_item_fn(self, function);
    }
}

fn block(block: &syn::Block) -> syn::Expr {
    syn::Expr::Block(syn::ExprBlock {
        attrs: Vec::new(),
        label: None,
        block: block.clone(),
    })
}

/// Whether a pattern binds a reason.
#[derive(Default)]
struct Names {
    has_reason: bool,
}

impl<'ast> Visit<'ast> for Names {
    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        self.has_reason |= pattern.ident == "reason";
    }
}

/// The words in an expression: literals, and values of constants.
struct Words<'a> {
    constants: &'a Constants,
    found: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for Words<'_> {
    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        let word = literal.value();
        if is_word(&word) {
            self.found.insert(word);
        }
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        if let Some(last) = path.path.segments.last()
            && let Some(values) = self.constants.0.get(&last.ident.to_string())
        {
            self.found.extend(values.iter().cloned());
        }
    }
}

/// Whether a text is one capitalised word, as reasons are.
fn is_word(text: &str) -> bool {
    text.len() > 1
        && text.starts_with(|first: char| first.is_ascii_uppercase())
        && text.chars().all(char::is_alphanumeric)
}

/// Every reason that the operator gives to a condition or an event.
fn reasons() -> BTreeSet<String> {
    let mut files = host_files();
    files.retain(|(path, _)| {
        let is_test =
            path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests");
        !is_test && !path.components().any(|part| part.as_os_str() == "agent")
    });
    let parsed: Vec<_> = files
        .iter()
        .map(|(path, text)| shipped(path, text))
        .collect();
    let mut found = reasons_in(&parsed);
    found.retain(|word| !OF_KUBERNETES.contains(&word.as_str()));
    found
}

/// Every reason in these files.
fn reasons_in(files: &[syn::File]) -> BTreeSet<String> {
    let (mut takes, mut constants) = (TakesReason::default(), Constants::default());
    for file in files {
        takes.visit_file(file);
        constants.visit_file(file);
    }
    let mut reasons = Reasons {
        takes: &takes.0,
        constants: &constants,
        found: BTreeSet::new(),
    };
    for file in files {
        reasons.visit_file(file);
    }
    reasons.found
}

#[test]
fn reasons_are_found_wherever_they_are_written() {
    let cases = [
        (r#"fn f() { Condition { reason: "Gone" }; }"#, "Gone"),
        (
            r#"const GONE: &str = "Gone"; fn f() { Condition { reason: GONE }; }"#,
            "Gone",
        ),
        (
            r#"const GONE: &str = "Gone"; fn f() { C { reason: Some(states::GONE.to_owned()) }; }"#,
            "Gone",
        ),
        (
            r#"const GONE: &str = "Gone"; fn reason(it: It) -> &str { match it { It::A => GONE } }"#,
            "Gone",
        ),
        (
            r#"const GONE: &str = "Gone"; fn f(x: bool) { let reason = if x { GONE } else { "Left" }; }"#,
            "Gone Left",
        ),
        (
            r#"const GONE: &str = "Gone"; const READY: &str = "Ready";
            fn f() { set(READY, GONE, 1); } fn set(type_: &str, reason: &str, time: u8) {}"#,
            "Gone",
        ),
        (
            r#"const GONE: &str = "Gone"; const READY: &str = "Ready";
            fn f() { set(1, (READY, GONE)); } fn set(time: u8, (type_, reason): (&str, &str)) {}
            impl Conditions { fn set(&mut self, time: u8, reason: &str) {} }"#,
            "Gone",
        ),
        (
            r#"const LONG: &str = "no reason"; fn f() { C { reason: LONG, message: "Gone" }; }"#,
            "",
        ),
    ];
    for (text, wanted) in cases {
        let found = reasons_in(&[syn::parse_file(text).unwrap()]);
        let found: Vec<_> = found.into_iter().collect();
        assert_eq!(found.join(" "), wanted, "{text}");
    }
}

#[test]
fn every_reason_is_documented() {
    let written = reasons();
    assert!(
        written.len() > 40,
        "only these reasons were found: {written:?}"
    );
    for path in DOCUMENTS {
        let document = document(path);
        let missing: Vec<_> = written
            .iter()
            .filter(|word| !document.contains(&format!("`{word}`")))
            .collect();
        assert!(missing.is_empty(), "{path} does not name {missing:?}");
    }
}

#[test]
fn every_warning_of_the_logs_is_documented() {
    let document = document(MESSAGES);
    let documented: Vec<&str> = document.split('`').skip(1).step_by(2).collect();
    let files = host_files();
    let logged: BTreeSet<String> = files
        .iter()
        .filter(|(path, _)| !path.ends_with("tests.rs"))
        .flat_map(|(_, text)| warnings(without_tests(text)))
        .collect();
    assert!(
        logged.len() > 30,
        "only these warnings were found: {logged:?}"
    );
    let missing: Vec<_> = logged
        .iter()
        .filter(|line| {
            !documented
                .iter()
                .any(|said| said.len() > 9 && line.starts_with(said))
        })
        .collect();
    assert!(missing.is_empty(), "{MESSAGES} does not name {missing:?}");
}

/// A file without its own tests, as text.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default()
}

/// The sentences of `warn!` and `error!`: the last literal of each. If a literal consists only of a
/// cause, the sentence is that of the cause.
fn warnings(text: &str) -> Vec<String> {
    let calls = ["warn!(", "error!("].map(|call| text.split(call).skip(1));
    let calls = calls.into_iter().flatten();
    let sentence = |call: &str| {
        let literal = arguments(call).rsplit('"').nth(1)?;
        let bare = literal.replace("\\\n", " ");
        let words: Vec<_> = bare.split_whitespace().collect();
        let is_cause = ["{}", "{complaint}", "{line}", "{}; trying again"].contains(&literal);
        (!is_cause).then(|| words.join(" "))
    };
    calls.filter_map(sentence).collect()
}

/// The text before the parenthesis that ends a call.
fn arguments(call: &str) -> &str {
    let mut depth = 1;
    let end = call.find(|c| {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth == 0
    });
    &call[..end.unwrap_or(call.len())]
}
