//! Checks the separation of pure files and shells, and the rules of style.

use std::path::Path;

use syn::visit::Visit;

use crate::sources::{host_files, rust_files, shipped};

/// Paths that a pure file never names: clients, runtimes, threads, clocks, environment, randomness.
const IMPURE: [&str; 24] = [
    "axum",
    "getrandom",
    "hyper",
    "hyper_util",
    "kube::Api",
    "kube::Client",
    "kube::api::Api",
    "kube::client",
    "kube::runtime",
    "rand",
    "reqwest",
    "ring::rand",
    "std::env",
    "std::fs",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "tokio",
    "tonic",
    "uuid",
    "wasmtime",
];

/// Allowed values of these packages: events of a watch, contents of an error, and a time that a caller has read from
/// the clock.
const VALUES: [&str; 3] = [
    "kube::client::UpgradeConnectionError",
    "kube::runtime::watcher::Event",
    "std::time::Instant",
];

/// Last segments of paths that read a clock, of every type.
const CLOCKS: [&str; 2] = ["now", "elapsed"];

/// Pure files. If one is missing, the separation of pure files and shells has changed.
const MUST_BE_PURE: [&str; 4] = [
    "host/jobs/src/validate.rs",
    "host/jobs/src/phase.rs",
    "host/jobs/src/plan.rs",
    "host/jobs/src/status.rs",
];

/// The maximum of lines in a file. Clippy checks functions (`too-many-lines-threshold`).
const MOST_LINES: usize = 400;

/// Returns every path that a file names: in imports with their groups resolved, and in expressions
/// and types.
#[derive(Default)]
struct Paths(Vec<String>);

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        self.import("", &import.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        self.0.push(words.collect::<Vec<_>>().join("::"));
        syn::visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.0.push(format!("_::{}", call.method));
        syn::visit::visit_expr_method_call(self, call);
    }

    /// The content of a macro is not a syntax tree, so each run of words and `::` counts as a path.
    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        let text = called.tokens.to_string().replace(" :: ", "::");
        let is_of_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let paths = text
            .split(|c| !is_of_path(c))
            .filter(|path| path.contains("::"));
        self.0.extend(paths.map(ToOwned::to_owned));
        syn::visit::visit_macro(self, called);
    }
}

impl Paths {
    fn import(&mut self, before: &str, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                self.import(&format!("{before}{}::", path.ident), &path.tree);
            }
            syn::UseTree::Name(name) => self.0.push(format!("{before}{}", name.ident)),
            syn::UseTree::Rename(name) => self.0.push(format!("{before}{}", name.ident)),
            syn::UseTree::Glob(_) => self.0.push(format!("{before}*")),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(before, tree);
                }
            }
        }
    }
}

/// The paths in a file that a pure file must not name.
fn impure(file: &syn::File) -> Vec<String> {
    let mut paths = Paths::default();
    paths.visit_file(file);
    let is_below = |path: &str, word: &str| {
        path.strip_prefix(word)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    let is_impure = |path: &String| {
        let reads_clock = path
            .rsplit_once("::")
            .is_some_and(|(_, last)| CLOCKS.contains(&last));
        let is_value = VALUES.contains(&path.as_str());
        reads_clock || (!is_value && IMPURE.iter().any(|word| is_below(path, word)))
    };
    paths.0.retain(is_impure);
    paths.0
}

#[test]
fn pure_files_name_no_client_clock_environment_or_runtime() {
    let files = host_files().into_iter().chain(rust_files("guests"));
    let pure: Vec<_> = files
        .filter(|(_, text)| text.starts_with("//! Pure:"))
        .collect();
    assert!(pure.len() > 100, "only {} files are pure", pure.len());
    let broken: Vec<_> = pure
        .iter()
        .map(|(path, text)| (path.display(), impure(&shipped(path, text))))
        .filter(|(_, named)| !named.is_empty())
        .collect();
    assert!(broken.is_empty(), "pure files name: {broken:#?}");
}

#[test]
fn the_check_of_pure_files_sees_groups_macros_and_code_below_tests() {
    let text = "
        #[cfg(test)]
        mod tests { use std::fs; }
        use std::{collections::BTreeMap, thread};
        fn one() { let later = assert_eq!(tokio::time::sleep(1), started.elapsed()); }
        fn two(since: jiff::Timestamp) { let _ = jiff::Timestamp::now(); since.elapsed(); }
    ";
    let found = impure(&shipped(Path::new("a.rs"), text));
    let expected = [
        "std::thread",
        "tokio::time::sleep",
        "jiff::Timestamp::now",
        "_::elapsed",
    ];
    assert_eq!(found, expected);
}

#[test]
fn the_decisions_of_a_reconcile_are_pure() {
    let files = host_files();
    for wanted in MUST_BE_PURE {
        let (_, text) = files
            .iter()
            .find(|(path, _)| path.ends_with(wanted))
            .unwrap_or_else(|| panic!("{wanted} is missing"));
        assert!(
            text.starts_with("//! Pure:"),
            "{wanted} does not call itself pure"
        );
    }
}

#[test]
fn every_file_opens_with_its_purpose() {
    for folder in ["host", "guests", "tests", "examples"] {
        for (path, text) in rust_files(folder) {
            assert!(
                text.starts_with("//! "),
                "{} does not say in its first line what it is for",
                path.display()
            );
        }
    }
}

#[test]
fn no_file_is_longer_than_its_bound() {
    let folders = ["host", "guests", "tests", "examples"];
    let files: Vec<_> = folders
        .iter()
        .flat_map(|folder| rust_files(folder))
        .collect();
    assert!(files.len() > 700, "only {} files were read", files.len());
    let long: Vec<_> = files
        .iter()
        .map(|(path, text)| (path.display(), text.lines().count()))
        .filter(|(_, lines)| *lines > MOST_LINES)
        .collect();
    assert!(long.is_empty(), "over {MOST_LINES} lines: {long:#?}");
}
