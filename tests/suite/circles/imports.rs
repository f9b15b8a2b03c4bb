//! Finds the paths of a file that lead to other modules of its package, by the position of the file in the module tree.

use std::collections::BTreeMap;

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::UseTree;
use syn::visit::Visit;

/// A path within a package.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Import {
    /// The names from the root of the package on.
    pub(super) path: Vec<String>,
    /// The line of the last name.
    pub(super) line: usize,
}

/// The paths of a file that begin with `crate`, `self` or `super`, in imports, expressions, types and macros.
pub(super) fn imports(file: &syn::File, module: &[String]) -> Vec<Import> {
    let mut reader = Reader {
        module: module.to_vec(),
        found: Vec::new(),
    };
    reader.visit_file(file);
    reader.found
}

/// The names that a module imports from the modules that it declares, each with its path from the root of the package
/// on. A glob gives no names.
pub(super) fn reexports(
    file: &syn::File,
    module: &[String],
    declared: &[String],
) -> BTreeMap<String, Vec<String>> {
    let mut leaves = Vec::new();
    for item in &file.items {
        if let syn::Item::Use(import) = item {
            collect_leaves(&[], &import.tree, &mut leaves);
        }
    }
    let reexport = |leaf: &Leaf| {
        let first = leaf.words.first()?;
        let path = if declared.contains(&first.to_string()) {
            walk(module.to_vec(), &leaf.words)
        } else {
            resolve(&leaf.words, module)?
        };
        let child = path.strip_prefix(module)?.first()?;
        if !declared.contains(child) {
            return None;
        }
        let renamed = leaf.renamed.as_ref().map(ToString::to_string);
        let name = renamed.or_else(|| path.last().cloned())?;
        Some((name, path))
    };
    leaves.iter().filter_map(reexport).collect()
}

/// The path from the root of the package on. None: it leads to another package, or to a name of the file.
fn resolve(words: &[Ident], module: &[String]) -> Option<Vec<String>> {
    let first = words.first()?;
    if first == "crate" {
        return Some(walk(Vec::new(), words));
    }
    let is_relative = first == "self" || first == "super";
    is_relative.then(|| walk(module.to_vec(), words))
}

/// The path that the words lead to from a module on.
fn walk(mut path: Vec<String>, words: &[Ident]) -> Vec<String> {
    for word in words {
        match word.to_string().as_str() {
            "crate" | "self" => {}
            "super" => drop(path.pop()),
            name => path.push(name.to_owned()),
        }
    }
    path
}

/// One name of an import, with its groups resolved.
struct Leaf {
    words: Vec<Ident>,
    renamed: Option<Ident>,
}

fn collect_leaves(before: &[Ident], tree: &UseTree, leaves: &mut Vec<Leaf>) {
    let with = |word: &Ident| [before, std::slice::from_ref(word)].concat();
    let (words, renamed) = match tree {
        UseTree::Path(path) => return collect_leaves(&with(&path.ident), &path.tree, leaves),
        UseTree::Group(group) => {
            for tree in &group.items {
                collect_leaves(before, tree, leaves);
            }
            return;
        }
        UseTree::Name(name) => (with(&name.ident), None),
        UseTree::Rename(name) => (with(&name.ident), Some(name.rename.clone())),
        UseTree::Glob(_) => (before.to_vec(), None),
    };
    leaves.push(Leaf { words, renamed });
}

struct Reader {
    /// The names of the module that is being read, from the root of the package on.
    module: Vec<String>,
    found: Vec<Import>,
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.module.push(module.ident.to_string());
        syn::visit::visit_item_mod(self, module);
        self.module.pop();
    }

    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        let mut leaves = Vec::new();
        collect_leaves(&[], &import.tree, &mut leaves);
        for leaf in &leaves {
            self.add(&leaf.words);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words = path.segments.iter().map(|segment| segment.ident.clone());
        self.add(&words.collect::<Vec<_>>());
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.read_tokens(called.tokens.clone());
        syn::visit::visit_macro(self, called);
    }
}

impl Reader {
    /// The content of a macro is not a syntax tree, so each run of words with `::` between them counts as a path.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let mut words: Vec<Ident> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(word) => {
                    if colons != 2 {
                        self.add(&words);
                        words.clear();
                    }
                    words.push(word);
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                other => {
                    self.add(&words);
                    words.clear();
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.read_tokens(group.stream());
                    }
                }
            }
        }
        self.add(&words);
    }

    fn add(&mut self, words: &[Ident]) {
        let [_, .., last] = words else {
            return;
        };
        if let Some(path) = resolve(words, &self.module) {
            let line = last.span().start().line;
            self.found.push(Import { path, line });
        }
    }
}

/// The paths of a text that is the file of a module, each with its line.
fn found(module: &[&str], text: &str) -> Vec<(usize, String)> {
    let file = crate::sources::shipped(std::path::Path::new("a.rs"), text);
    let module: Vec<String> = module.iter().map(|&name| name.to_owned()).collect();
    let found = imports(&file, &module).into_iter();
    found.map(|one| (one.line, one.path.join("::"))).collect()
}

#[test]
fn a_path_is_resolved_by_the_place_of_its_file() {
    let text =
        "use super::b::B;\nuse super::super::c::C;\nuse self::d::D;\nuse crate::e::E;\nuse f::F;";
    let top = found(&["a"], &text.replace("super::super", "super"));
    let expected = [(1, "b::B"), (2, "c::C"), (3, "a::d::D"), (4, "e::E")];
    assert_eq!(top, expected.map(|(line, path)| (line, path.to_owned())));
    let nested = found(&["a", "x", "y"], text);
    let expected = [
        (1, "a::x::b::B"),
        (2, "a::c::C"),
        (3, "a::x::y::d::D"),
        (4, "e::E"),
    ];
    assert_eq!(nested, expected.map(|(line, path)| (line, path.to_owned())));
}

#[test]
fn groups_globs_and_reexports_are_resolved() {
    let text = "
        pub use super::{
            b::{self, B},
            super::c as other,
        };
        use {super::d::*, crate::e};
        pub(super) use super::*;
    ";
    let expected = [(3, "a::b"), (3, "a::b::B"), (4, "c"), (6, "a::d"), (6, "e")];
    assert_eq!(
        found(&["a", "x"], text),
        expected.map(|(line, path)| (line, path.to_owned()))
    );
}

#[test]
fn inline_paths_count_in_expressions_types_macros_and_inline_modules() {
    let text = "
        fn one(x: super::b::B) -> Vec<super::c::C> { super::d::run(self::e::E) }
        fn two(&self) { println!(\"{}\", [super::f::NAME, self.name]); }
        mod inner { use super::super::g; fn three() { super::own() } }
        #[cfg(test)]
        mod tests { use super::super::h; }
    ";
    let expected = [
        (2, "b::B"),
        (2, "c::C"),
        (2, "d::run"),
        (2, "a::e::E"),
        (3, "f::NAME"),
        (4, "g"),
        (4, "a::own"),
    ];
    assert_eq!(
        found(&["a"], text),
        expected.map(|(line, path)| (line, path.to_owned()))
    );
}

#[test]
fn a_name_that_a_module_imports_leads_to_the_module_below_it() {
    let text = "mod a; mod b; pub use a::{A, x::X as Y}; use self::b::{self, B}; use std::fs;
        use crate::p::b::f; use super::c::C; use self::Local; use b as d;";
    let declared = ["a", "b"].map(str::to_owned);
    let names = reexports(
        &syn::parse_file(text).unwrap(),
        &["p".to_owned()],
        &declared,
    );
    let expected = [
        ("A", "p::a::A"),
        ("B", "p::b::B"),
        ("Y", "p::a::x::X"),
        ("b", "p::b"),
        ("d", "p::b"),
        ("f", "p::b::f"),
    ];
    let found = names
        .iter()
        .map(|(name, path)| (name.as_str(), path.join("::")));
    let expected = expected.map(|(name, path)| (name, path.to_owned()));
    assert_eq!(found.collect::<Vec<_>>(), expected);
}
