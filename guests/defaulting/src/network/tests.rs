//! Which templates get a network, and what stays as its user wrote it.

use super::*;

const RELEASE: &str = r#"{
    "maxIpusPerJob": 64,
    "networks": {"rdma": {"attachment": "ipu/rdma-net", "resource": "rdma/rdma_shared_device_a"}}
}"#;

fn release(worker_network: Option<&str>) -> Settings {
    Settings {
        worker_network: worker_network.map(ToOwned::to_owned),
        ..Settings::parse(RELEASE).unwrap()
    }
}

fn job(template: &Value) -> Value {
    json!({"metadata": {"name": "mnist"}, "spec": {"workers": {"template": template}}})
}

fn requesting(network: &str, template: &Value) -> Value {
    let mut job = job(template);
    job["metadata"]["annotations"] = json!({ NETWORK_ANNOTATION: network });
    job
}

fn plain() -> Value {
    json!({"spec": {"containers": [{"name": "a"}, {"name": "sidecar"}]}})
}

fn completed() -> Value {
    json!({
        "metadata": {"annotations": {
            "k8s.v1.cni.cncf.io/networks": "ipu/rdma-net",
            "graphcore.ai/network": "rdma",
        }},
        "spec": {"containers": [
            {
                "name": "a",
                "resources": {
                    "limits": {"rdma/rdma_shared_device_a": "1"},
                    "requests": {"rdma/rdma_shared_device_a": "1"},
                },
                "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
            },
            {"name": "sidecar"},
        ]},
    })
}

fn template(job: &Value) -> &Value {
    &job["spec"]["workers"]["template"]
}

#[test]
fn annotation_or_setting_completes_the_first_container() {
    let named = apply(requesting("rdma", &plain()), None, &release(None)).unwrap();
    assert_eq!(template(&named), &completed());
    let by_default = apply(job(&plain()), None, &release(Some("rdma"))).unwrap();
    assert_eq!(template(&by_default), &completed());
    let again = apply(by_default.clone(), None, &release(Some("rdma"))).unwrap();
    assert_eq!(again, by_default);
}

#[test]
fn template_without_a_request_stays() {
    for (settings, job) in [
        (release(None), job(&plain())),
        (Settings::default(), job(&plain())),
        (release(Some("rdma")), requesting("none", &plain())),
    ] {
        assert_eq!(apply(job.clone(), None, &settings).unwrap(), job);
    }
}

#[test]
fn what_the_user_wrote_stays() {
    let mut own = plain();
    own["metadata"] = json!({"annotations": {ATTACHMENTS_ANNOTATION: "other"}});
    let mut on_host = plain();
    on_host["spec"]["hostNetwork"] = json!(true);
    for template in [
        own,
        on_host,
        json!({}),
        json!({"spec": {"containers": []}}),
        json!(7),
    ] {
        let job = requesting("rdma", &template);
        assert_eq!(apply(job.clone(), None, &release(None)).unwrap(), job);
    }
}

#[test]
fn missing_parts_are_added_to_those_that_exist() {
    let context = |context: Value| {
        let mut template = plain();
        template["spec"]["containers"][0]["securityContext"] = context;
        let job = apply(requesting("rdma", &template), None, &release(None)).unwrap();
        job["spec"]["workers"]["template"]["spec"]["containers"][0]["securityContext"].clone()
    };
    for unchanged in [
        json!({"privileged": true}),
        json!({"capabilities": {"add": ["ALL"]}}),
        json!({"capabilities": {"add": ["IPC_LOCK"]}}),
        json!({"capabilities": {"drop": ["IPC_LOCK"]}}),
    ] {
        assert_eq!(context(unchanged.clone()), unchanged);
    }
    let others = json!({"runAsUser": 7, "capabilities": {"drop": ["ALL"], "add": ["SYS_PTRACE"]}});
    let expected = json!({"runAsUser": 7, "capabilities": {"drop": ["ALL"], "add": ["SYS_PTRACE", "IPC_LOCK"]}});
    assert_eq!(context(others), expected);
    let mut two = plain();
    let resources = json!({"limits": {"rdma/rdma_shared_device_a": 2}});
    two["spec"]["containers"][0]["resources"] = resources.clone();
    let job = apply(requesting("rdma", &two), None, &release(None)).unwrap();
    assert_eq!(
        template(&job)["spec"]["containers"][0]["resources"],
        resources
    );
}

#[test]
fn unknown_network_refuses_only_a_new_job() {
    let old = job(&completed());
    let unknown = requesting("other", &plain());
    let refusal = apply(unknown.clone(), None, &release(None)).unwrap_err();
    assert_eq!(refusal.field, "metadata.annotations[graphcore.ai/network]");
    assert!(refusal.message.contains("one of: rdma, none"), "{refusal}");
    assert_eq!(
        apply(unknown.clone(), Some(&old), &Settings::default()).unwrap(),
        unknown
    );
}

#[test]
fn update_keeps_the_network_and_adds_none() {
    let kept = apply(job(&plain()), Some(&job(&completed())), &release(None)).unwrap();
    assert_eq!(template(&kept), &completed());
    let running = requesting("rdma", &plain());
    let updated = apply(
        running.clone(),
        Some(&job(&plain())),
        &release(Some("rdma")),
    )
    .unwrap();
    assert_eq!(updated, running);
}

#[test]
fn settings_are_read_or_refused_by_name() {
    assert_eq!(Settings::parse("{}"), Ok(Settings::default()));
    for (json, expected) in [
        ("[]", "not a JSON object"),
        (r#"{"networks": []}"#, "networks is []"),
        (
            r#"{"networks": {"rdma": {}}}"#,
            "networks.rdma.attachment is null",
        ),
        (
            r#"{"networks": {"rdma": {"attachment": ""}}}"#,
            "networks.rdma.attachment is \"\"",
        ),
        (
            r#"{"networks": {"rdma": {"attachment": "a", "resource": 1}}}"#,
            "networks.rdma.resource is 1",
        ),
        (
            r#"{"workerNetwork": "rdma"}"#,
            "workerNetwork is \"rdma\"; it must be a key of networks",
        ),
    ] {
        let error = Settings::parse(json).unwrap_err();
        assert!(error.contains(expected), "{json}: {error}");
    }
}
