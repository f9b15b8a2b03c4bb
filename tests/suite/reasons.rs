//! The reasons of conditions and events that people build alerts on: all of them are documented.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;

use crate::sources::{host_files, repository, shipped};

/// Reasons that Kubernetes gives and documents: in status replies, in rules of CRDs, and the kubelet's for a
/// container that ended with an exit code.
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

/// Where every reason stands: what it means, and what to do.
const DOCUMENTS: [&str; 2] = ["crds/README.md", MESSAGES];

const MESSAGES: &str = "charts/ipu-operator/docs/messages.md";

fn document(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap()
}

/// A name for which a function has a parameter, and the parameter's place in calls.
type Parameters = BTreeMap<String, BTreeSet<usize>>;

/// Finds the functions that take a reason, and at which place.
#[derive(Default)]
struct TakesReason(Parameters);

impl<'ast> Visit<'ast> for TakesReason {
    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        let typed = signature.inputs.iter().filter_map(|input| match input {
            syn::FnArg::Typed(typed) => Some(&typed.pat),
            syn::FnArg::Receiver(_) => None,
        });
        for (place, pattern) in typed.enumerate() {
            if matches!(&**pattern, syn::Pat::Ident(name) if name.ident == "reason") {
                let places = self.0.entry(signature.ident.to_string()).or_default();
                places.insert(place);
            }
        }
    }
}

/// Collects the literals that become a reason: values of fields and variables of that name, arguments of
/// functions that take one, and what functions of that name answer.
struct Reasons<'a> {
    takes: &'a Parameters,
    found: BTreeSet<String>,
}

impl Reasons<'_> {
    fn take(&mut self, expression: &syn::Expr) {
        let mut literals = Literals::default();
        literals.visit_expr(expression);
        self.found.extend(literals.0);
    }

    fn call(&mut self, name: &str, arguments: &[&syn::Expr]) {
        for place in self.takes.get(name).into_iter().flatten() {
            if let Some(argument) = arguments.get(*place) {
                self.take(argument);
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

/// The literals in an expression that are one capitalised word, as reasons are.
#[derive(Default)]
struct Literals(BTreeSet<String>);

impl<'ast> Visit<'ast> for Literals {
    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        let word = literal.value();
        let is_word = word.len() > 1
            && word.starts_with(|first: char| first.is_ascii_uppercase())
            && word.chars().all(char::is_alphanumeric);
        if is_word {
            self.0.insert(word);
        }
    }
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
    let mut takes = TakesReason::default();
    for file in &parsed {
        takes.visit_file(file);
    }
    let mut reasons = Reasons {
        takes: &takes.0,
        found: BTreeSet::new(),
    };
    for file in &parsed {
        reasons.visit_file(file);
    }
    reasons
        .found
        .retain(|word| !OF_KUBERNETES.contains(&word.as_str()));
    reasons.found
}

#[test]
fn every_reason_is_documented() {
    let written = reasons();
    assert!(written.len() > 40, "the files are read: {written:?}");
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
    let told: Vec<&str> = document.split('`').skip(1).step_by(2).collect();
    let files = host_files();
    let logged: BTreeSet<String> = files
        .iter()
        .filter(|(path, _)| !path.ends_with("tests.rs") && !path.ends_with("wasm/store.rs"))
        .flat_map(|(_, text)| warnings(without_tests(text)))
        .collect();
    assert!(logged.len() > 30, "the files are read: {logged:?}");
    let missing: Vec<_> = logged
        .iter()
        .filter(|line| {
            !told
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

/// The sentences of `warn!` and `error!`: the last literal of each. Those that consist of a cause and
/// nothing else are that cause's.
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

/// What stands before the parenthesis that ends a call.
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
