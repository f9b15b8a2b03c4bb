//! The licences of third-party code in a release, with their texts from the crates.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use cluster::files::{At, FileError, read};

use super::crates::{Crate, Crates};
use super::sbom::{LIBC_LICENCE, RUST_LICENCE};

/// The file of the licences.
pub const NAME: &str = "THIRD-PARTY-LICENSES.txt";

/// The path of the C library's licence in Debian.
const OF_LIBC: &str = "/usr/share/common-licenses/LGPL-2.1";

/// Prefixes of the names of files with a licence, or with a notice that a licence requires.
const NAMES: [&str; 6] = [
    "license",
    "licence",
    "copying",
    "copyright",
    "notice",
    "unlicense",
];

const RULE: &str =
    "--------------------------------------------------------------------------------";

/// A list of all crates with their licences, then each text once.
pub fn render(crates: &Crates) -> Result<Vec<u8>, FileError> {
    let libcs: Vec<_> = crates.libcs.iter().map(String::as_str).collect();
    let libc = libcs.join(" and ");
    let mut list = format!(
        "Third-party code in the programs and guests of the IPU Operator.\n\n\
         Rust's standard library {}: {RUST_LICENCE}\n\
         The GNU C library {libc}: {LIBC_LICENCE}. It is linked into the static programs; with the sources\n\
         of this release and `make dist` they are linked with any other version of it.\n\n",
        crates.rust
    );
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for of in crates.crates.iter().filter(|of| !of.is_ours()) {
        let name = format!("{} {}", of.package.name, of.package.version);
        let licence = of.package.license.as_deref().unwrap_or("see its text");
        let found = texts_of(of)?;
        let without = if found.is_empty() {
            ", without a text of its own"
        } else {
            ""
        };
        // Writing to a String cannot fail.
        let _ = writeln!(list, "{name}: {licence}{without}");
        for text in found {
            let holders = texts.entry(text).or_default();
            if holders.last() != Some(&name) {
                holders.push(name.clone());
            }
        }
    }
    let of_libc = read(Path::new(OF_LIBC))?;
    let holders = texts.entry(of_libc.trim_end().to_owned()).or_default();
    holders.push(format!("GNU C library {libc}"));
    let mut ordered: Vec<_> = texts.into_iter().collect();
    ordered.sort_by(|one, other| (&one.1, &one.0).cmp(&(&other.1, &other.0)));
    for (text, holders) in ordered {
        let _ = write!(
            list,
            "\n{RULE}\nOf {}\n{RULE}\n\n{text}\n",
            holders.join(", ")
        );
    }
    Ok(list.into_bytes())
}

/// The texts in a crate's top folder.
fn texts_of(of: &Crate) -> Result<Vec<String>, FileError> {
    let manifest = of.package.manifest_path.as_std_path();
    let folder = manifest.parent().unwrap_or(manifest);
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).at("read", folder)? {
        let path = entry.at("read", folder)?.path();
        let name = path.file_name().unwrap_or_default();
        let is_one = is_licence(&name.to_string_lossy());
        if is_one && path.is_file() {
            let text = fs::read(&path).at("read", &path)?;
            texts.push(String::from_utf8_lossy(&text).trim_end().to_owned());
        }
    }
    texts.sort();
    Ok(texts)
}

fn is_licence(name: &str) -> bool {
    let name = name.to_lowercase();
    let is_source = Path::new(&name).extension().is_some_and(|of| of == "rs");
    NAMES.iter().any(|begin| name.starts_with(begin)) && !is_source
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_known_by_their_names() {
        for name in [
            "LICENSE",
            "LICENSE-MIT",
            "COPYING.txt",
            "UNLICENSE",
            "NOTICE",
            "Licence.md",
        ] {
            assert!(is_licence(name), "{name}");
        }
        for name in ["README.md", "Cargo.toml", "license.rs", "src"] {
            assert!(!is_licence(name), "{name}");
        }
    }
}
