//! Pure: replaces null in maps and lists by what Kubernetes reads there.
//!
//! Null in a field is a missing field. As a value of a map, or as an item of a list, it is an empty
//! text. A quantity that is null is missing, because the API server removes it from custom
//! resources.

use serde_json::Value;

/// Maps of texts in a template. Users choose their keys.
const TEXTS: [&str; 7] = [
    "annotations",
    "labels",
    "matchLabels",
    "nodeSelector",
    "options",
    "userAnnotations",
    "volumeAttributes",
];

/// Maps of quantities.
const QUANTITIES: [&str; 3] = ["limits", "overhead", "requests"];

/// Replaces null in the maps and lists of a template, or of a part of one.
pub fn fill_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                match field.as_object_mut() {
                    Some(map) if TEXTS.contains(&name.as_str()) => {
                        map.values_mut().for_each(fill);
                    }
                    Some(map) if QUANTITIES.contains(&name.as_str()) => {
                        map.retain(|_, quantity| !quantity.is_null());
                    }
                    Some(_) | None => fill_nulls(field),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                fill(item);
                fill_nulls(item);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn fill(value: &mut Value) {
    if value.is_null() {
        *value = Value::String(String::new());
    }
}

#[cfg(test)]
mod tests {
    use ipu_api::crd;
    use serde_json::json;

    use super::*;

    #[test]
    fn null_is_an_empty_text_in_maps_and_lists() {
        let mut template = json!({
            "metadata": {"labels": {"a": null, "limits": null, "b": "c"}, "annotations": null},
            "spec": {
                "nodeSelector": {"zone": null},
                "containers": [{
                    "args": ["-v", null], "env": null,
                    "resources": {"limits": {"cpu": null, "memory": 1}},
                }],
                "volumes": [{"name": "v", "csi": {"driver": null, "volumeAttributes": {"x": null}}}],
            },
        });
        fill_nulls(&mut template);
        let expected = json!({
            "metadata": {"labels": {"a": "", "limits": "", "b": "c"}, "annotations": null},
            "spec": {
                "nodeSelector": {"zone": ""},
                "containers": [{
                    "args": ["-v", ""], "env": null, "resources": {"limits": {"memory": 1}},
                }],
                "volumes": [{"name": "v", "csi": {"driver": null, "volumeAttributes": {"x": ""}}}],
            },
        });
        assert_eq!(template, expected);
    }

    /// Collects the names of fields with keys of the user's choice, by whether their values are
    /// texts.
    fn maps(schema: &Value, name: &str, texts: &mut Vec<String>, others: &mut Vec<String>) {
        let properties = schema["properties"].as_object().into_iter().flatten();
        for (name, child) in properties {
            maps(child, name, texts, others);
        }
        if schema["items"].is_object() {
            maps(&schema["items"], name, texts, others);
        }
        let values = &schema["additionalProperties"];
        if values.is_object() {
            let list = if values["type"] == "string" {
                texts
            } else {
                others
            };
            list.push(name.to_owned());
        }
    }

    #[test]
    fn the_maps_are_those_of_the_api() {
        let definition = json!(crd::ipujob());
        let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/workers/properties/template";
        let (mut texts, mut others) = (Vec::new(), Vec::new());
        maps(
            definition.pointer(path).unwrap(),
            "",
            &mut texts,
            &mut others,
        );
        for (mut found, listed) in [(texts, &TEXTS[..]), (others, &QUANTITIES[..])] {
            found.sort();
            found.dedup();
            assert_eq!(found, listed);
        }
    }
}
