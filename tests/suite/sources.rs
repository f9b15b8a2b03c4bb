//! Finds the source files and documents of the repository for the tests that read them.

use std::fs;
use std::path::{Path, PathBuf};

/// The top folder of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the tests crate is a folder of the repository")
        .to_owned()
}

/// Every Rust file below a folder of the repository, with its text.
pub(crate) fn rust_files(folder: &str) -> Vec<(PathBuf, String)> {
    files(&repository().join(folder), "rs")
}

/// The folders of the packages of `host`: the operator itself, and those below it.
pub(crate) fn host_packages() -> Vec<String> {
    packages_of("host")
}

/// The folders of the packages of `tests`: the suites themselves, and the packages below it. The fuzz targets are a
/// separate workspace.
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

/// Every document of the repository, with its text.
pub(crate) fn documents() -> Vec<(PathBuf, String)> {
    files(&repository(), "md")
}

/// Every manifest of the repository (YAML and templates of the chart) and the contract of guests, with its text.
pub(crate) fn manifests() -> Vec<(PathBuf, String)> {
    let extensions = ["tpl", "wit", "yaml", "yml"].into_iter();
    extensions
        .flat_map(|extension| files(&repository(), extension))
        .collect()
}

/// The other texts of the project: the page of the dashboard, the notes of the chart, the manifests of packages and
/// tools, the Makefile and the Dockerfile.
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

/// A Rust file without the code that is compiled only for tests.
pub(crate) fn shipped(path: &Path, text: &str) -> syn::File {
    let parsed = syn::parse_file(text);
    let mut file = parsed.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    keep_shipped(&mut file.items);
    file
}

fn keep_shipped(items: &mut Vec<syn::Item>) {
    items.retain(|item| !attributes(item).iter().any(is_for_tests));
    for item in items {
        match item {
            syn::Item::Mod(module) => {
                if let Some((_, inner)) = &mut module.content {
                    keep_shipped(inner);
                }
            }
            syn::Item::Impl(block) => block.items.retain(|item| {
                let syn::ImplItem::Fn(function) = item else {
                    return true;
                };
                !function.attrs.iter().any(is_for_tests)
            }),
            _ => {}
        }
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether this is `#[cfg(test)]`, or another condition that holds only in tests.
fn is_for_tests(attribute: &syn::Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute
            .parse_args::<syn::Meta>()
            .is_ok_and(|condition| needs_test(&condition))
}

fn needs_test(condition: &syn::Meta) -> bool {
    let syn::Meta::List(list) = condition else {
        return condition.path().is_ident("test");
    };
    let inner = list.parse_args_with(
        syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated,
    );
    list.path.is_ident("all") && inner.is_ok_and(|inner| inner.iter().any(needs_test))
}

/// Every file below a folder with this extension, with its text, without build output and the texts of an earlier
/// release.
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
