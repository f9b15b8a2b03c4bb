//! A folder in the cache: complete or missing, and checked by the digests of its files.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::files::{At, FileError, make_dir, read, remove, sha256, write_json};

/// Name of the list of digests within a folder.
const MANIFEST: &str = "manifest.json";

/// The content of a folder, and its inputs.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Manifest {
    /// Digest of all inputs: versions, checksums, flags.
    inputs: String,
    files: BTreeMap<PathBuf, Entry>,
}

/// A file: its digest, and a stamp that shows cheaply that it has not changed since it was hashed.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    sha256: String,
    size: u64,
    modified: i64,
    modified_nanoseconds: i64,
}

/// Whether `dir` was made from `inputs`, and no file in it has changed. A file with the same size
/// and time is not read again.
pub fn is_intact(dir: &Path, inputs: &str) -> bool {
    let Ok(text) = read(&dir.join(MANIFEST)) else {
        return false;
    };
    let Ok(manifest) = serde_json::from_str::<Manifest>(&text) else {
        return false;
    };
    manifest.inputs == inputs
        && manifest
            .files
            .iter()
            .all(|(name, entry)| entry.matches(&dir.join(name)))
}

/// Makes `dir` again: `make` fills an empty folder beside it, which replaces `dir` when it is
/// complete. An incomplete folder never has that name.
pub fn make<E: From<FileError>>(
    dir: &Path,
    inputs: &str,
    make: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let partial = partial_of(dir);
    remove(&partial)?;
    make_dir(&partial)?;
    make(&partial)?;
    let manifest = Manifest {
        inputs: inputs.to_owned(),
        files: entries(&partial)?,
    };
    write_json(&partial.join(MANIFEST), &manifest)?;
    remove(dir)?;
    fs::rename(&partial, dir).at("make", dir)?;
    Ok(())
}

/// The folder beside `dir` in which it is made. A dot in the name of `dir` begins no extension:
/// folders that differ after it may be made at the same time.
fn partial_of(dir: &Path) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    dir.with_file_name(name)
}

impl Entry {
    fn of(path: &Path) -> Result<Self, FileError> {
        let metadata = fs::metadata(path).at("read", path)?;
        Ok(Self {
            sha256: sha256(path)?,
            size: metadata.size(),
            modified: metadata.mtime(),
            modified_nanoseconds: metadata.mtime_nsec(),
        })
    }

    fn matches(&self, path: &Path) -> bool {
        let Ok(metadata) = fs::metadata(path) else {
            return false;
        };
        let stamped =
            metadata.mtime() == self.modified && metadata.mtime_nsec() == self.modified_nanoseconds;
        metadata.size() == self.size
            && (stamped || sha256(path).is_ok_and(|digest| digest == self.sha256))
    }
}

/// Every regular file below `root`, by its path from there.
fn entries(root: &Path) -> Result<BTreeMap<PathBuf, Entry>, FileError> {
    let mut entries = BTreeMap::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).at("read", &dir)? {
            let entry = entry.at("read", &dir)?;
            let path = entry.path();
            let kind = entry.file_type().at("read", &path)?;
            if kind.is_dir() {
                dirs.push(path);
            } else if kind.is_file() {
                let name = path.strip_prefix(root).expect("it lies below its root");
                entries.insert(name.to_owned(), Entry::of(&path)?);
            }
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn fill(dir: &Path) -> Result<(), FileError> {
        make_dir(&dir.join("bin"))?;
        crate::files::write(&dir.join("bin/tool"), "one")
    }

    #[test]
    fn a_folder_is_intact_until_inputs_or_bytes_change() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("tool-1.2.3");
        assert!(!is_intact(&dir, "v1"));
        make(&dir, "v1", fill).unwrap();
        assert!(is_intact(&dir, "v1"));
        assert!(!is_intact(&dir, "v2"));

        let tool = dir.join("bin/tool");
        let later = SystemTime::now() + Duration::from_secs(5);
        let file = fs::File::options().write(true).open(&tool).unwrap();
        file.set_modified(later).unwrap();
        assert!(is_intact(&dir, "v1"), "same bytes, other time");
        fs::write(&tool, "two").unwrap();
        assert!(!is_intact(&dir, "v1"), "other bytes");
        fs::remove_file(&tool).unwrap();
        assert!(!is_intact(&dir, "v1"), "no file");
    }

    #[test]
    fn folders_with_dots_are_made_apart() {
        let images =
            ["a.local_pause_1", "a.local_coredns_1"].map(|name| partial_of(Path::new(name)));
        assert_ne!(images[0], images[1]);
    }

    #[test]
    fn a_failed_make_leaves_the_old_folder() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("tool-1.2.3");
        make(&dir, "v1", fill).unwrap();
        let failed = make(&dir, "v2", |partial| {
            fill(partial)?;
            fs::read(partial.join("missing"))
                .map(drop)
                .at("read", partial)
        });
        assert!(failed.is_err());
        assert!(is_intact(&dir, "v1"));
    }
}
