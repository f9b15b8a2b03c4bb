//! Namespaces in which an IPUJob gives no user root on a node. The API server enforces it.

use cluster::wait::{Seen, eventually};
use serde_json::{Value, json};

use super::admin::Admin;

/// A job whose Pods have these fields in their spec, beside one container.
fn job(pod: &Value, container: &Value) -> String {
    let mut spec = json!({ "containers": [{ "name": "main", "image": "image" }] });
    merge(&mut spec, pod);
    merge(&mut spec["containers"][0], container);
    json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUJob",
        "metadata": { "name": "job" },
        "spec": {
            "jobInstances": 1,
            "ipusPerJobInstance": "1",
            "workers": { "template": { "spec": spec } },
        },
    })
    .to_string()
}

fn merge(into: &mut Value, from: &Value) {
    let from = from.as_object().unwrap().clone();
    into.as_object_mut().unwrap().extend(from);
}

/// Creates a job in a dry run. Returns the refusal.
fn refusal(admin: &Admin, job: &str) -> Option<String> {
    let file = admin.file("job.json", job);
    let create = ["create", "--dry-run=server", "--namespace", admin.name];
    let created = admin.kubectl(&[&create, &["--filename", file.as_str()][..]].concat());
    created.err().map(|error| error.to_string())
}

/// The changes that remain possible on a job that broke the rules before they applied.
fn an_older_job_can_be_suspended_and_scaled(admin: &Admin) {
    let patch = |patch: &Value| {
        let patch = patch.to_string();
        let merge = [
            "patch",
            "ipujob",
            "older",
            "--type=merge",
            "--patch",
            &patch,
        ];
        let patched = admin.kubectl(&[&merge, &["--namespace", admin.name][..]].concat());
        patched.err().map(|error| error.to_string())
    };
    let suspend = |value: bool| json!({ "spec": { "suspend": value } });
    let policy = json!({ "spec": { "cleanPodPolicy": "All" } });
    let mut both = suspend(true);
    both["spec"]["workers"] = json!({ "replicas": 1 });
    for refused in [&policy, &both] {
        let refusal = patch(refused).unwrap_or_else(|| panic!("{refused} is accepted"));
        assert!(refusal.contains("privileged"), "{refusal}");
    }
    assert_eq!(patch(&suspend(true)), None);
    let refusal = patch(&suspend(false)).expect("it may not continue");
    assert!(refusal.contains("privileged"), "{refusal}");
    let scale = ["scale", "ipujob/older", "--replicas=2", "--namespace"];
    admin
        .kubectl(&[&scale, &[admin.name][..]].concat())
        .unwrap();
}

#[tokio::test]
async fn jobs_of_a_restricted_namespace_cannot_become_root() {
    let admin = Admin::new("chart-jobs").await;
    // Nothing listens behind the webhooks here.
    let ignore = "admissionWebhooks.failurePolicy=Ignore";
    admin.helm_upgrade(&["--set", ignore, "--set", "worker.hostNetwork=false"]);
    let none = json!({});
    let privileged = job(&none, &json!({ "securityContext": { "privileged": true } }));
    assert_eq!(
        refusal(&admin, &privileged),
        None,
        "it is not restricted yet"
    );
    let file = admin.file("older.json", &privileged.replace("\"job\"", "\"older\""));
    let create = ["create", "--namespace", admin.name, "--filename", &file];
    admin.kubectl(&create).unwrap();
    let label = "graphcore.ai/jobs=restricted";
    admin
        .kubectl(&["label", "namespace", admin.name, label])
        .unwrap();
    // The API server follows the policy and the label with a short delay.
    eventually("privileged jobs are refused", async || {
        Seen::when(refusal(&admin, &privileged), Option::is_some)
    })
    .await;

    an_older_job_can_be_suspended_and_scaled(&admin);

    let init = json!({ "initContainers": [{
        "name": "init", "image": "image", "securityContext": { "privileged": true },
    }] });
    let added = |name: &str| json!({ "securityContext": { "capabilities": { "add": [name] } } });
    let path = json!({ "volumes": [{ "name": "root", "hostPath": { "path": "/" } }] });
    let port = json!({ "ports": [{ "containerPort": 80, "hostPort": 80 }] });
    let refused = [
        (job(&json!({ "hostNetwork": true }), &none), "hostNetwork"),
        (job(&json!({ "hostPID": true }), &none), "hostPID"),
        (job(&json!({ "hostIPC": true }), &none), "hostIPC"),
        (privileged.clone(), "privileged"),
        (job(&init, &none), "privileged"),
        (job(&none, &added("SYS_ADMIN")), "capabilities"),
        (job(&path, &none), "hostPath"),
        (job(&none, &port), "hostPort"),
    ];
    for (job, expected) in refused {
        let refusal =
            refusal(&admin, &job).unwrap_or_else(|| panic!("{expected} is accepted: {job}"));
        assert!(refusal.contains(expected), "{expected}: {refusal}");
    }
    let memory = json!({ "volumes": [{ "name": "shm", "emptyDir": { "medium": "Memory" } }] });
    let plain = job(&none, &none);
    for job in [&plain, &job(&memory, &added("IPC_LOCK"))] {
        assert_eq!(refusal(&admin, job), None, "{job}");
    }

    admin.helm_upgrade(&["--set", ignore, "--set", "worker.hostNetwork=true"]);
    let refusal = eventually("every job is refused", async || refusal(&admin, &plain)).await;
    assert!(refusal.contains("worker.hostNetwork is true"), "{refusal}");
}
