//! Pure: the contents of a support bundle, and where they are read.

use form_urlencoded::Serializer;
use serde_json::Value;

use ipu_api::labels;

use super::SupportOptions;

/// Maximum number of objects of one list.
const OBJECTS: u32 = 500;

/// Folder of the logs in the bundle.
pub(super) const LOGS: &str = "logs/";

/// Selects the objects of the chart.
const OPERATORS: &str = "app.kubernetes.io/part-of=ipu-operator";

/// Redaction of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Objects, redacted.
    Objects,
    /// Of a CustomResourceDefinition: names, versions and conditions.
    Definition,
    /// Of nodes: labels, taints, conditions and versions.
    Nodes,
    /// A text, redacted.
    Text,
}

/// One read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Read {
    /// Name of the file in the bundle.
    pub file: String,
    /// Path and query at the API server.
    pub path: String,
    /// Redaction of the answer.
    pub form: Form,
}

impl Read {
    fn new(file: impl Into<String>, path: String, form: Form) -> Self {
        let file = file.into();
        Self { file, path, form }
    }

    fn objects(file: &str, path: String) -> Self {
        Self::new(format!("{file}.yaml"), path, Form::Objects)
    }
}

/// The kinds of the operator.
const PLURALS: [&str; 5] = [
    "ipujobs",
    "ipupartitions",
    "ipupolicies",
    "vipucontrollers",
    "ipuaccountings",
];

/// All reads that do not depend on the list of Pods.
pub(super) fn reads(target: &SupportOptions) -> Vec<Read> {
    let SupportOptions {
        namespace,
        fullname,
        tracker,
        ..
    } = target;
    let core = format!("/api/v1/namespaces/{namespace}");
    let mut reads = vec![Read::new(
        "api-server.txt",
        "/version".to_owned(),
        Form::Text,
    )];
    for plural in PLURALS {
        let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let definition = format!("{definition}/{plural}.graphcore.ai");
        let file = format!("definitions/{plural}.yaml");
        reads.push(Read::new(file, definition, Form::Definition));
        let objects = list(&format!("/apis/graphcore.ai/v1alpha1/{plural}"), &[]);
        reads.push(Read::objects(plural, objects));
    }
    for kind in ["IPUJob", "IPUPartition", "IPUPolicy"] {
        let about = format!("involvedObject.kind={kind}");
        let events = list("/api/v1/events", &[("fieldSelector", &about)]);
        reads.push(Read::objects(&format!("events/{kind}"), events));
    }
    let release = list(&format!("{core}/events"), &[]);
    reads.push(Read::objects("events/release", release));
    let jobs = list("/api/v1/pods", &[("labelSelector", labels::JOB_NAME_LABEL)]);
    reads.push(Read::objects("pods-of-jobs", jobs));
    reads.push(Read::objects("pods-of-operator", pods(target)));
    let apps = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    let deployments = list(&apps, &[("labelSelector", OPERATORS)]);
    reads.push(Read::objects("deployments", deployments));
    for name in [
        &format!("{fullname}-vipu-controllers"),
        &format!("{fullname}-log-level"),
        tracker,
    ] {
        let path = format!("{core}/configmaps/{name}");
        reads.push(Read::objects(&format!("configmaps/{name}"), path));
    }
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    reads.push(Read::objects("leases", list(&leases, &[])));
    for kind in ["mutating", "validating"] {
        let kind = format!("{kind}webhookconfigurations");
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}");
        // Those of other releases too, because their namespaces may conflict.
        let selector = [("labelSelector", OPERATORS)];
        reads.push(Read::objects(&kind, list(&path, &selector)));
    }
    let nodes = list("/api/v1/nodes", &[]);
    reads.push(Read::new("nodes.yaml", nodes, Form::Nodes));
    // The API server forwards these to the proxy's port without TLS, which requires no token.
    for said in ["health", "stats", "controllers"] {
        let path = format!("{core}/services/{fullname}-vipu-proxy:http/proxy/{said}");
        reads.push(Read::new(format!("proxy/{said}.txt"), path, Form::Text));
    }
    reads
}

/// Path of the list of the operator's own Pods.
pub(super) fn pods(target: &SupportOptions) -> String {
    let path = format!("/api/v1/namespaces/{}/pods", target.namespace);
    list(&path, &[("labelSelector", OPERATORS)])
}

/// The logs of every container in a list of Pods, and of its previous container, if there was one.
pub(super) fn logs(target: &SupportOptions, pods: &Value) -> Vec<Read> {
    let mut reads = Vec::new();
    for pod in items(pods) {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let containers = pod["status"]["containerStatuses"].as_array();
        for container in containers.into_iter().flatten() {
            let of = container["name"].as_str().unwrap_or_default();
            let log = |previous: bool| log(target, name, of, previous);
            reads.push(log(false));
            if container["restartCount"].as_u64().unwrap_or_default() > 0 {
                reads.push(log(true));
            }
        }
    }
    reads
}

/// A metrics port of one of the operator's Pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MetricsPort {
    /// Name of the Pod.
    pub pod: String,
    /// The port.
    pub port: u16,
}

impl MetricsPort {
    /// File of the metrics in the bundle.
    pub(super) fn read(&self) -> Read {
        let file = format!("metrics/{}.txt", self.pod);
        Read::new(file, "/metrics".to_owned(), Form::Text)
    }
}

/// The metrics ports in a list of Pods. The controller has a separate port; the proxy serves the
/// metrics on its REST port.
pub(super) fn metrics(pods: &Value) -> Vec<MetricsPort> {
    let mut found = Vec::new();
    for pod in items(pods) {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let ports = containers.filter_map(|container| container["ports"].as_array());
        let port = ports.flatten().find_map(|port| {
            let is_one = matches!(port["name"].as_str(), Some("metrics" | "https"));
            let number = port["containerPort"].as_u64().filter(|_| is_one)?;
            u16::try_from(number).ok()
        });
        found.extend(port.map(|port| MetricsPort {
            pod: name.to_owned(),
            port,
        }));
    }
    found
}

/// The objects of a list, or the single object.
pub(super) fn items(answer: &Value) -> &[Value] {
    let items = answer["items"].as_array();
    items.map_or_else(|| std::slice::from_ref(answer), Vec::as_slice)
}

fn log(target: &SupportOptions, pod: &str, container: &str, previous: bool) -> Read {
    let mut query = Serializer::new(String::new());
    query.append_pair("container", container);
    query.append_pair("tailLines", &target.log_lines.to_string());
    query.append_pair("timestamps", "true");
    if previous {
        query.append_pair("previous", "true");
    }
    let suffix = if previous { "-previous" } else { "" };
    Read::new(
        format!("{LOGS}{pod}-{container}{suffix}.log"),
        format!(
            "/api/v1/namespaces/{}/pods/{pod}/log?{}",
            target.namespace,
            query.finish()
        ),
        Form::Text,
    )
}

fn list(path: &str, selectors: &[(&str, &str)]) -> String {
    let mut query = Serializer::new(String::new());
    query.append_pair("limit", &OBJECTS.to_string());
    query.extend_pairs(selectors);
    format!("{path}?{}", query.finish())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn target() -> SupportOptions {
        SupportOptions {
            namespace: "ipu".to_owned(),
            fullname: "ipus".to_owned(),
            tracker: "tracker".to_owned(),
            output: "bundle".into(),
            log_lines: 100,
            metrics_token: None,
        }
    }

    #[test]
    fn no_secret_is_read_and_every_list_has_an_end() {
        let reads = reads(&target());
        for read in &reads {
            assert!(!read.path.contains("secrets"), "{}", read.path);
        }
        let paths: Vec<_> = reads.iter().map(|read| read.path.as_str()).collect();
        insta::assert_snapshot!(paths.join("\n"));
    }

    #[test]
    fn a_container_that_was_started_again_has_two_logs() {
        let status = |name: &str, restarts: u32| json!({"name": name, "restartCount": restarts});
        let pods = json!({"items": [{
            "metadata": {"name": "controller-1"},
            "status": {"containerStatuses": [status("main", 2), status("side", 0)]},
        }]});
        let reads = logs(&target(), &pods);
        let files: Vec<_> = reads.iter().map(|read| read.file.as_str()).collect();
        assert_eq!(
            files,
            [
                "logs/controller-1-main.log",
                "logs/controller-1-main-previous.log",
                "logs/controller-1-side.log",
            ]
        );
        assert!(reads[1].path.contains("previous=true"));
    }
}
