//! Writing and removing files and folders, with the path in every error.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Serialize;
use sha2::{Digest, Sha256};

/// An action on a file that failed.
#[derive(Debug, thiserror::Error)]
#[error("failed to {action} {}", path.display())]
pub struct FileError {
    /// The action.
    pub action: &'static str,
    /// On which file or folder.
    pub path: PathBuf,
    /// Error of the system.
    #[source]
    pub source: io::Error,
}

/// Adds the action to an error of the system.
pub trait At<T> {
    /// Returns the same result. Its error names the action, and the file or folder.
    fn at(self, action: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError {
            action,
            path: path.to_owned(),
            source,
        })
    }
}

/// Makes a folder and all above it.
pub fn make_dir(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).at("make the folder", path)
}

/// Reads a text file.
pub fn read(path: &Path) -> Result<String, FileError> {
    fs::read_to_string(path).at("read", path)
}

/// Writes a file in one step: a reader sees the old content or the new, never a part.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), FileError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let partial = path.with_file_name(name);
    fs::write(&partial, content).at("write", &partial)?;
    fs::rename(&partial, path).at("write", path)
}

/// Writes a value as JSON.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), FileError> {
    let text = serde_json::to_vec_pretty(value)
        .map_err(io::Error::other)
        .at("write", path)?;
    write(path, text)
}

/// Removes a file, or a folder with its content. A missing one is not an error.
pub fn remove(path: &Path) -> Result<(), FileError> {
    let result = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.at("remove", path),
    }
}

/// SHA-256 of a file, in lower-case hexadecimal digits.
pub fn sha256(path: &Path) -> Result<String, FileError> {
    let mut file = fs::File::open(path).at("read", path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match io::Read::read(&mut file, &mut buffer).at("read", path)? {
            0 => return Ok(hex(&hasher.finalize())),
            count => hasher.update(&buffer[..count]),
        }
    }
}

/// SHA-256 of bytes, in lower-case hexadecimal digits.
pub fn sha256_of(bytes: impl AsRef<[u8]>) -> String {
    hex(&Sha256::digest(bytes.as_ref()))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_of_bytes_and_files_agree() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        write(&path, "abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(&path).unwrap(), expected);
        assert_eq!(sha256_of("abc"), expected);
    }

    #[test]
    fn removing_twice_is_fine() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a");
        make_dir(&inner.join("b")).unwrap();
        remove(&inner).unwrap();
        remove(&inner).unwrap();
        assert!(!inner.exists());
    }
}
