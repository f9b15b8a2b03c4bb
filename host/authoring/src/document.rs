//! Reads the JSON and YAML files that authors write.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Largest document that is read, in bytes: twice the limit of an API server, because updates
/// contain two objects.
const LIMIT: u64 = 8 << 20;

/// Failure to read a document.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The file cannot be read.
    #[error("failed to read {0}")]
    Read(PathBuf, #[source] io::Error),
    /// The file is too large.
    #[error("{file} is larger than the limit of {limit} bytes; split it")]
    TooLarge {
        /// The file.
        file: PathBuf,
        /// The limit, in bytes.
        limit: u64,
    },
    /// It is not JSON.
    #[error("{0} is not JSON")]
    Json(PathBuf, #[source] serde_json::Error),
    /// It is not YAML.
    #[error("{file} is not YAML: {reason}")]
    Yaml {
        /// The file.
        file: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// Whether a file has the extension of YAML.
pub(super) fn is_yaml(file: &Path) -> bool {
    file.extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// Reads a text, but not more than `limit` bytes.
pub(super) fn text(file: &Path, limit: u64) -> Result<String, DocumentError> {
    let failed = |source| DocumentError::Read(file.to_owned(), source);
    let mut text = String::new();
    File::open(file)
        .map_err(failed)?
        .take(limit + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > limit {
        return Err(DocumentError::TooLarge {
            file: file.to_owned(),
            limit,
        });
    }
    Ok(text)
}

/// Reads a document: YAML if the file has its extension, otherwise JSON.
pub(super) fn document(file: &Path) -> Result<Value, DocumentError> {
    let text = text(file, LIMIT)?;
    if is_yaml(file) {
        return serde_saphyr::from_str(&text).map_err(|error| DocumentError::Yaml {
            file: file.to_owned(),
            reason: error.to_string(),
        });
    }
    serde_json::from_str(&text).map_err(|source| DocumentError::Json(file.to_owned(), source))
}
