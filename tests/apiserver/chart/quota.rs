//! The Pod of `helm test` in a namespace with a quota for CPU and memory.

use cluster::wait::{Seen, eventually};
use serde_json::{Value, json};

use super::admin::{Admin, KUBERNETES};
use super::pod_of;

#[tokio::test]
async fn the_verify_pod_fits_a_namespace_with_a_quota() {
    let admin = Admin::new("chart-quota").await;
    bound(&admin);
    let template = ["template", admin.name, admin.chart(), KUBERNETES];
    let show = ["--show-only=templates/verify.yaml"];
    let rendered = admin.helm(&[&template[..], &show].concat()).unwrap();
    let pod = pod_of(&rendered);
    let mut bare = pod.clone();
    bare["spec"]["containers"][0]
        .as_object_mut()
        .unwrap()
        .remove("resources");
    // The API server follows quotas with a short delay.
    eventually("a Pod without resources is refused", async || {
        let refusal = refusal(&admin, &bare).unwrap_or_default();
        Seen::when(refusal, |text| text.contains("must specify limits.cpu"))
    })
    .await;
    assert_eq!(refusal(&admin, &pod), None);
}

/// Creates the quota, with the status that its controller would write.
fn bound(admin: &Admin) {
    let hard = json!({
        "requests.cpu": "1", "requests.memory": "1Gi", "limits.cpu": "1", "limits.memory": "1Gi",
    });
    let used = json!({
        "requests.cpu": "0", "requests.memory": "0", "limits.cpu": "0", "limits.memory": "0",
    });
    let quota = json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": { "name": "quota", "namespace": admin.name },
        "spec": { "hard": hard },
    });
    let file = admin.file("quota.json", &quota.to_string());
    admin.kubectl(&["create", "--filename", &file]).unwrap();
    let status = json!({ "status": { "hard": hard, "used": used } }).to_string();
    let patch = ["patch", "resourcequota", "quota", "--subresource=status"];
    let merge = [
        "--type=merge",
        "--patch",
        &status,
        "--namespace",
        admin.name,
    ];
    admin.kubectl(&[&patch[..], &merge].concat()).unwrap();
}

/// Returns the API server's reason to refuse a Pod. Empty if it accepts it.
fn refusal(admin: &Admin, pod: &Value) -> Option<String> {
    let file = admin.file("pod.json", &pod.to_string());
    let create = ["create", "--dry-run=server", "--namespace", admin.name];
    let created = admin.kubectl(&[&create[..], &["--filename", &file]].concat());
    created.err().map(|error| error.to_string())
}
