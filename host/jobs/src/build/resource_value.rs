//! Pure: the value of a `resourceFieldRef`, as the kubelet computes it from the resources of a container.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Suffixes of quantities: their power of ten, and their power of two.
const SUFFIXES: [(&str, i32, u32); 16] = [
    ("n", -9, 0),
    ("u", -6, 0),
    ("m", -3, 0),
    ("", 0, 0),
    ("k", 3, 0),
    ("M", 6, 0),
    ("G", 9, 0),
    ("T", 12, 0),
    ("P", 15, 0),
    ("E", 18, 0),
    ("Ki", 0, 10),
    ("Mi", 0, 20),
    ("Gi", 0, 30),
    ("Ti", 0, 40),
    ("Pi", 0, 50),
    ("Ei", 0, 60),
];

/// Returns the value of a reference to a container of a template. `None`: only the kubelet knows it, because it is a
/// limit that the container does not have, and that is the capacity of the node.
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
    // The kubelet rounds CPUs to thousandths, and other resources to whole numbers, before it divides.
    let places = if resource == "cpu" { 3 } else { 0 };
    let divisor = scaled(divisor, places)?;
    let divisor = match divisor {
        0 => scaled("1", places)?,
        divisor => divisor,
    };
    Some(scaled(&quantity, places)?.div_ceil(divisor).to_string())
}

/// Returns a quantity times ten to the power of `places`, rounded up. `None`: it is negative, too large, or no
/// quantity.
fn scaled(quantity: &str, places: i32) -> Option<u128> {
    let end = quantity.find(|character: char| !character.is_ascii_digit() && character != '.');
    let (number, suffix) = quantity.split_at(end.unwrap_or(quantity.len()));
    let (units, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: u128 = format!("{units}{fraction}").parse().ok()?;
    let known = SUFFIXES.iter().find(|(name, ..)| *name == suffix);
    let (ten, two) = match known {
        Some((_, ten, two)) => (*ten, *two),
        None => (suffix.strip_prefix(['e', 'E'])?.parse().ok()?, 0),
    };
    let exponent = places + ten - i32::try_from(fraction.len()).ok()?;
    let value = digits.checked_mul(1 << two)?;
    let power = 10_u128.checked_pow(exponent.unsigned_abs())?;
    if exponent < 0 {
        Some(value.div_ceil(power))
    } else {
        value.checked_mul(power)
    }
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
