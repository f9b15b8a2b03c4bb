//! Pure: the value of a `resourceFieldRef`, as the kubelet computes it from the resources of a
//! container.

use std::collections::BTreeMap;

use ipu_api::quantity::scaled;
use k8s_openapi::api::core::v1::{Container, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Returns the value of a reference to a container of a template. `None`: only the kubelet knows
/// it, because it is a limit that the container does not have, and that is the capacity of the
/// node.
pub fn value(container: &Container, reference: &ResourceFieldSelector) -> Option<String> {
    let (kind, resource) = reference.resource.split_once('.')?;
    let resources = container.resources.as_ref();
    let of = |list: Option<&BTreeMap<String, Quantity>>| Some(list?.get(resource)?.0.clone());
    let limit = of(resources.and_then(|resources| resources.limits.as_ref()));
    let quantity = match kind {
        "limits" => limit?,
        // The API server copies the limit into a missing request.
        "requests" => of(resources.and_then(|resources| resources.requests.as_ref()))
            .or(limit)
            .unwrap_or_else(|| "0".to_owned()),
        _ => return None,
    };
    let divisor = reference.divisor.as_ref().map_or("1", |divisor| &divisor.0);
    // The kubelet rounds CPUs to thousandths, and other resources to whole numbers, before it
    // divides.
    let places = if resource == "cpu" { 3 } else { 0 };
    let divisor = scaled(divisor, places)?;
    let divisor = match divisor {
        0 => scaled("1", places)?,
        divisor => divisor,
    };
    Some(scaled(&quantity, places)?.div_ceil(divisor).to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(resources: &serde_json::Value, resource: &str, divisor: Option<&str>) -> Option<String> {
        let container = json!({"name": "main", "resources": resources});
        let container: Container = serde_json::from_value(container).unwrap();
        let reference = ResourceFieldSelector {
            container_name: None,
            divisor: divisor.map(|divisor| Quantity(divisor.to_owned())),
            resource: resource.to_owned(),
        };
        value(&container, &reference)
    }

    #[test]
    fn values_are_those_of_the_kubelet() {
        let resources = json!({
            "limits": {"cpu": "2", "memory": "1.5Gi", "ephemeral-storage": "1e3"},
            "requests": {"cpu": "0.5", "memory": "1G"},
        });
        for (resource, divisor, expected) in [
            ("limits.cpu", None, "2"),
            ("limits.cpu", Some("0"), "2"),
            ("limits.cpu", Some("1m"), "2000"),
            ("requests.cpu", None, "1"),
            ("requests.cpu", Some("1m"), "500"),
            ("limits.memory", None, "1610612736"),
            ("limits.memory", Some("1Mi"), "1536"),
            ("limits.memory", Some("1Gi"), "2"),
            ("requests.memory", Some("1M"), "1000"),
            ("requests.ephemeral-storage", None, "1000"),
        ] {
            let found = of(&resources, resource, divisor);
            assert_eq!(found.as_deref(), Some(expected), "{resource} {divisor:?}");
        }
    }

    #[test]
    fn a_missing_limit_is_known_to_the_kubelet_only() {
        let requests = json!({"requests": {"cpu": "500m"}});
        assert_eq!(of(&requests, "limits.cpu", None), None);
        assert_eq!(of(&json!({}), "limits.memory", None), None);
        assert_eq!(of(&json!({}), "requests.cpu", None).as_deref(), Some("0"));
        let limits = json!({"limits": {"cpu": "3"}});
        assert_eq!(of(&limits, "requests.cpu", None).as_deref(), Some("3"));
    }

    #[test]
    fn a_text_that_is_no_quantity_has_no_value() {
        for text in ["", "two", "1x", "-1", "1.2.3", "1e99", "9e999999"] {
            assert_eq!(
                of(&json!({"limits": {"cpu": text}}), "limits.cpu", None),
                None,
                "{text}"
            );
        }
    }
}
