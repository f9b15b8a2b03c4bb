//! The files of a module in a folder: the module, and a signature of each key that signed it.
//! Others may have written them, so digest and signatures are verified again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use ipu_api::guest::digest::digest_of;
use ipu_guest_host::Limits;
use ipu_oci::reference::is_digest;
use parking_lot::Mutex;

use super::Fetched;
use super::keys::KeyList;
use super::regular_file::open_regular;
use super::stored_signature::StoredSignature;

/// Size limit of the file of a signature, in bytes: the largest stored manifest and the largest
/// signature in base64.
const SIGNATURE_FILE: u64 = 512 << 10;

/// Start of the extension of a signature's file, before the fingerprint of its key.
const SIGNATURE: &str = "signature-";

/// Extension of the file of a module.
const MODULE: &str = "wasm";

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedFile {
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
}

/// A module as it is in a folder, before it is verified.
pub(super) struct StoredModule {
    component: Vec<u8>,
    /// By the fingerprint of the key.
    signatures: BTreeMap<String, Vec<u8>>,
}

/// The modules of a folder whose invalid signatures the log has named, so that it names each once:
/// a module is looked for again at each retry.
#[derive(Default)]
pub(super) struct InvalidSignatures(Mutex<BTreeSet<String>>);

impl InvalidSignatures {
    /// Adds a module, and returns whether it is new.
    pub(super) fn add(&self, digest: &str) -> bool {
        self.0.lock().insert(digest.to_owned())
    }

    /// Removes a module that has valid signatures.
    pub(super) fn remove(&self, digest: &str) {
        self.0.lock().remove(digest);
    }
}

/// Reason why a stored module is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unusable {
    /// The file contains something else.
    #[error("its digest is {0}: the file is incomplete, or another program has written it")]
    Digest(String),
    /// There is no valid signature by a key of each list.
    #[error("no stored signature of it is by one of the keys that must have signed it")]
    Unsigned,
}

impl StoredModule {
    /// Reads the module with this digest, and its signatures by the keys of these lists. `None` if
    /// there is no such file, or no signature by a key of one of the lists: many modules may be
    /// looked for at once, and each takes up to 32 MiB. `digest` has no `sha256:`.
    pub(super) fn read(
        folder: &Path,
        digest: &str,
        fingerprints: &[Vec<String>],
    ) -> io::Result<Option<Self>> {
        let mut signatures = BTreeMap::new();
        for list in fingerprints {
            for fingerprint in list {
                let path = folder.join(signature_file(digest, fingerprint));
                // A signature that cannot be read counts as missing: it hides neither the module
                // nor other signatures.
                if let Ok(Some(signature)) = read_bounded(&path, SIGNATURE_FILE) {
                    signatures.insert(fingerprint.clone(), signature);
                }
            }
            if !list.iter().any(|key| signatures.contains_key(key)) {
                return Ok(None);
            }
        }
        let module = folder.join(format!("{digest}.{MODULE}"));
        let Some(component) = read_bounded(&module, Limits::default().module)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            component,
            signatures,
        }))
    }

    /// Returns the module if it has this digest, and a valid signature by a key of each list.
    pub(super) fn verified(self, digest: &str, lists: &[KeyList]) -> Result<Fetched, Unusable> {
        let found = digest_of(&self.component);
        let found = found.as_str();
        if found.trim_start_matches("sha256:") != digest {
            return Err(Unusable::Digest(found.to_owned()));
        }
        let mut signatures = BTreeMap::new();
        for list in lists {
            let valid = list.keys().iter().filter_map(|key| {
                let fingerprint = key.fingerprint();
                let signature = StoredSignature::parse(self.signatures.get(fingerprint)?)?;
                let is_valid = signature.is_valid(&self.component, found, key);
                is_valid.then(|| (fingerprint.to_owned(), signature))
            });
            let valid: Vec<_> = valid.collect();
            if valid.is_empty() {
                return Err(Unusable::Unsigned);
            }
            signatures.extend(valid);
        }
        Ok(Fetched {
            component: self.component,
            signatures,
        })
    }
}

/// Returns the names of the files of a module.
pub(super) fn file_names(digest: &str, fetched: &Fetched) -> Vec<String> {
    let signatures = fetched.signatures.keys();
    let signatures = signatures.map(|fingerprint| signature_file(digest, fingerprint));
    signatures.chain([format!("{digest}.{MODULE}")]).collect()
}

/// Returns the files of a module. The module is last, so that a reader which finds it also finds
/// its signatures.
pub(super) fn files(digest: &str, fetched: &Fetched) -> Vec<NamedFile> {
    let signatures = fetched.signatures.iter();
    let signatures = signatures.map(|(fingerprint, signature)| NamedFile {
        name: signature_file(digest, fingerprint),
        bytes: signature.to_file(),
    });
    let module = NamedFile {
        name: format!("{digest}.{MODULE}"),
        bytes: fetched.component.clone(),
    };
    signatures.chain([module]).collect()
}

/// Returns the digest of the module that a file belongs to. `None` if it is no file of a module.
pub(super) fn module_of_file(name: &str) -> Option<&str> {
    let (digest, kind) = name.split_once('.')?;
    let is_of_module = kind == MODULE || kind.starts_with(SIGNATURE);
    (is_of_module && is_digest(&format!("sha256:{digest}"))).then_some(digest)
}

fn signature_file(digest: &str, fingerprint: &str) -> String {
    let key = fingerprint.trim_start_matches("sha256:");
    format!("{digest}.{SIGNATURE}{key}")
}

/// Reads a regular file of at most `limit` bytes.
fn read_bounded(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match open_regular(File::options().read(true), path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if file.metadata()?.len() > limit {
        let problem = format!("it has more than {limit} bytes");
        return Err(io::Error::new(ErrorKind::InvalidData, problem));
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_with_invalid_signatures_is_named_once_until_they_are_valid() {
        let invalid = InvalidSignatures::default();
        let added = [invalid.add("a"), invalid.add("b"), invalid.add("a")];
        assert_eq!(added, [true, true, false]);
        invalid.remove("a");
        assert_eq!([invalid.add("a"), invalid.add("b")], [true, false]);
    }
}
