//! Templates that mean the same and templates that do not, and the tables compared with the schema
//! of the API.

use ipu_api::crd;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::{Value, json};

use super::{QUANTITIES, canonical};
use crate::defaults::DEFAULTS;

/// A template with one container, changed by a merge.
fn template(container: &Value, spec: &Value) -> Value {
    let mut template = json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "main", "image": "a:1"}]},
    });
    merge(&mut template["spec"]["containers"][0], container);
    merge(&mut template["spec"], spec);
    template
}

fn merge(into: &mut Value, patch: &Value) {
    for (key, value) in patch.as_object().unwrap() {
        into[key] = value.clone();
    }
}

#[test]
fn values_are_compared_and_not_texts() {
    let same = [
        (
            json!({"resources": {"requests": {"cpu": "0.5", "memory": "2048Mi"}}}),
            json!({"resources": {"requests": {"memory": "2Gi", "cpu": "500m"}}}),
        ),
        (
            json!({"resources": {"requests": {"cpu": 0.5, "memory": 2e9}}}),
            json!({"resources": {"requests": {"cpu": "500m", "memory": "2G"}}}),
        ),
        (
            json!({"resources": {"limits": {"cpu": 1, "a/b": "1e3"}}}),
            json!({"resources": {"limits": {"cpu": "1000m", "a/b": "1k"}}}),
        ),
        (
            json!({"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1000m"}}}),
            json!({"resources": {"limits": {"cpu": "1"}}}),
        ),
        (
            json!({"resources": {}, "env": [], "securityContext": {}, "command": null}),
            json!({}),
        ),
        (
            json!({"imagePullPolicy": "IfNotPresent", "terminationMessagePolicy": "File"}),
            json!({}),
        ),
        (
            json!({"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1000m"}}}]}),
            json!({"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": 1}}}]}),
        ),
    ];
    for (one, other) in same {
        let (one, other) = (template(&one, &json!({})), template(&other, &json!({})));
        assert_eq!(canonical(&one), canonical(&other));
    }
}

#[test]
fn values_of_a_pod_are_compared_and_not_texts() {
    let same = [
        (
            json!({"terminationGracePeriodSeconds": 30, "affinity": {"podAffinity": {}}, "nodeSelector": null}),
            json!({}),
        ),
        (
            json!({"nodeSelector": {"zone": null}}),
            json!({"nodeSelector": {"zone": ""}}),
        ),
        (json!({"overhead": {"cpu": null}}), json!({})),
        (
            json!({"overhead": {"cpu": ".25"}, "tolerations": []}),
            json!({"overhead": {"cpu": "250m"}}),
        ),
        (
            json!({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1024Ki"}}]}),
            json!({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]}),
        ),
        (
            json!({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": 1.5}}]}),
            json!({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1500m"}}]}),
        ),
        (
            json!({"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {
            "metadata": {"creationTimestamp": null}, "spec": {"resources": {"requests": {"storage": "1024Gi"}}}}}}]}),
            json!({"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {
            "spec": {"resources": {"requests": {"storage": "1Ti"}}}}}}]}),
        ),
    ];
    for (one, other) in same {
        let (one, other) = (template(&json!({}), &one), template(&json!({}), &other));
        assert_eq!(canonical(&one), canonical(&other));
    }
}

#[test]
fn other_templates_have_another_form() {
    let changes = [
        template(&json!({"image": "a:2"}), &json!({})),
        template(
            &json!({"image": "a", "imagePullPolicy": "IfNotPresent"}),
            &json!({}),
        ),
        template(&json!({"imagePullPolicy": "Always"}), &json!({})),
        template(&json!({"resources": {"limits": {"cpu": "1"}}}), &json!({})),
        template(
            &json!({"resources": {"requests": {"cpu": "1"}}}),
            &json!({}),
        ),
        template(
            &json!({"resources": {"requests": {"cpu": "0"}, "limits": {"cpu": "1"}}}),
            &json!({}),
        ),
        template(
            &json!({}),
            &json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
        ),
        template(&json!({}), &json!({"volumes": [{"name": "v"}]})),
        template(&json!({}), &json!({"nodeSelector": {"divisor": "1.0"}})),
        template(&json!({}), &json!({"nodeSelector": {"divisor": "1"}})),
        template(
            &json!({}),
            &json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "a", "namespaceSelector": {}}]}}}),
        ),
        template(
            &json!({}),
            &json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "a"}]}}}),
        ),
        json!({"metadata": {"labels": {"app": "b"}}, "spec": {"containers": [{"name": "main", "image": "a:1"}]}}),
    ];
    let mut forms: Vec<String> = changes
        .iter()
        .map(|one| canonical(one).to_string())
        .collect();
    forms.push(canonical(&template(&json!({}), &json!({}))).to_string());
    let count = forms.len();
    forms.sort();
    forms.dedup();
    assert_eq!(forms.len(), count);
}

#[test]
fn metadata_that_clients_print_means_nothing() {
    let plain = template(&json!({}), &json!({}));
    let mut printed = plain.clone();
    printed["metadata"] = json!({
        "creationTimestamp": null, "name": "a", "labels": {"app": "a"}, "annotations": {}, "managedFields": [{}],
    });
    assert_eq!(canonical(&printed), canonical(&plain));
    assert_eq!(
        canonical(&plain),
        plain,
        "the form of a plain template is its text"
    );
}

#[test]
fn any_json_has_a_form() {
    for odd in [
        json!(null),
        json!(5),
        json!([]),
        json!({"spec": 1}),
        json!({"metadata": [], "spec": {"containers": {"a": 1}}}),
    ] {
        assert_eq!(canonical(&canonical(&odd)), canonical(&odd));
    }
}

/// The schema of the template in the definition of IPUJobs.
fn schema() -> JSONSchemaProps {
    let definition = crd::ipujob();
    let schema = definition.spec.versions[0].schema.clone().unwrap();
    let names = ["spec", "workers", "template", "spec"];
    names
        .iter()
        .fold(schema.open_api_v3_schema.unwrap(), |schema, name| {
            schema.properties.unwrap()[*name].clone()
        })
}

/// Calls `visit` with the path of each field, where `*` is any entry, and its schema.
fn fields(schema: &JSONSchemaProps, path: &str, visit: &mut impl FnMut(&str, &JSONSchemaProps)) {
    let mut child = |name: &str, child: &JSONSchemaProps| {
        let path = [path, name].join(if path.is_empty() { "" } else { "." });
        visit(&path, child);
        fields(child, &path, visit);
    };
    schema
        .properties
        .iter()
        .flatten()
        .for_each(|(name, schema)| child(name, schema));
    if let Some(JSONSchemaPropsOrBool::Schema(schema)) = &schema.additional_properties {
        child("*", schema);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(schema)) = &schema.items {
        child("*", schema);
    }
}

/// The paths that a path with alternatives stands for.
fn alternatives(path: &str) -> Vec<String> {
    let mut paths = vec![String::new()];
    for step in path.split('.') {
        let extended = paths.iter().flat_map(|path| {
            step.split('|')
                .map(move |name| [path, name].join(if path.is_empty() { "" } else { "." }))
        });
        paths = extended.collect();
    }
    paths
}

#[test]
fn the_quantities_are_those_of_the_api() {
    let mut of_api = Vec::new();
    fields(&schema(), "", &mut |path, schema| {
        // Only quantities have no type, because they are texts or numbers of any form.
        let is_untyped = schema.type_.is_none() && schema.x_kubernetes_int_or_string.is_none();
        if is_untyped {
            of_api.push(path.to_owned());
        }
    });
    let mut listed: Vec<String> = QUANTITIES
        .iter()
        .flat_map(|path| alternatives(path))
        .collect();
    of_api.sort();
    listed.sort();
    assert_eq!(listed, of_api);
}

#[test]
fn the_defaults_are_of_fields_of_the_api() {
    let mut of_api = Vec::new();
    fields(&schema(), "", &mut |path, _| of_api.push(path.to_owned()));
    for path in DEFAULTS.iter().flat_map(|(path, _)| alternatives(path)) {
        assert!(of_api.contains(&path), "{path}");
    }
}

/// A typed client of Kubernetes, such as Kueue, writes each quantity in its canonical form.
#[test]
fn a_template_keeps_its_form_when_a_typed_client_writes_it() {
    let with = |quantity: &str| {
        template(
            &json!({"resources": {"limits": {"cpu": quantity}, "requests": {"memory": quantity}}}),
            &json!({"overhead": {"cpu": quantity}}),
        )
    };
    let table = include_str!("../quantity/table.txt");
    for line in table.lines().filter(|line| !line.is_empty()) {
        let (text, written) = line.split_once(' ').unwrap();
        assert_eq!(canonical(&with(text)), canonical(&with(written)), "{line}");
    }
    assert_ne!(canonical(&with("0.5")), canonical(&with("501m")));
}
