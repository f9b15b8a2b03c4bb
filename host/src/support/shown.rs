//! Pure: redacts objects for a support bundle: values of environment variables, other possible
//! secrets, and irrelevant fields.

use ipu_text::redaction::{LAST_APPLIED, Values};
use serde_json::{Map, Value, json};

use super::plan::{Form, items};
use super::scrub::{is_secret, scrubbed};

/// Prefixes of the variables that the operator itself sets. They are not secret, and help to find a
/// fault.
pub(super) const OURS: &[&str] = &["IPUOF_VIPU_API_", "POPDIST_"];

/// Suffixes of the domains whose annotations are shown. Other annotations may contain secrets.
const DOMAINS: [&str; 4] = ["graphcore.ai", "kubernetes.io", "k8s.io", "helm.sh"];

/// Annotation of Multus with the networks of a Pod.
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

/// Redacts an answer of the API server. Redacted values are recorded in `values`.
pub(super) fn shown(form: Form, answer: Value, values: &mut Values) -> Value {
    let mut answer = match form {
        Form::Definition => definition(&answer),
        Form::Nodes => Value::Array(items(&answer).iter().map(node).collect()),
        Form::Objects | Form::Text => answer,
    };
    values.redact_object(&mut answer);
    hide(&mut answer, values);
    answer
}

/// Redacts the recorded values, and everything that looks like a credential, in every text of an
/// answer.
pub(super) fn redact_texts(answer: &mut Value, redact: &impl Fn(&str) -> String) {
    match answer {
        Value::String(text) => *text = scrubbed(&redact(text)),
        Value::Array(items) => items.iter_mut().for_each(|item| redact_texts(item, redact)),
        Value::Object(fields) => fields
            .values_mut()
            .for_each(|field| redact_texts(field, redact)),
        _ => {}
    }
}

fn hide(value: &mut Value, values: &mut Values) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| hide(item, values)),
        Value::Object(fields) => {
            fields.remove("managedFields");
            for (key, field) in fields {
                match (key.as_str(), field) {
                    ("annotations", Value::Object(annotations)) => {
                        hide_annotations(annotations, values);
                    }
                    ("settings" | "volumeAttributes", texts) => hide_texts(texts, values),
                    ("httpHeaders", Value::Array(headers)) => hide_headers(headers, values),
                    ("command" | "args", Value::Array(words)) => hide_options(words, values),
                    ("caBundle", bundle) => {
                        let length = bundle.as_str().map_or(0, str::len);
                        *bundle = json!(format!("({length} characters)"));
                    }
                    (_, field) => hide(field, values),
                }
            }
        }
        _ => {}
    }
}

fn hide_annotations(annotations: &mut Map<String, Value>, values: &mut Values) {
    annotations.remove(LAST_APPLIED);
    for (name, value) in annotations {
        let domain = name.split('/').next().unwrap_or_default();
        let of = |end: &str| domain == end || domain.ends_with(&format!(".{end}"));
        if name != NETWORKS && !DOMAINS.iter().any(|end| of(end)) {
            hide_texts(value, values);
        }
    }
}

fn hide_texts(value: &mut Value, values: &mut Values) {
    match value {
        Value::String(text) => *text = values.placeholder(text),
        Value::Array(items) => items.iter_mut().for_each(|item| hide_texts(item, values)),
        Value::Object(fields) => fields.values_mut().for_each(|one| hide_texts(one, values)),
        _ => {}
    }
}

fn hide_headers(headers: &mut [Value], values: &mut Values) {
    let found = headers.iter_mut().filter_map(|one| one.get_mut("value"));
    found.for_each(|value| hide_texts(value, values));
}

/// Redacts the word after an option with a name like a secret. `scrubbed` redacts `--name=value`.
fn hide_options(words: &mut [Value], values: &mut Values) {
    let mut hides = false;
    for word in words {
        let Value::String(text) = word else {
            continue;
        };
        if hides {
            *text = values.placeholder(text);
            hides = false;
        } else {
            hides = text.starts_with('-') && !text.contains('=') && is_secret(text);
        }
    }
}

fn definition(answer: &Value) -> Value {
    let versions = answer["spec"]["versions"].as_array();
    let version = |version: &Value| json!({"name": version["name"], "served": version["served"], "storage": version["storage"]});
    let versions: Vec<_> = versions.into_iter().flatten().map(version).collect();
    json!({
        "name": answer["metadata"]["name"],
        "created": answer["metadata"]["creationTimestamp"],
        "versions": versions,
        "storedVersions": answer["status"]["storedVersions"],
        "conditions": answer["status"]["conditions"],
    })
}

fn node(node: &Value) -> Value {
    json!({
        "name": node["metadata"]["name"],
        "labels": node["metadata"]["labels"],
        "unschedulable": node["spec"]["unschedulable"],
        "taints": node["spec"]["taints"],
        "conditions": node["status"]["conditions"],
        "allocatable": node["status"]["allocatable"],
        "nodeInfo": node["status"]["nodeInfo"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "hunter2-hunter2";

    #[test]
    fn a_job_is_shown_without_what_may_be_secret() {
        let env = json!([
            {"name": "TOKEN", "value": SECRET},
            {"name": "IPUOF_VIPU_API_PARTITION_ID", "value": "p-job"},
            {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ]);
        let container = json!({
            "name": "main",
            "env": env,
            "command": ["train", "--password", SECRET, "--api-key=abc123", "--epochs", "3"],
            "args": [format!("http://user:{SECRET}@data.example.com/set")],
            "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Key", "value": "in-a-header"}]}},
        });
        let mut job = json!({
            "kind": "IPUJob",
            "metadata": {
                "name": "job",
                "managedFields": [{"manager": "kubectl"}],
                "annotations": {
                    "graphcore.ai/relocatable": "true",
                    "example.com/vault": SECRET,
                    "k8s.v1.cni.cncf.io/networks": "rdma-net",
                },
            },
            "spec": {"workers": {"template": {"spec": {"containers": [container]}}}},
            "status": {"lastMessage": format!("exit 1: {SECRET} was refused")},
        });
        let applied = job.to_string();
        job["metadata"]["annotations"][LAST_APPLIED] = json!(applied);
        let mut values = Values::with_exempt(OURS);
        let mut job = shown(Form::Objects, job, &mut values);
        redact_texts(&mut job, &|text| values.redact(text));
        assert!(!job.to_string().contains(SECRET), "{job}");
        insta::assert_yaml_snapshot!(job);
    }

    #[test]
    fn policies_webhooks_definitions_and_nodes_are_cut_to_what_says_something() {
        let mut values = Values::with_exempt(OURS);
        let mut show = |form, answer| shown(form, answer, &mut values);
        let shown = [
            show(
                Form::Objects,
                json!({"spec": {"settings": {"limit": 3, "key": SECRET}}}),
            ),
            show(
                Form::Objects,
                json!({"webhooks": [{"clientConfig": {"caBundle": "AAAA"}}]}),
            ),
            show(
                Form::Definition,
                json!({
                    "metadata": {"name": "ipujobs.graphcore.ai"},
                    "spec": {"versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {}}]},
                    "status": {"storedVersions": ["v1alpha1"]},
                }),
            ),
            show(
                Form::Nodes,
                json!({"items": [{
                    "metadata": {"name": "node", "labels": {"ipunode": "pod1"}, "annotations": {"a": SECRET}},
                    "status": {"images": ["many"]},
                }]}),
            ),
        ];
        insta::assert_yaml_snapshot!(shown);
    }
}
