//! Pure: the namespaces in which the operator calls the guest of a policy, from the webhook
//! configurations of its releases.

use std::collections::BTreeSet;

use ipu_api::labels::{OPERATOR_NAMESPACE, WATCH_NAMESPACES};
use serde_json::Value;

use super::AuditError;

/// Name of the webhook of native Pods in the mutating configuration. The chart leaves it out where
/// `nativePods.enabled` is false.
const POD_WEBHOOK: &str = "mpod.graphcore.ai";

/// The label with the name of a namespace, which the API server sets.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// A release of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Release {
    /// Its namespace.
    namespace: String,
    /// Whether it serves the whole cluster.
    serves_all: bool,
    /// The namespaces in which the API server calls its webhooks. Empty: all.
    reviewed: BTreeSet<String>,
    /// Whether it has the webhook of native Pods.
    reviews_pods: bool,
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
        let served = names(text(WATCH_NAMESPACES).split(','));
        let webhooks = configuration["webhooks"].as_array();
        let webhooks = webhooks.map(Vec::as_slice).unwrap_or_default();
        let selected = names(webhooks.iter().flat_map(selected_namespaces));
        Self {
            namespace: text(OPERATOR_NAMESPACE).to_owned(),
            serves_all: served.is_empty(),
            reviewed: if selected.is_empty() {
                served
            } else {
                selected
            },
            reviews_pods: webhooks
                .iter()
                .any(|webhook| webhook["name"] == POD_WEBHOOK),
        }
    }
}

/// Returns the names of namespaces in the selector of a webhook, as the chart value
/// `admissionWebhooks.scope` sets it.
fn selected_namespaces(webhook: &Value) -> impl Iterator<Item = &str> {
    let expressions = webhook["namespaceSelector"]["matchExpressions"].as_array();
    let by_name = expressions
        .into_iter()
        .flatten()
        .filter(|expression| expression["key"] == NAMESPACE_NAME && expression["operator"] == "In");
    let values = by_name.filter_map(|expression| expression["values"].as_array());
    values.flatten().filter_map(Value::as_str)
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let names = names.map(str::trim).filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// Whether the operator calls guests about native Pods. Before it is installed, everything is of
/// interest.
pub(super) fn reviews_pods(releases: Option<&[Release]>) -> bool {
    releases.is_none_or(|releases| {
        releases.is_empty() || releases.iter().any(|release| release.reviews_pods)
    })
}

impl Served {
    /// Returns the namespaces of a policy. `label` is the namespace of the release that the
    /// IPUPolicy names; a component, or an IPUPolicy without the label, can be that of any release.
    /// A release for the whole cluster applies all IPUPolicies.
    pub(super) fn of(
        releases: Option<&[Release]>,
        policy: &str,
        label: Option<&str>,
    ) -> Result<Self, AuditError> {
        let Some(releases) = releases else {
            return Ok(Self::Unknown);
        };
        // Before the operator is installed, everything is of interest.
        if releases.is_empty() {
            return Ok(Self::Everywhere);
        }
        let applies = |release: &&Release| {
            release.serves_all || label.is_none_or(|label| release.namespace == label)
        };
        let applying: Vec<&Release> = releases.iter().filter(applies).collect();
        if applying.iter().any(|release| release.reviewed.is_empty()) {
            return Ok(Self::Everywhere);
        }
        match label {
            Some(label) if applying.is_empty() => Err(AuditError::NoRelease {
                policy: policy.to_owned(),
                namespace: label.to_owned(),
            }),
            _ => Ok(Self::Namespaces(
                applying
                    .iter()
                    .flat_map(|release| release.reviewed.clone())
                    .collect(),
            )),
        }
    }

    /// Returns the namespaces to list: the chosen ones, or else all that are served. Empty: the
    /// whole cluster.
    pub(super) fn listed(&self, chosen: &[String]) -> Result<Vec<String>, AuditError> {
        let chosen: BTreeSet<&String> = chosen.iter().collect();
        if let Self::Namespaces(served) = self {
            if let Some(other) = chosen.iter().find(|name| !served.contains(**name)) {
                return Err(AuditError::NotServed {
                    namespace: (*other).clone(),
                    served: joined(served),
                });
            }
            if chosen.is_empty() {
                return Ok(served.iter().cloned().collect());
            }
        }
        Ok(chosen.into_iter().cloned().collect())
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
    fn a_policy_applies_where_the_webhooks_are_called() {
        let scoped = |served: &str, names: Value| {
            let expression =
                json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": names});
            Release::of(&json!({
                "metadata": {"annotations": {
                    "graphcore.ai/operator-namespace": "ipu", "graphcore.ai/watch-namespaces": served,
                }},
                "webhooks": [{"name": "mipujob.graphcore.ai", "namespaceSelector": {"matchExpressions": [expression]}}],
            }))
        };
        for (watched, label) in [("", Some("other")), ("a,b", Some("ipu")), ("a,b", None)] {
            let release = scoped(watched, json!(["a"]));
            assert_eq!(served(&[release], label).unwrap(), namespaces(&["a"]));
        }
    }

    #[test]
    fn native_pods_count_where_a_release_has_their_webhook() {
        let release = |webhook: &str| Release::of(&json!({"webhooks": [{"name": webhook}]}));
        let both = ["mipujob.graphcore.ai", "mpod.graphcore.ai"].map(release);
        assert!(!reviews_pods(Some(&both[..1])));
        assert!(reviews_pods(Some(&both)));
        assert!(reviews_pods(Some(&[])) && reviews_pods(None));
    }

    #[test]
    fn a_chosen_namespace_counts_once() {
        let twice = ["a".to_owned(), "a".to_owned()];
        assert_eq!(namespaces(&["a"]).listed(&twice).unwrap(), ["a"]);
        assert_eq!(Served::Everywhere.listed(&twice).unwrap(), ["a"]);
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
