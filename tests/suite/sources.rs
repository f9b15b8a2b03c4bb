//! Finds the source files and documents of the repository for the tests that read them.

use std::fs;
use std::mem::replace;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The top folder of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the tests crate is a folder of the repository")
        .to_owned()
}

/// The text of all pages of the chart whose name begins so, such as `messages` and `messages-logs`.
pub(crate) fn pages_that_begin_with(name: &str) -> String {
    let folder = repository().join("charts/ipu-operator/docs");
    let is_one = |path: &Path| {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        path.parent() == Some(folder.as_path()) && stem.starts_with(name)
    };
    let pages = documents().into_iter().filter(|(path, _)| is_one(path));
    pages.map(|(_, text)| text).collect()
}

/// Every Rust file below a folder of the repository, with its text.
pub(crate) fn rust_files(folder: &str) -> Vec<(PathBuf, String)> {
    files(&repository().join(folder), "rs")
}

/// The folders of the packages of `host`: the operator itself, and those below it.
pub(crate) fn host_packages() -> Vec<String> {
    packages_of("host")
}

/// The folders of the packages of `tests`: the suites themselves, and the packages below it. The
/// fuzz targets are a separate workspace.
pub(crate) fn test_packages() -> Vec<String> {
    let mut packages = packages_of("tests");
    packages.retain(|package| package != "tests/fuzz");
    packages
}

/// The folders of the packages of `guests`.
pub(crate) fn guest_packages() -> Vec<String> {
    packages_of("guests")
}

/// A folder, if it is a package, and its subfolders that are packages.
fn packages_of(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(repository().join(folder)).expect("the folder can be listed");
    let names = entries.map(|entry| entry.expect("a folder entry can be read").file_name());
    let folders = names.map(|name| format!("{folder}/{}", name.to_string_lossy()));
    let is_package = |folder: &String| repository().join(folder).join("Cargo.toml").is_file();
    let folders = folders.chain([folder.to_owned()]);
    let mut packages: Vec<String> = folders.filter(is_package).collect();
    packages.sort();
    packages
}

/// Every Rust file of the packages of `host`, without their test programs, with its text.
pub(crate) fn host_files() -> Vec<(PathBuf, String)> {
    let packages = host_packages().into_iter();
    packages
        .flat_map(|package| rust_files(&format!("{package}/src")))
        .collect()
}

/// Every Rust file of the `src` of a package, without the modules that are compiled only for tests,
/// with its text.
pub(crate) fn shipped_files(package: &str) -> Vec<(PathBuf, String)> {
    let mut files = rust_files(&format!("{package}/src"));
    let modules = files.iter().flat_map(|(path, text)| {
        let path = path.with_extension("");
        let is_root = path.ends_with("lib") || path.ends_with("main");
        let below = if is_root {
            path.with_file_name("")
        } else {
            path
        };
        let items = text.split("#[cfg(test)]\n").skip(1);
        let items = items.filter_map(|item| item.split([';', '{']).next()?.rsplit_once("mod "));
        items
            .map(move |(_, name)| below.join(name.trim()))
            .collect::<Vec<_>>()
    });
    let modules: Vec<_> = modules.collect();
    files.retain(|(path, _)| {
        let path = path.with_extension("");
        !modules.iter().any(|module| path.starts_with(module))
    });
    files
}

/// Every document of the repository, with its text.
pub(crate) fn documents() -> Vec<(PathBuf, String)> {
    files(&repository(), "md")
}

/// Every manifest of the repository (YAML and templates of the chart) and the contract of guests,
/// with its text.
pub(crate) fn manifests() -> Vec<(PathBuf, String)> {
    let extensions = ["tpl", "wit", "yaml", "yml"].into_iter();
    extensions
        .flat_map(|extension| files(&repository(), extension))
        .collect()
}

/// The other texts of the project: the page of the dashboard, the notes of the chart, the manifests
/// of packages and tools, the Makefile and the Dockerfile.
pub(crate) fn other_texts() -> Vec<(PathBuf, String)> {
    let extensions = ["css", "html", "js", "toml", "txt"].into_iter();
    let mut found: Vec<_> = extensions
        .flat_map(|extension| files(&repository(), extension))
        .collect();
    for name in ["Dockerfile", "Makefile"] {
        let path = repository().join(name);
        let text = fs::read_to_string(&path).expect("the file is UTF-8");
        found.push((path, text));
    }
    found
}

/// The paths of two or more names in the code of a Rust file, in imports as in expressions, types
/// and macros, without the items that are compiled only for tests. A called method counts as
/// `_::method`.
pub(crate) fn paths(text: &str) -> Vec<String> {
    let mut words = words(text);
    words.retain(|word| word.contains("::") && !word.contains('"'));
    words
}

/// The strings in the code of a Rust file, in the same way.
pub(crate) fn literals(text: &str) -> Vec<String> {
    let words = words(text).into_iter();
    let string = |word: String| Some(word.strip_prefix('"')?.strip_suffix('"')?.to_owned());
    words.filter_map(string).collect()
}

/// The paths, names and literals of a Rust file.
fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let tokens = text.parse().expect("a Rust file consists of tokens");
    collect_words("", tokens, &mut found);
    found
}

/// Collects the words of a sequence of tokens. In a group of an import, each path begins with the
/// path of the group.
fn collect_words(start: &str, tokens: TokenStream, found: &mut Vec<String>) {
    let mut path = start.to_owned();
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        let next = match token {
            TokenTree::Punct(mark) if mark.as_char() == ':' => {
                path.push(':');
                continue;
            }
            TokenTree::Ident(name) if path.ends_with("::") || path == "." => {
                path.push_str(&name.to_string());
                continue;
            }
            TokenTree::Ident(name) => format!("{start}{name}"),
            TokenTree::Literal(literal) => literal.to_string(),
            TokenTree::Group(group) if path == "#" && is_for_tests(&group) => {
                tokens.find(ends_item);
                start.to_owned()
            }
            TokenTree::Group(group) => {
                let is_of_import = path.ends_with("::") && group.delimiter() == Delimiter::Brace;
                let start_of_group = if is_of_import { &path } else { "" };
                collect_words(start_of_group, group.stream(), found);
                let is_of_call = group.delimiter() == Delimiter::Parenthesis;
                let method = path.strip_prefix('.').filter(|_| is_of_call);
                found.extend(method.map(|method| format!("_::{method}")));
                start.to_owned()
            }
            TokenTree::Punct(mark) => match mark.as_char() {
                mark @ ('.' | '#') => mark.to_string(),
                _ => start.to_owned(),
            },
        };
        found.push(replace(&mut path, next));
    }
    found.push(path);
}

/// Whether an attribute is `cfg(test)`, or a condition that holds only in tests.
fn is_for_tests(attribute: &Group) -> bool {
    let text = attribute.stream().to_string().replace(' ', "");
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// Whether this is the last token of an item.
fn ends_item(token: &TokenTree) -> bool {
    match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(mark) => mark.as_char() == ';',
        _ => false,
    }
}

/// Every file below a folder with this extension, with its text, without build output and the texts
/// of an earlier release.
fn files(folder: &Path, extension: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    collect(folder, extension, &mut found);
    found.sort();
    found
}

fn collect(folder: &Path, extension: &str, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).expect("a source folder can be listed") {
        let path = entry.expect("a folder entry can be read").path();
        let name = path.file_name().unwrap_or_default();
        let is_left_out = ["target", "dist", "node_modules", ".git", "releases"]
            .iter()
            .any(|left_out| name == *left_out);
        if path.is_dir() && !is_left_out {
            collect(&path, extension, found);
        } else if path.is_file() && path.extension().is_some_and(|found| found == extension) {
            let text = fs::read_to_string(&path).expect("a source file is UTF-8");
            found.push((path, text));
        }
    }
}
