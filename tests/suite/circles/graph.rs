//! Draws the graph of the modules of a package, and finds its circles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::imports::{Import, imports, reexports};

/// The modules of a package, each by its path from the root on. The path of the root is empty.
pub(super) type Modules = BTreeMap<Vec<String>, Module>;

/// The siblings that each module names, each with the files and lines.
pub(super) type Uses = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// The paths of the file of a module.
pub(super) struct Module {
    file: String,
    /// The modules that it declares and that have their own files.
    pub(super) declared: Vec<String>,
    imports: Vec<Import>,
    /// The names that it imports from modules below it, each with its path.
    reexports: BTreeMap<String, Vec<String>>,
}

impl Module {
    /// Reads the parsed file of the module with this path.
    pub(super) fn new(file: &Path, parsed: &syn::File, path: &[String]) -> Self {
        let declared = declared(parsed);
        Self {
            file: file.display().to_string(),
            imports: imports(parsed, path),
            reexports: reexports(parsed, path, &declared),
            declared,
        }
    }
}

/// A module with the attribute `path` is the file of another module, which has another parent there.
fn declared(file: &syn::File) -> Vec<String> {
    let is_elsewhere = |module: &syn::ItemMod| {
        let mut attributes = module.attrs.iter();
        attributes.any(|attribute| attribute.path().is_ident("path"))
    };
    let modules = file.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if module.content.is_none() && !is_elsewhere(module) => {
            Some(module.ident.to_string())
        }
        _ => None,
    });
    modules.collect()
}

/// Draws an edge between siblings, whichever parent they have. What a module names counts for its ancestor that is a
/// sibling of the other module. A module may name its ancestors and the modules below it.
pub(super) fn uses(modules: &Modules) -> Uses {
    let names = modules.keys().map(|path| path.join("::"));
    let mut uses: Uses = names.map(|name| (name, BTreeMap::new())).collect();
    for (path, module) in modules {
        for import in &module.imports {
            let Some((own, other)) = siblings(modules, path, &import.path) else {
                continue;
            };
            let named = uses.entry(own).or_default();
            let places = named.entry(other).or_default();
            let place = format!("{}:{}", module.file, import.line);
            if places.last() != Some(&place) {
                places.push(place);
            }
        }
    }
    uses
}

/// The two siblings at which the path of a module and a path that it names part.
fn siblings(modules: &Modules, path: &[String], named: &[String]) -> Option<(String, String)> {
    let mut named = named.to_vec();
    loop {
        let both = path.iter().zip(&named);
        let shared = both.take_while(|(one, other)| one == other).count();
        if shared == path.len() || shared == named.len() {
            return None;
        }
        if modules.contains_key(&named[..=shared]) {
            return Some((path[..=shared].join("::"), named[..=shared].join("::")));
        }
        // A name that the parent imports counts as the path of the import, which leads further down.
        let import = modules[&named[..shared]].reexports.get(&named[shared])?;
        named = [import.as_slice(), &named[shared + 1..]].concat();
    }
}

/// The modules that reach themselves, each with the other modules of its circle.
pub(super) fn circles(uses: &Uses) -> BTreeSet<BTreeSet<String>> {
    let reached: BTreeMap<_, _> = uses.keys().map(|name| (name, reach(uses, name))).collect();
    let circle = |name: &String| {
        let there_and_back = |other: &&String| reached[*other].contains(name);
        reached[name]
            .iter()
            .filter(there_and_back)
            .cloned()
            .collect()
    };
    let circles: BTreeSet<BTreeSet<String>> = uses.keys().map(circle).collect();
    circles
        .into_iter()
        .filter(|circle| !circle.is_empty())
        .collect()
}

/// The modules that a module names, directly or indirectly.
fn reach(uses: &Uses, name: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&String> = uses[name].keys().collect();
    while let Some(name) = next.pop() {
        if reached.insert(name.clone()) {
            next.extend(uses[name].keys());
        }
    }
    reached
}

/// Returns the uses of each other by the modules of a circle, one line for each two modules.
pub(super) fn uses_within(uses: &Uses, circle: &BTreeSet<String>) -> Vec<String> {
    let mut lines = Vec::new();
    for name in circle {
        for (other, places) in &uses[name] {
            if circle.contains(other) {
                lines.push(format!("{name} names {other}: {}", places.join(", ")));
            }
        }
    }
    lines
}

/// The paths and texts of the files of a package.
type Files = &'static [(&'static str, &'static str)];

/// The circles of a package.
type Circles = &'static [&'static [&'static str]];

/// Packages, each with its circles.
const CASES: [(&str, Files, Circles); 9] = [
    (
        "modules at the top",
        &[
            ("", "mod a; mod b;"),
            ("a", "use crate::b::B;"),
            ("b", "fn b(a: super::a::A) {}"),
        ],
        &[&["a", "b"]],
    ),
    (
        "modules below one parent, of which a descendant names the other",
        &[
            ("", "mod p;"),
            ("p", "mod a; mod b;"),
            ("p::a", "mod x;"),
            ("p::a::x", "use super::super::b::B;"),
            ("p::b", "use crate::p::a::A;"),
        ],
        &[&["p::a", "p::b"]],
    ),
    (
        "a child and its parent",
        &[
            ("", "mod p;"),
            ("p", "mod a; use a::A; struct P;"),
            ("p::a", "use super::P;"),
        ],
        &[],
    ),
    (
        "a name that the parent imports from a sibling",
        &[
            ("", "mod p;"),
            ("p", "mod a; mod b; pub use b::B as C;"),
            ("p::a", "use super::C;"),
            ("p::b", "use super::a::A;"),
        ],
        &[&["p::a", "p::b"]],
    ),
    (
        "a name that an ancestor imports from further down",
        &[
            ("", "mod p; pub use p::y::Y;"),
            ("p", "mod x; mod y;"),
            ("p::x", "use crate::Y;"),
            ("p::y", "use super::x::X;"),
        ],
        &[&["p::x", "p::y"]],
    ),
    (
        "parents whose children name each other form a circle, and the children do not",
        &[
            ("", "mod p; mod q;"),
            ("p", "mod a; mod b;"),
            ("p::a", "use crate::q::Q;"),
            ("p::b", ""),
            ("q", "use crate::p::b::B;"),
        ],
        &[&["p", "q"]],
    ),
    (
        "the module that leads to a circle is no part of it",
        &[
            ("", "mod a; mod b; mod c; mod d; mod e;"),
            ("a", "use crate::b::B;"),
            ("b", "use crate::{c::C, d::D};"),
            ("c", "use crate::a::A;"),
            ("d", ""),
            ("e", "use crate::a::A;"),
        ],
        &[&["a", "b", "c"]],
    ),
    (
        "code that is compiled only for tests",
        &[
            ("", "mod a; mod b;"),
            ("a", "use crate::b::B;"),
            ("b", "#[cfg(test)] mod tests { use crate::a::A; }"),
        ],
        &[],
    ),
    (
        "a file of another module",
        &[
            ("", "#[path = \"../a.rs\"] mod a; mod b;"),
            ("b", "use crate::a::A;"),
        ],
        &[],
    ),
];

/// Returns the siblings that each file of a package names. The file of `a::b` is `a/b.rs`.
fn uses_of(files: Files) -> Uses {
    let module = |(path, text): &(&str, &str)| {
        let file = format!("{}.rs", path.replace("::", "/"));
        let parsed = crate::sources::shipped(Path::new(&file), text);
        let path = path.split("::").filter(|name| !name.is_empty());
        let path: Vec<String> = path.map(str::to_owned).collect();
        let module = Module::new(Path::new(&file), &parsed, &path);
        (path, module)
    };
    uses(&files.iter().map(module).collect())
}

#[test]
fn circles_are_found_at_every_level() {
    for (what, files, expected) in CASES {
        let owned = |circle: &&[&str]| circle.iter().map(|&name| name.to_owned()).collect();
        let expected: BTreeSet<BTreeSet<String>> = expected.iter().map(owned).collect();
        assert_eq!(circles(&uses_of(files)), expected, "{what}");
    }
}

#[test]
fn a_circle_is_shown_with_the_places_that_form_it() {
    let uses = uses_of(&[
        ("", "mod p;"),
        ("p", "mod a; mod b; mod c;"),
        (
            "p::a",
            "use super::b::{\n    B,\n    b,\n};\nuse super::c::C;",
        ),
        ("p::b", "\nuse super::a::A;"),
        ("p::c", ""),
    ]);
    let circle = circles(&uses).pop_first().unwrap();
    let expected = [
        "p::a names p::b: p/a.rs:2, p/a.rs:3",
        "p::b names p::a: p/b.rs:2",
    ];
    assert_eq!(uses_within(&uses, &circle), expected);
}
