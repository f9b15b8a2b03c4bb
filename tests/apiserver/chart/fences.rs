//! What the operator's accounts may write into the status of nodes and Pods. The API server
//! enforces it.

use cluster::wait::{Seen, eventually};
use serde_json::{Value, json};

use super::admin::Admin;

/// Applies the status of an object as an account. Returns the refusal.
fn apply(admin: &Admin, process: &str, object: &Value) -> Option<String> {
    apply_with(admin, process, object, &[])
}

fn apply_with(admin: &Admin, process: &str, object: &Value, options: &[&str]) -> Option<String> {
    let file = admin.file("status.json", &object.to_string());
    let account = admin.account(process);
    let apply = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=a-test",
        "--subresource=status",
        "--validate=false",
        &account,
        "--filename",
        &file,
    ];
    let applied = admin.kubectl(&[&apply, options].concat());
    applied.err().map(|error| error.to_string())
}

/// Creates an object and then its status, as a kubelet does.
fn create(admin: &Admin, object: &Value) {
    let file = admin.file("object.json", &object.to_string());
    let server_side = ["apply", "--server-side", "--filename", &file];
    admin.kubectl(&server_side).unwrap();
    let status = [&server_side[..], &["--subresource=status"]].concat();
    admin.kubectl(&status).unwrap();
}

/// Expects that an account may write one status, and that others are refused with these words.
async fn check(
    admin: &Admin,
    process: &str,
    object: impl Fn(&Value) -> Value,
    allowed: &[Value],
    refused: &[(Value, &str)],
) {
    // An API server follows a new policy with a short delay. Nothing may be stored before: it would
    // be no change afterwards.
    let first = object(&refused[0].0);
    eventually("the policy is evaluated", async || {
        let refusal = apply_with(admin, process, &first, &["--dry-run=server"]);
        Seen::when(refusal, Option::is_some)
    })
    .await;
    for change in allowed {
        let refusal = apply(admin, process, &object(change));
        assert_eq!(refusal, None, "{change}");
    }
    for (change, words) in refused {
        let refusal = apply(admin, process, &object(change));
        let refusal = refusal.unwrap_or_else(|| panic!("{change} is accepted"));
        assert!(refusal.contains(words), "{change}: {refusal}");
    }
}

#[tokio::test]
async fn the_proxy_changes_the_ipus_of_nodes_and_nothing_else() {
    let admin = Admin::new("chart-node-fence").await;
    admin.helm_upgrade(&[]);
    let node = |change: &Value| {
        let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "fenced"}});
        json_patch::merge(&mut node, change);
        node
    };
    create(
        &admin,
        &node(&json!({"status": {
            "capacity": {"cpu": "4"},
            "allocatable": {"cpu": "4"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "conditions": [{"type": "Ready", "status": "True"}],
            "images": [{"names": ["image"], "sizeBytes": 5}],
        }})),
    );
    let ipus = |field: &str| json!({"status": {field: {"graphcore.ai/ipu": "16"}}});
    let field = "may change capacity and allocatable only";
    let resource = "may change the resource graphcore.ai/ipu only";
    check(
        &admin,
        "vipu-proxy",
        node,
        // Without a field, the API server removes what was applied before.
        &[ipus("capacity"), ipus("allocatable"), json!({"status": {}})],
        &[
            (
                json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.6.6.6"}]}}),
                field,
            ),
            (
                json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}}),
                field,
            ),
            (
                json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
                field,
            ),
            (json!({"status": {"phase": "Running"}}), field),
            (json!({"status": {"capacity": {"cpu": "8"}}}), resource),
            (
                json!({"status": {"allocatable": {"a.io/b": "8"}}}),
                resource,
            ),
            (
                json!({"metadata": {"labels": {"zone": "a"}}}),
                "may change the status of nodes only",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn the_controller_changes_its_conditions_of_pods_and_nothing_else() {
    let admin = Admin::new("chart-pod-fence").await;
    admin.helm_upgrade(&[]);
    let pod = |change: &Value| {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "fenced", "namespace": admin.name},
        });
        json_patch::merge(&mut pod, change);
        pod
    };
    let condition = |kind: &str, status: &str| {
        let time = "2026-01-01T12:00:00Z";
        let condition = json!({"type": kind, "status": status, "lastTransitionTime": time});
        json!({"status": {"conditions": [condition]}})
    };
    let mut object = pod(&condition("Ready", "False"));
    object["status"]["podIP"] = json!("10.0.0.5");
    object["status"]["podIPs"] = json!([{"ip": "10.0.0.5"}]);
    object["spec"] = json!({
        "containers": [{"name": "main", "image": "image"}],
        "automountServiceAccountToken": false,
    });
    create(&admin, &object);
    let conditions = "may change graphcore.ai/PartitionReady and DisruptionTarget only";
    let field = "may change conditions only";
    check(
        &admin,
        "controller-manager",
        pod,
        &[
            condition("graphcore.ai/PartitionReady", "False"),
            condition("DisruptionTarget", "True"),
            json!({"status": {}}),
        ],
        &[
            (condition("Ready", "True"), conditions),
            (condition("example.com/Mine", "True"), conditions),
            (json!({"status": {"phase": "Succeeded"}}), field),
            (
                json!({"status": {"podIP": "10.6.6.6", "podIPs": [{"ip": "10.6.6.6"}]}}),
                field,
            ),
            (
                json!({"metadata": {"labels": {"app": "other"}}}),
                "may change the status of pods only",
            ),
        ],
    )
    .await;
}
