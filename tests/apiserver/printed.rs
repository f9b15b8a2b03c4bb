//! Manifests as clients of Kubernetes print them and charts render them: the API server accepts the
//! template of an IPUJob wherever it accepts that of a Job.

use serde_json::{Value, json};

use crate::chart::admin::Admin;

/// A template with what typed clients print for fields that are not set, with null as charts render
/// it, and with the metadata of an object that was exported.
fn template() -> Value {
    json!({
        "metadata": {
            "creationTimestamp": null,
            "generateName": "printed-",
            "labels": {"app": "printed", "version": null},
            "annotations": null,
            "resourceVersion": "7",
            "generation": 1,
            "uid": "beb81bbe-2309-494a-9e28-2a75a704be15",
            "selfLink": "",
            "deletionTimestamp": null,
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "u", "controller": true,
            }],
            "managedFields": [{
                "manager": "kubectl", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}},
            }],
        },
        "spec": {
            "restartPolicy": "Never",
            "affinity": {},
            "nodeSelector": {"zone": null},
            "tolerations": null,
            "imagePullSecrets": [{}],
            "securityContext": {},
            "terminationGracePeriodSeconds": null,
            "containers": [{
                "name": "main", "image": "program:1", "command": null, "args": [null], "env": null, "resources": {}, "livenessProbe": null,
            }, {
                "name": "numbers", "image": "program:1",
                "resources": {
                    "requests": {"cpu": 0.5, "memory": 1e9, "example.com/card": 1},
                    "limits": {"cpu": 1.5, "memory": "2G", "example.com/card": 1},
                },
                "env": [{"name": "CPUS", "valueFrom": {
                    "resourceFieldRef": {"resource": "limits.cpu", "divisor": 0.001},
                }}],
            }],
            "volumes": [{"name": "memory", "emptyDir": {"sizeLimit": 1.5e9}}, {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {
                "metadata": {"creationTimestamp": null},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}},
            }}}],
        },
    })
}

fn ipu_job() -> Value {
    json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUJob",
        "metadata": {"name": "printed", "creationTimestamp": null},
        "spec": {
            "jobInstances": 1,
            "ipusPerJobInstance": "1",
            "suspend": null,
            "launcher": {
                "command": ["mpirun"],
                "env": [{"name": "A", "value": null}, {"name": "B", "valueFrom": null}],
                "resources": {"limits": null, "claims": null, "requests": {"cpu": 0.25, "memory": 1e9}},
                "serviceAccountName": null,
            },
            "workers": {"strategy": {}, "template": template()},
        },
        "status": {},
    })
}

fn job() -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "printed", "creationTimestamp": null},
        "spec": {"template": template()},
        "status": {},
    })
}

#[tokio::test]
async fn a_printed_template_is_accepted_as_that_of_a_job() {
    let admin = Admin::new("printed").await;
    for (kind, manifest) in [("job", job()), ("ipujob", ipu_job())] {
        let file = admin.file(&format!("{kind}.json"), &manifest.to_string());
        for command in [&["create"][..], &["apply"], &["apply", "--server-side"]] {
            let rest = ["--validate=strict", "--dry-run=server", "--filename", &file];
            let accepted = admin.kubectl(&[command, &rest].concat());
            accepted.unwrap_or_else(|error| panic!("{kind} {command:?}: {error}"));
        }
    }
    let file = admin.file("ipujob.json", &ipu_job().to_string());
    // Once as a new object, and once as a change.
    for command in [
        &["apply"][..],
        &["apply", "--server-side", "--force-conflicts"],
    ] {
        admin
            .kubectl(&[command, &["--filename", &file]].concat())
            .unwrap();
    }
    let spec = "--output=jsonpath={.spec.workers.template.metadata.labels.app} \
                {.spec.workers.template.spec.containers[1].resources.requests.cpu} \
                {.spec.launcher.resources.requests.cpu}";
    assert_eq!(
        admin.kubectl(&["get", "ipujob", "printed", spec]).unwrap(),
        "printed 0.5 0.25"
    );
}

#[tokio::test]
async fn a_quantity_of_another_type_is_refused() {
    let admin = Admin::new("quantities").await;
    for (place, odd) in [
        ("launcher", json!(true)),
        ("launcher", json!({})),
        ("launcher", json!({"value": 1})),
        ("launcher", json!([])),
        ("launcher", json!([1])),
        ("launcher", json!("half")),
        ("template", json!(false)),
        ("template", json!({"value": 1})),
    ] {
        let mut job = ipu_job();
        let resources = if place == "launcher" {
            &mut job["spec"]["launcher"]["resources"]
        } else {
            &mut job["spec"]["workers"]["template"]["spec"]["containers"][1]["resources"]
        };
        resources["requests"]["cpu"] = odd.clone();
        let file = admin.file("odd.json", &job.to_string());
        for command in [&["create"][..], &["apply", "--server-side"]] {
            let rest = ["--dry-run=server", "--filename", &file];
            let refused = admin.kubectl(&[command, &rest].concat()).unwrap_err();
            let field = "resources.requests.cpu";
            assert!(refused.to_string().contains(field), "{odd}: {refused}");
        }
    }
}
