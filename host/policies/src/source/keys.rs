//! The keys that must have signed a module: those of its policy, and those of the release.

use std::collections::BTreeSet;

use ipu_api::ipupolicy::{ModuleSource, PemSource};
use ipu_text::explain;
use tokio::sync::OnceCell;

use super::{SourceError, Sources};
use ipu_oci::cosign::{PublicKey, Unsigned, public_keys};

/// Field of a policy with the keys of one module.
const OF_POLICY: &str = "spec.module.oci.signature.keys";

/// Chart value with the keys of all modules.
const OF_RELEASE: &str = "policies.requiredKeys";

/// Fingerprints of the keys that signed a module.
pub type Signers = BTreeSet<String>;

/// Whether the keys that signed a loaded module still count. The last variant of several lists
/// decides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// They count.
    Kept,
    /// Some keys cannot be read at the moment, for this reason.
    Unknown(String),
    /// A ConfigMap or Secret with keys of this field does not exist or may not be read, for this
    /// reason.
    Absent(&'static str, String),
    /// None of the keys of this field signed the module.
    Withdrawn(&'static str),
}

/// The keys of the release, which are read at most once: for the checks of all modules that begin
/// together.
#[derive(Default)]
pub struct ReleaseKeys(OnceCell<KeyList>);

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

    /// Returns the reason why a module is not loaded that none of these keys signed. A key that
    /// cannot be read may have signed it: first one that a retry can read, then one whose object
    /// can be created again.
    pub(super) fn refusal(self, module: String, unsigned: Unsigned) -> SourceError {
        let rank = |problem: &SourceError| (problem.is_refusal(), !problem.is_absent_object());
        let problem = self.problems.into_iter().min_by_key(rank);
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
        if let Some(problem) = problems.clone().find(|problem| !problem.is_refusal()) {
            return Trust::Unknown(explain(problem));
        }
        match problems.find(|problem| problem.is_absent_object()) {
            Some(problem) => Trust::Absent(self.field, explain(problem)),
            None => Trust::Withdrawn(self.field),
        }
    }
}

impl Sources {
    /// Whether a module needs a signature: those of the image never do.
    pub fn must_be_signed(&self, source: &ModuleSource) -> bool {
        policy_keys(source).is_some() || self.release_keys(source).is_some()
    }

    /// Returns whether the keys that signed a loaded module still count.
    pub async fn trust(
        &self,
        source: &ModuleSource,
        signers: &Signers,
        release: &ReleaseKeys,
    ) -> Trust {
        let of_policy = match policy_keys(source) {
            Some(keys) => self.key_list(OF_POLICY, keys).await.trust(signers),
            None => Trust::Kept,
        };
        let of_release = match self.release_keys(source) {
            Some(keys) => {
                let read = || self.key_list(OF_RELEASE, keys);
                release.0.get_or_init(read).await.trust(signers)
            }
            None => Trust::Kept,
        };
        of_policy.max(of_release)
    }

    /// Reads the lists of keys, one of each of which must have signed the module.
    pub(super) async fn key_lists(&self, source: &ModuleSource) -> Vec<KeyList> {
        let mut lists = Vec::new();
        if let Some(keys) = policy_keys(source) {
            lists.push(self.key_list(OF_POLICY, keys).await);
        }
        if let Some(keys) = self.release_keys(source) {
            lists.push(self.key_list(OF_RELEASE, keys).await);
        }
        lists
    }

    async fn key_list(&self, field: &'static str, sources: &[PemSource]) -> KeyList {
        let (mut keys, mut problems) = (Vec::new(), Vec::new());
        for (index, source) in sources.iter().enumerate() {
            match self.signing_keys(source, format!("{field}[{index}]")).await {
                Ok(found) => keys.extend(found),
                Err(problem) => problems.push(problem),
            }
        }
        KeyList {
            field,
            keys,
            problems,
        }
    }

    /// The keys of the release that must have signed this module. Those of the image need no
    /// signature.
    fn release_keys(&self, source: &ModuleSource) -> Option<&[PemSource]> {
        let is_required = source.image.is_none() && !self.required_keys.is_empty();
        is_required.then_some(self.required_keys.as_slice())
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

/// The keys of its policy that must have signed this module.
fn policy_keys(source: &ModuleSource) -> Option<&[PemSource]> {
    let signature = source.oci.as_ref()?.signature.as_ref()?;
    Some(signature.keys.as_slice())
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
