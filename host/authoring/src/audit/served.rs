//! Pure: the namespaces in which the operator calls the guest of a policy, from the webhook configurations of its releases.

use std::collections::BTreeSet;

use ipu_api::labels::{OPERATOR_NAMESPACE, WATCH_NAMESPACES};
use serde_json::Value;

use super::AuditError;

/// A release of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Release {
    /// Its namespace.
    namespace: String,
    /// The namespaces that it serves. Empty: the whole cluster.
    served: BTreeSet<String>,
}

/// The namespaces in which the operator calls a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Served {
    /// All namespaces.
    #[default]
    Everywhere,
    /// These alone.
    Namespaces(BTreeSet<String>),
    /// The user may not read it.
    Unknown,
}

impl Release {
    /// Reads a release from its webhook configuration.
    pub(super) fn of(configuration: &Value) -> Self {
        let annotations = &configuration["metadata"]["annotations"];
        let text = |key: &str| annotations[key].as_str().unwrap_or_default();
        let names = text(WATCH_NAMESPACES).split(',').map(str::trim);
        Self {
            namespace: text(OPERATOR_NAMESPACE).to_owned(),
            served: names
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
        }
    }
}

impl Served {
    /// Returns the namespaces of a policy. `label` is the namespace of the release that the IPUPolicy names; a component, or
    /// an IPUPolicy without the label, can be that of any release. A release for the whole cluster applies all IPUPolicies.
    pub(super) fn of(
        releases: Option<&[Release]>,
        policy: &str,
        label: Option<&str>,
    ) -> Result<Self, AuditError> {
        let Some(releases) = releases else {
            return Ok(Self::Unknown);
        };
        // Before the operator is installed, everything is of interest.
        if releases.is_empty() || releases.iter().any(|release| release.served.is_empty()) {
            return Ok(Self::Everywhere);
        }
        let is_named = |release: &&Release| label.is_none_or(|label| release.namespace == label);
        let served: BTreeSet<String> = releases
            .iter()
            .filter(is_named)
            .flat_map(|release| release.served.clone())
            .collect();
        match label {
            Some(label) if served.is_empty() => Err(AuditError::NoRelease {
                policy: policy.to_owned(),
                namespace: label.to_owned(),
            }),
            _ => Ok(Self::Namespaces(served)),
        }
    }

    /// Returns the namespaces to list: the chosen ones, or else all that are served. Empty: the whole cluster.
    pub(super) fn listed(&self, chosen: &[String]) -> Result<Vec<String>, AuditError> {
        let Self::Namespaces(served) = self else {
            return Ok(chosen.to_vec());
        };
        if let Some(other) = chosen.iter().find(|name| !served.contains(*name)) {
            return Err(AuditError::NotServed {
                namespace: other.clone(),
                served: joined(served),
            });
        }
        Ok(match chosen {
            [] => served.iter().cloned().collect(),
            chosen => chosen.to_vec(),
        })
    }

    /// Returns the line of the output about the audited namespaces.
    pub(super) fn note(&self) -> Option<String> {
        match self {
            Self::Everywhere => None,
            Self::Namespaces(names) => {
                Some(format!("audited: these namespaces alone: {}", joined(names)))
            }
            Self::Unknown => Some(
                "audited: also namespaces that the operator may not serve, because this user may not list \
                 mutatingwebhookconfigurations; name namespaces with --namespace"
                    .to_owned(),
            ),
        }
    }
}

fn joined(names: &BTreeSet<String>) -> String {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn release(namespace: &str, served: &str) -> Release {
        Release::of(&json!({"metadata": {"annotations": {
            "graphcore.ai/operator-namespace": namespace, "graphcore.ai/watch-namespaces": served,
        }}}))
    }

    fn served(releases: &[Release], label: Option<&str>) -> Result<Served, AuditError> {
        Served::of(Some(releases), "rule", label)
    }

    fn namespaces(names: &[&str]) -> Served {
        Served::Namespaces(names.iter().map(|&name| name.to_owned()).collect())
    }

    #[test]
    fn a_policy_applies_where_its_release_serves() {
        let some = [release("ipu-a", "a, b"), release("ipu-c", "c")];
        for (label, expected) in [
            (Some("ipu-a"), namespaces(&["a", "b"])),
            (Some("ipu-c"), namespaces(&["c"])),
            (None, namespaces(&["a", "b", "c"])),
        ] {
            assert_eq!(served(&some, label).unwrap(), expected, "{label:?}");
        }
        let error = served(&some, Some("ipu-d")).unwrap_err().to_string();
        assert!(error.contains("ipu-d") && error.contains("rule"), "{error}");
    }

    #[test]
    fn a_release_for_the_whole_cluster_applies_every_policy() {
        let all = [release("ipu-a", "a"), release("ipu", "")];
        for label in [None, Some("ipu-a"), Some("ipu-d")] {
            assert_eq!(served(&all, label).unwrap(), Served::Everywhere);
            assert_eq!(served(&[], label).unwrap(), Served::Everywhere);
            let unknown = Served::of(None, "rule", label).unwrap();
            assert_eq!(unknown, Served::Unknown);
            assert!(unknown.note().unwrap().contains("may not serve"));
        }
    }

    #[test]
    fn only_a_served_namespace_can_be_chosen() {
        let chosen = |name: &str| [name.to_owned()];
        let some = namespaces(&["a", "b"]);
        assert_eq!(some.listed(&[]).unwrap(), ["a", "b"]);
        assert_eq!(some.listed(&chosen("b")).unwrap(), ["b"]);
        let error = some.listed(&chosen("c")).unwrap_err().to_string();
        assert!(error.contains("a, b"), "{error}");
        assert_eq!(Served::Everywhere.listed(&chosen("c")).unwrap(), ["c"]);
        assert_eq!(Served::Unknown.listed(&[]).unwrap(), [""; 0]);
    }
}
