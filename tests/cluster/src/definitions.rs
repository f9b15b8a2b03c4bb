//! Whether an API server serves the kinds of its CRDs. `kubectl wait` ends with an error when it
//! reads a CRD that has no conditions yet.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::wait::{Seen, eventually};

/// Waits until the kinds of all CRDs are served.
pub async fn once_served(client: &Client) {
    eventually("the CRDs are served", async || are_served(client).await).await;
}

/// Whether the kinds of all CRDs are served.
pub async fn are_served(client: &Client) -> Seen<()> {
    let all: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definitions = match all.list(&ListParams::default()).await {
        Ok(listed) => listed.items,
        Err(error) => return Seen::of_error(&error),
    };
    let waiting: Vec<String> = definitions
        .iter()
        .filter(|definition| !is_served(definition))
        .map(ResourceExt::name_any)
        .collect();
    if waiting.is_empty() {
        Seen::Yes(())
    } else {
        Seen::NotYet(waiting.join(", "))
    }
}

/// Whether the kind of the definition is served.
pub fn is_served(definition: &CustomResourceDefinition) -> bool {
    let status = definition.status.as_ref();
    let mut conditions = status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|one| one.type_ == "Established" && one.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn definition(status: &Value) -> CustomResourceDefinition {
        serde_json::from_value(json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "tests.example.com"},
            "spec": {
                "group": "example.com",
                "names": {"kind": "Test", "plural": "tests"},
                "scope": "Namespaced",
                "versions": [],
            },
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_kind_is_served_once_the_api_server_says_so() {
        for status in [
            json!(null),
            json!({"conditions": null}),
            json!({"conditions": []}),
            json!({"conditions": [{"type": "NamesAccepted", "status": "True"}]}),
            json!({"conditions": [{"type": "Established", "status": "False"}]}),
        ] {
            assert!(!is_served(&definition(&status)), "{status}");
        }
        let established = json!({"type": "Established", "status": "True"});
        let accepted = json!({"type": "NamesAccepted", "status": "True"});
        let status = json!({"conditions": [accepted, established]});
        assert!(is_served(&definition(&status)));
    }
}
