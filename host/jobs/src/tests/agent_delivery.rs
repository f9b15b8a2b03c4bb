//! The agent as an image volume, without an init container.

use ipu_api::ipujob::IPUJob;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::build::{held, worker};
use super::fixtures::{JobFixture, mounted, parallel, settings};
use super::launcher::spec;
use crate::build::{PodSettings, launcher};

fn launcher_of(job: &IPUJob, settings: &PodSettings) -> Pod {
    let job = job.valid();
    let command = job.launcher.clone().unwrap();
    launcher::launcher(&job, &command, settings, (&held(), 0))
}

fn agent_volume() -> Value {
    json!({
        "name": "ipu-operator-agent",
        "image": {
            "pullPolicy": "IfNotPresent",
            "reference": "ipu-operator.local/ipu-operator:test",
        },
    })
}

fn agent_mount() -> Value {
    json!({"name": "ipu-operator-agent", "mountPath": "/ipu-operator-agent", "readOnly": true})
}

#[test]
fn mounted_agent_needs_no_init_container() {
    let job = parallel();
    let [installed, mounted] = [settings(), mounted()].map(|settings| worker(&job, &settings, 0));
    let mut expected = json!(installed);
    expected["spec"]
        .as_object_mut()
        .unwrap()
        .remove("initContainers");
    expected["spec"]["volumes"] = json!([agent_volume()]);
    assert_eq!(json!(mounted), expected);
    let container = json!(spec(&mounted).containers[0]);
    assert_eq!(container["volumeMounts"], json!([agent_mount()]));
}

#[test]
fn launcher_has_the_files_of_mpirun_from_its_annotations() {
    let pod = launcher_of(&parallel(), &mounted());
    let annotations = json!(pod.metadata.annotations);
    let lines = "sample-worker-0 slots=1\nsample-worker-1 slots=1\n";
    assert_eq!(annotations["graphcore.ai/hostfile"], lines);
    let script = annotations["graphcore.ai/kubeexec"].as_str().unwrap();
    assert!(script.contains(" exec --job sample "), "{script}");
    let pod = json!(spec(&pod));
    assert_eq!(pod["initContainers"], json!(null));
    assert_eq!(pod["volumes"][0], agent_volume());
    let file = |name: &str, mode: i32| {
        let field = format!(
            "metadata.annotations['graphcore.ai/{}']",
            name.trim_end_matches(".sh")
        );
        json!({"path": name, "mode": mode, "fieldRef": {"fieldPath": field}})
    };
    let items = json!([file("hostfile", 0o444), file("kubeexec.sh", 0o555)]);
    let files = json!({"name": "ipu-operator-files", "downwardAPI": {"items": items}});
    assert_eq!(pod["volumes"][1], files);
    let mount = |name: &str| {
        json!({
            "name": "ipu-operator-files", "mountPath": format!("/ipu-operator-agent/{name}"),
            "subPath": name, "readOnly": true,
        })
    };
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    assert_eq!(
        mounts[..3],
        [agent_mount(), mount("hostfile"), mount("kubeexec.sh")]
    );
    let start = &pod["containers"][0]["command"][1];
    assert_eq!(start, "hold", "the mounted agent holds the command");
}

#[test]
fn init_containers_of_the_user_remain() {
    let job = parallel().template(&json!({"spec": {
        "initContainers": [
            {"name": "fetch", "image": "c", "volumeMounts": [{"name": "data", "mountPath": "/d"}]},
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "containers": [
            {"name": "main", "image": "a", "volumeMounts": [{"name": "data", "mountPath": "/d"}]},
        ],
    }}));
    for pod in [worker(&job, &mounted(), 0), launcher_of(&job, &mounted())] {
        let init = spec(&pod).init_containers.iter().flatten();
        let init: Vec<&str> = init.map(|container| container.name.as_str()).collect();
        assert_eq!(init, ["fetch"]);
    }
}

#[test]
fn job_without_launcher_has_no_agent() {
    let pod = worker(&IPUJob::sample(), &mounted(), 0);
    assert_eq!(
        (&spec(&pod).volumes, &spec(&pod).init_containers),
        (&None, &None)
    );
}

/// A launcher with shared rights cannot read the Pods of its workers.
#[test]
fn script_of_a_launcher_with_shared_rights_names_the_container() {
    let settings = PodSettings {
        launcher_policy: Some("policy".to_owned()),
        worker_host_network: true,
        ..mounted()
    };
    let annotations = launcher_of(&parallel(), &settings).metadata.annotations;
    let script = &annotations.unwrap()["graphcore.ai/kubeexec"];
    let expected = " exec --job sample --container main --host-network \"$POD\" ";
    assert!(script.contains(expected), "{script}");
}

#[test]
fn template_does_not_set_the_files_of_mpirun() {
    let annotations = json!({"graphcore.ai/hostfile": "other", "graphcore.ai/kubeexec": "other"});
    let job = parallel().template(&json!({"metadata": {"annotations": annotations}}));
    let annotations = launcher_of(&job, &mounted()).metadata.annotations;
    assert!(!annotations.unwrap().values().any(|value| value == "other"));
}

/// All annotations of a Pod together have at most 256 KiB.
#[test]
fn long_annotations_need_the_init_container() {
    let annotated = |length: usize| {
        let annotations = json!({"note": "n".repeat(length)});
        parallel().template(&json!({"metadata": {"annotations": annotations}}))
    };
    let large = |instances: i32| parallel().workers("64").ipus("64").instances(instances);
    for (name, job, is_mounted) in [
        ("few workers", large(1), true),
        ("3840 workers", large(60), true),
        ("6400 workers", large(100), false),
        ("128000 workers", large(2_000), false),
        ("a short note", annotated(100 << 10), true),
        ("a long note", annotated(200 << 10), false),
    ] {
        let pods = [worker(&job, &mounted(), 0), launcher_of(&job, &mounted())];
        for pod in pods {
            assert_eq!(spec(&pod).init_containers.is_none(), is_mounted, "{name}");
            let annotations = pod.metadata.annotations.unwrap();
            let length: usize = annotations.values().map(String::len).sum();
            assert!(length < 250 << 10, "{name}: {length}");
        }
    }
}
