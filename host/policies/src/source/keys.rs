//! The keys that must have signed a module: those of its policy, and those of the release.

use std::collections::BTreeSet;

use ipu_api::ipupolicy::{ModuleSource, PemSource};
use ipu_text::explain;

use super::{SourceError, Sources};
use crate::oci::cosign::{PublicKey, Unsigned, public_keys};

/// Field of a policy with the keys of one module.
const OF_POLICY: &str = "spec.module.oci.signature.keys";

/// Chart value with the keys of all modules.
const OF_RELEASE: &str = "policies.requiredKeys";

/// Fingerprints of the keys that signed a module.
pub type Signers = BTreeSet<String>;

/// Whether the keys that signed a loaded module still count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// They count.
    Kept,
    /// Some keys cannot be read at the moment, for this reason.
    Unknown(String),
    /// None of the keys of this field signed the module.
    Withdrawn(&'static str),
}

/// A list of keys, one of which must have signed a module.
pub(super) struct KeyList {
    field: &'static str,
    keys: Vec<PublicKey>,
    /// The keys that cannot be read.
    problems: Vec<SourceError>,
}

impl KeyList {
    pub(super) fn keys(&self) -> &[PublicKey] {
        &self.keys
    }

    /// Returns the reason why a module is not loaded that none of these keys signed. A key that cannot be read may have
    /// signed it.
    pub(super) fn refusal(self, module: String, unsigned: Unsigned) -> SourceError {
        let problem = self.problems.into_iter().next();
        problem.unwrap_or(SourceError::Unsigned {
            module,
            field: self.field,
            source: unsigned,
        })
    }

    /// Pure: whether one of the signers is in the list.
    fn trust(&self, signers: &Signers) -> Trust {
        let signed = |key: &PublicKey| signers.contains(key.fingerprint());
        if self.keys.iter().any(signed) {
            return Trust::Kept;
        }
        let mut problems = self.problems.iter();
        match problems.find(|problem| !problem.is_refusal()) {
            Some(problem) => Trust::Unknown(explain(problem)),
            None => Trust::Withdrawn(self.field),
        }
    }
}

impl Sources {
    /// Whether a module needs a signature: those of the image never do.
    pub fn must_be_signed(&self, source: &ModuleSource) -> bool {
        self.fields(source).next().is_some()
    }

    /// Returns whether the keys that signed a loaded module still count.
    pub async fn trust(&self, source: &ModuleSource, signers: &Signers) -> Trust {
        let mut all = Trust::Kept;
        for list in self.key_lists(source).await {
            match list.trust(signers) {
                Trust::Kept => {}
                unknown @ Trust::Unknown(_) => all = unknown,
                withdrawn @ Trust::Withdrawn(_) => return withdrawn,
            }
        }
        all
    }

    /// Reads the lists of keys, one of each of which must have signed the module.
    pub(super) async fn key_lists(&self, source: &ModuleSource) -> Vec<KeyList> {
        let mut lists = Vec::new();
        for (field, sources) in self.fields(source) {
            let (mut keys, mut problems) = (Vec::new(), Vec::new());
            for (index, source) in sources.iter().enumerate() {
                match self.signing_keys(source, format!("{field}[{index}]")).await {
                    Ok(found) => keys.extend(found),
                    Err(problem) => problems.push(problem),
                }
            }
            lists.push(KeyList {
                field,
                keys,
                problems,
            });
        }
        lists
    }

    fn fields<'a>(
        &'a self,
        source: &'a ModuleSource,
    ) -> impl Iterator<Item = (&'static str, &'a [PemSource])> {
        let oci = source.oci.as_ref();
        let of_policy = oci.and_then(|oci| oci.signature.as_ref());
        let of_policy = of_policy.map(|signature| (OF_POLICY, signature.keys.as_slice()));
        let is_required = source.image.is_none() && !self.required_keys.is_empty();
        let of_release = is_required.then_some((OF_RELEASE, self.required_keys.as_slice()));
        of_policy.into_iter().chain(of_release)
    }

    async fn signing_keys(
        &self,
        source: &PemSource,
        field: String,
    ) -> Result<Vec<PublicKey>, SourceError> {
        let text = self.pem(source, &field).await;
        let keys = text.and_then(|text| {
            public_keys(&text).map_err(|source| SourceError::Keys(field.clone(), source))
        });
        keys.map_err(|source| SourceError::SigningKey(field, Box::new(source)))
    }
}

#[cfg(test)]
mod tests;
