//! What a stolen token of `ipu-node` can change. The API server enforces it.

use cluster::wait::{Seen, eventually};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::{LABEL, Release, label, report};

/// A patch of the status, as `ipu-node` writes it.
fn of_status(type_: &str) -> Value {
    json!({"status": {"conditions": [{"type": type_, "status": "False", "reason": "Stolen"}]}})
}

/// Patches that a stolen token is refused, with the words of the refusal.
fn refused() -> Vec<(&'static str, Value, &'static str)> {
    let metadata = |metadata: Value| json!({"metadata": metadata});
    let own = "may change the Node of its own Pod only";
    vec![
        ("node-b", of_status("graphcore.ai/IPUReady"), own),
        (
            "node-b",
            metadata(json!({"labels": {"graphcore.ai/ipu-ready": "false"}})),
            own,
        ),
        (
            "node-a",
            of_status("Ready"),
            "may change graphcore.ai/IPUReady only",
        ),
        (
            "node-a",
            metadata(json!({"labels": {"zone": "a"}})),
            "may change graphcore.ai/ipu-ready only",
        ),
        (
            "node-a",
            metadata(json!({"labels": {LABEL: null}})),
            "may change graphcore.ai/ipu-ready only",
        ),
        (
            "node-a",
            metadata(json!({"labels": {"graphcore.ai/ipu-ready": "maybe"}})),
            "to true or false",
        ),
        (
            "node-a",
            metadata(json!({"annotations": {"other": "a"}})),
            "may change graphcore.ai/ipu-checks only",
        ),
        (
            "node-a",
            metadata(json!({"finalizers": ["example.com/keep"]})),
            "may change the status, a label and an annotation",
        ),
        (
            "node-a",
            json!({"status": {"capacity": {"cpu": "64"}}}),
            "may change conditions only",
        ),
        (
            "node-a",
            json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.6.6.6"}]}}),
            "may change conditions only",
        ),
    ]
}

#[tokio::test]
async fn a_stolen_token_changes_nothing_but_the_results_of_its_own_node() {
    let release = Release::new("node-token").await;
    let stolen: Api<Node> = Api::all(release.with_token(Some("node-a")).await);
    let patched = async |nodes: &Api<Node>, node: &str, patch: &Value, dry_run: bool| {
        let params = PatchParams {
            dry_run,
            ..PatchParams::default()
        };
        let patched = nodes
            .patch_status(node, &params, &Patch::Strategic(patch))
            .await;
        patched.err().map(|error| error.to_string())
    };
    // An API server follows a new policy with a short delay.
    eventually("the policy is evaluated", async || {
        let refusal = patched(&stolen, "node-a", &of_status("Ready"), true).await;
        Seen::when(refusal, Option::is_some)
    })
    .await;
    for (node, patch, words) in refused() {
        let refusal = patched(&stolen, node, &patch, false).await;
        let refusal = refusal.unwrap_or_else(|| panic!("{node}: {patch} is accepted"));
        assert!(refusal.contains(words), "{node}: {patch}: {refusal}");
    }
    let mut own = of_status("graphcore.ai/IPUReady");
    own["metadata"]["labels"]["graphcore.ai/ipu-ready"] = json!("false");
    own["metadata"]["annotations"]["graphcore.ai/ipu-checks"] = json!("[]");
    assert_eq!(patched(&stolen, "node-a", &own, false).await, None);
    let unbound: Api<Node> = Api::all(release.with_token(None).await);
    let refusal = patched(
        &unbound,
        "node-a",
        &of_status("graphcore.ai/IPUReady"),
        false,
    )
    .await;
    assert!(refusal.unwrap().contains("with the token of that Pod"));
    // The spec, with its taints, belongs to no right of the account.
    let spec = json!({"spec": {"unschedulable": true}});
    let spec = stolen
        .patch("node-a", &PatchParams::default(), &Patch::Merge(&spec))
        .await;
    assert!(spec.unwrap_err().to_string().contains("forbidden"));
    let node = release.nodes().get("node-a").await.unwrap();
    assert_eq!(
        (label(&node), &report(&node)["reason"]),
        (Some("false"), &json!("Stolen"))
    );
}
