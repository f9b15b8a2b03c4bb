//! Checksums of the files of a folder, in the form that `sha256sum --check` reads.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use cluster::files::{At, FileError, read, sha256_of};

use super::archive::{self, Files};

/// The file of the checksums.
pub const NAME: &str = "SHA256SUMS";

/// Difference between a folder and the packed one.
#[derive(Debug, thiserror::Error)]
pub enum SumsError {
    /// A file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// Files differ, are missing, or were added.
    #[error("{} does not match the files beside it: {names:?}", path.display())]
    Differ {
        /// The file with the checksums.
        path: PathBuf,
        /// The first files that differ.
        names: Vec<String>,
    },
}

/// One line for each file.
pub fn list(files: &Files) -> Vec<u8> {
    let mut list = String::new();
    for (name, content) in files {
        // Writing to a String cannot fail.
        let _ = writeln!(list, "{}  {name}", sha256_of(content));
    }
    list.into_bytes()
}

/// Checks that a folder holds these files and no others.
pub fn check(folder: &Path) -> Result<(), SumsError> {
    let path = folder.join(NAME);
    let expected = read(&path)?;
    let mut files = Files::new();
    for entry in fs::read_dir(folder).at("read", folder)? {
        let entry = entry.at("read", folder)?.path();
        let name = entry.file_name().unwrap_or_default().to_string_lossy();
        if name != NAME {
            archive::add(&mut files, &entry, &name)?;
        }
    }
    let found = list(&files);
    let found = String::from_utf8_lossy(&found);
    let mut names = differing(&expected, &found);
    names.truncate(5);
    if names.is_empty() {
        return Ok(());
    }
    Err(SumsError::Differ { path, names })
}

/// The names of files that only one of two lists has with this checksum, sorted.
pub fn differing(expected: &str, found: &str) -> Vec<String> {
    let lines: [BTreeSet<&str>; 2] = [expected, found].map(|list| list.lines().collect());
    let names = lines[0].symmetric_difference(&lines[1]);
    let names = names.map(|line| line.split("  ").last().unwrap_or_default().to_owned());
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn changed_added_and_removed_files_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let files = ["a", "b/c", "d"].map(|name| (name.to_owned(), name.as_bytes().to_vec()));
        fs::create_dir(dir.path().join("b")).unwrap();
        for (name, content) in &files {
            fs::write(dir.path().join(name), content).unwrap();
        }
        fs::write(dir.path().join(NAME), list(&Files::from(files))).unwrap();
        check(dir.path()).unwrap();
        let mut tool = Command::new("sha256sum");
        tool.args(["--check", "--strict", "--quiet", NAME]);
        assert!(tool.current_dir(dir.path()).status().unwrap().success());

        fs::write(dir.path().join("b/c"), "other").unwrap();
        fs::write(dir.path().join("e"), "").unwrap();
        fs::remove_file(dir.path().join("a")).unwrap();
        let error = check(dir.path()).unwrap_err().to_string();
        assert!(error.ends_with(r#"["a", "b/c", "e"]"#), "{error}");
    }
}
