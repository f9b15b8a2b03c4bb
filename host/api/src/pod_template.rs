//! The users' Pod template: kept as they wrote it, with the schema of a Kubernetes Pod template.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

pub use ipu_pod_template::{canonical, fill_nulls};

/// A Pod template as the API server stores it inside a custom resource.
///
/// It stays JSON because the API server does not normalise it: a quantity that the user wrote as a
/// number (`rdma/rdma_shared_device_a: 1`) stays a number, and a template that Kubernetes itself
/// would refuse can stand in an object that is otherwise fine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PodTemplate(pub Value);

/// Error of a Pod template that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("failed to read {field}: {reason}")]
pub struct PodTemplateError {
    /// Path within the template, such as `spec.containers[0].image`; `.` is the template itself.
    pub field: String,
    /// The found and the expected content.
    pub reason: String,
}

impl PodTemplate {
    /// The template as Kubernetes reads it: quantities that are numbers become strings, and null in
    /// a map an empty string.
    pub fn parse(&self) -> Result<PodTemplateSpec, PodTemplateError> {
        let mut template = self.0.clone();
        fill_nulls(&mut template);
        serde_path_to_error::deserialize(&template).map_err(|error| PodTemplateError {
            field: error.path().to_string(),
            reason: error.inner().to_string(),
        })
    }
}

impl JsonSchema for PodTemplate {
    fn schema_name() -> Cow<'static, str> {
        "PodTemplate".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        PodTemplateSpec::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_may_be_numbers() {
        let template = PodTemplate(json!({"spec": {"containers": [{
            "name": "a",
            "resources": {"limits": {"rdma/rdma_shared_device_a": 1, "cpu": 0.5, "memory": "1Gi"}},
        }]}}));
        let parsed = template.parse().unwrap();
        let limits = parsed.spec.unwrap().containers[0]
            .resources
            .clone()
            .unwrap()
            .limits
            .unwrap();
        assert_eq!(limits["rdma/rdma_shared_device_a"].0, "1");
        assert_eq!(limits["cpu"].0, "0.5");
        assert_eq!(limits["memory"].0, "1Gi");
    }

    #[test]
    fn null_in_maps_and_lists_is_empty() {
        let template = PodTemplate(json!({
            "metadata": {"labels": {"version": null}},
            "spec": {"containers": [{
                "name": "a", "args": [null], "resources": {"limits": {"cpu": null}},
            }]},
        }));
        let parsed = template.parse().unwrap();
        let labels = parsed.metadata.unwrap().labels.unwrap();
        assert_eq!(labels["version"], "");
        let container = parsed.spec.unwrap().containers.remove(0);
        assert_eq!(container.args, Some(vec![String::new()]));
        assert_eq!(container.resources.unwrap().limits, Some([].into()));
    }

    #[test]
    fn an_error_names_the_place() {
        for (template, field) in [
            (
                json!({"spec": {"containers": [{"name": "a"}, {"name": "b", "image": 7}]}}),
                "spec.containers[1].image",
            ),
            (
                json!({"spec": {"containers": [{"name": "a", "env": "X=1"}]}}),
                "spec.containers[0].env",
            ),
            (
                json!({"metadata": {"labels": {"a": 1}}}),
                "metadata.labels.a",
            ),
            (json!(null), "."),
            (json!("a Pod"), "."),
        ] {
            let error = PodTemplate(template).parse().unwrap_err();
            assert_eq!(error.field, field, "{error}");
        }
    }
}
