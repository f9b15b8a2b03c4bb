//! The table of rules for the launcher has every field of the Kubernetes API, and users read the
//! same table.

use std::collections::BTreeSet;

use ipu_api::ipujob::IPUJob;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use kube::CustomResourceExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::build::launcher_rules::{CONTAINER, CONTAINER_SAME, Difference, POD, POD_SAME};

const DOCUMENT: &str = include_str!("../../../../examples/docs/launcher-fields.md");

/// Fields that the builder replaces or completes, beside those that it removes.
const COMPLETED: [&str; 7] = [
    "imagePullSecrets",
    "nodeSelector",
    "resourceClaims",
    "volumes",
    "env",
    "envFrom",
    "volumeMounts",
];

/// The schema of the Pod's spec in the CRD, which is that of the API.
fn pod_schema() -> Value {
    let crd = serde_json::to_value(IPUJob::crd()).unwrap();
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/workers/properties/template\
                /properties/spec";
    crd.pointer(path).unwrap().clone()
}

fn container_schema() -> Value {
    pod_schema()["properties"]["containers"]["items"].clone()
}

fn fields(schema: &Value) -> BTreeSet<&str> {
    let properties = schema["properties"].as_object().unwrap();
    properties.keys().map(String::as_str).collect()
}

fn rules<'a, T>(differences: &'a [Difference<T>], same: &'a [&str]) -> Vec<&'a str> {
    let differences = differences.iter().map(|difference| difference.field);
    differences.chain(same.iter().copied()).collect()
}

#[test]
fn every_field_of_the_api_has_one_rule() {
    for (schema, rules) in [
        (pod_schema(), rules(&POD, &POD_SAME)),
        (container_schema(), rules(&CONTAINER, &CONTAINER_SAME)),
    ] {
        let once: BTreeSet<&str> = rules.iter().copied().collect();
        assert_eq!(once.len(), rules.len(), "each has one rule");
        assert_eq!(once, fields(&schema), "left: the table; right: the API");
    }
}

/// Any value of the schema's type.
fn example(schema: &Value) -> Value {
    if schema["x-kubernetes-int-or-string"] == true {
        return json!("1");
    }
    match schema["type"].as_str() {
        Some("boolean") => json!(true),
        Some("integer") => json!(1),
        Some("string") => json!("a"),
        Some("array") => json!([example(&schema["items"])]),
        _ if schema["additionalProperties"].is_object() => {
            json!({"a": example(&schema["additionalProperties"])})
        }
        _ => {
            let required = schema["required"].as_array().into_iter().flatten();
            let required = required.filter_map(Value::as_str);
            required
                .map(|field| (field.to_owned(), example(&schema["properties"][field])))
                .collect()
        }
    }
}

/// Removes each field by its rule from a value that has all fields, and returns those that remain
/// as they were.
fn unchanged<T>(schema: &Value, differences: &[Difference<T>]) -> BTreeSet<String>
where
    T: DeserializeOwned + Serialize,
{
    let properties = schema["properties"].as_object().unwrap();
    let all: Value = properties
        .iter()
        .map(|(field, schema)| (field.clone(), example(schema)))
        .collect();
    let mut value: T = serde_json::from_value(all).unwrap();
    let before = serde_json::to_value(&value).unwrap();
    for difference in differences {
        (difference.remove)(&mut value);
    }
    let after = serde_json::to_value(&value).unwrap();
    let fields = before.as_object().unwrap().iter();
    let same = fields.filter(|(field, before)| after.get(field) == Some(before));
    same.map(|(field, _)| field.clone()).collect()
}

#[test]
fn each_rule_removes_its_field_and_no_other() {
    let of_pod = unchanged(&pod_schema(), &POD);
    let of_container = unchanged(&container_schema(), &CONTAINER);
    for (unchanged, same) in [(of_pod, &POD_SAME[..]), (of_container, &CONTAINER_SAME)] {
        let expected: BTreeSet<String> = same.iter().map(|field| (*field).to_owned()).collect();
        let completed = unchanged
            .iter()
            .filter(|field| COMPLETED.contains(&field.as_str()));
        let expected: BTreeSet<&String> = expected.iter().chain(completed).collect();
        // An init container of the example is no sidecar.
        let unchanged = unchanged.iter().filter(|field| *field != "initContainers");
        assert_eq!(unchanged.collect::<BTreeSet<_>>(), expected);
    }
}

/// A table as the document has it.
fn table<T>(differences: &[Difference<T>], same: &[&str]) -> String {
    let rows = differences
        .iter()
        .map(|difference| format!("| `{}` | {} |\n", difference.field, difference.instead));
    let same: Vec<String> = same.iter().map(|field| format!("`{field}`")).collect();
    let last = format!("| {} | that of the template |\n", same.join(", "));
    let head = "| field | value in the launcher |\n| --- | --- |\n".to_owned();
    std::iter::once(head).chain(rows).chain([last]).collect()
}

#[test]
fn users_read_the_same_table() {
    for table in [table(&POD, &POD_SAME), table(&CONTAINER, &CONTAINER_SAME)] {
        assert!(DOCUMENT.contains(&table), "the document lacks:\n{table}");
    }
}

/// The types of the rules are those of the API.
#[test]
fn an_empty_template_stays_empty() {
    let pod = crate::build::launcher_rules::pod(&PodSpec::default());
    let container = crate::build::launcher_rules::container(&Container::default());
    assert_eq!((pod, container), (PodSpec::default(), Container::default()));
}
