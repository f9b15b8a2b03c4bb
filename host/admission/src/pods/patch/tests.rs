//! The patch of a Pod, applied.

use json_patch::diff;

use super::*;

fn pod(change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{
            "name": "main", "image": "a:1",
            "resources": {"limits": {"graphcore.ai/ipu": "4"}, "requests": {"graphcore.ai/ipu": "4"}},
        }]},
    });
    change(&mut pod);
    pod
}

fn request(pod: &Value) -> PodRequest {
    PodRequest::of(pod).unwrap().unwrap()
}

fn patched(pod: &Value) -> Value {
    let mut patched = pod.clone();
    json_patch::patch(&mut patched, &Patch(additions(pod, &request(pod)))).unwrap();
    patched
}

fn values(container: &Value) -> Vec<(String, String)> {
    let env = container["env"].as_array().unwrap().iter();
    let value = |one: &Value| {
        let value = one["value"].as_str();
        let path = one.pointer("/valueFrom/fieldRef/fieldPath");
        value.or_else(|| path?.as_str()).unwrap().to_owned()
    };
    env.map(|one| (one["name"].as_str().unwrap().to_owned(), value(one)))
        .collect()
}

const ALL: [(&str, &str); 5] = [
    (
        "IPUOF_VIPU_API_HOST",
        "metadata.annotations['graphcore.ai/vipu-host']",
    ),
    (
        "IPUOF_VIPU_API_PORT",
        "metadata.annotations['graphcore.ai/vipu-port']",
    ),
    (
        "IPUOF_VIPU_API_PARTITION_ID",
        "metadata.labels['graphcore.ai/partition-id']",
    ),
    ("IPUOF_VIPU_API_TIMEOUT", "120"),
    ("IPUOF_VIPU_API_GCD_ID", "0"),
];

fn expected(values: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    values.iter().map(owned).collect()
}

#[test]
fn a_pod_gets_a_gate_a_label_and_the_environment_in_all_containers() {
    let pod = pod(|pod| {
        let sidecar = json!({"name": "logs", "image": "b:1"});
        pod["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .push(sidecar.clone());
        pod["spec"]["initContainers"] = json!([sidecar]);
    });
    let patched = patched(&pod);
    assert_eq!(
        patched["metadata"]["labels"],
        json!({"graphcore.ai/native-pod": "true"})
    );
    assert_eq!(
        patched["spec"]["schedulingGates"],
        json!([{"name": "graphcore.ai/partition"}])
    );
    let spec = &patched["spec"];
    for container in [
        &spec["containers"][0],
        &spec["containers"][1],
        &spec["initContainers"][0],
    ] {
        assert_eq!(values(container), expected(&ALL));
    }
}

#[test]
fn gates_labels_and_variables_of_the_user_stay() {
    let pod = pod(|pod| {
        pod["metadata"]["labels"] = json!({"app": "web"});
        pod["spec"]["schedulingGates"] = json!([{"name": "kueue.x-k8s.io/admission"}]);
        pod["spec"]["containers"][0]["env"] = json!([
            {"name": "IPUOF_VIPU_API_TIMEOUT", "value": "7"},
            {"name": "ID", "value": "$(IPUOF_VIPU_API_PARTITION_ID)"},
        ]);
    });
    let patched = patched(&pod);
    assert_eq!(
        patched["metadata"]["labels"],
        json!({"app": "web", "graphcore.ai/native-pod": "true"})
    );
    assert_eq!(
        patched["spec"]["schedulingGates"],
        json!([{"name": "kueue.x-k8s.io/admission"}, {"name": "graphcore.ai/partition"}])
    );
    let [host, port, id, _, gcd] = ALL;
    let own = [
        ("IPUOF_VIPU_API_TIMEOUT", "7"),
        ("ID", "$(IPUOF_VIPU_API_PARTITION_ID)"),
    ];
    let all = [host, port, id, gcd, own[0], own[1]];
    assert_eq!(values(&patched["spec"]["containers"][0]), expected(&all));
}

#[test]
fn a_second_call_changes_nothing() {
    let once = patched(&pod(|_| {}));
    assert_eq!(additions(&once, &request(&once)), []);
}

#[test]
fn the_gcd_of_an_existing_partition_is_in_the_environment() {
    let pod = json!({
        "metadata": {"annotations": {"graphcore.ai/partition": "shared", "graphcore.ai/gcd": "3"}},
        "spec": {"containers": [{"name": "main"}]},
    });
    let patched = patched(&pod);
    let values = values(&patched["spec"]["containers"][0]);
    assert_eq!(values.last().unwrap().1, "3");
}

#[test]
fn the_gcd_of_a_copied_pod_follows_its_annotation() {
    let pod = |gcd: &str, env: &Value| {
        json!({
            "metadata": {"annotations": {"graphcore.ai/partition": "shared", "graphcore.ai/gcd": gcd}},
            "spec": {"containers": [{"name": "main", "env": env}]},
        })
    };
    let first = patched(&pod("3", &json!([])));
    let env = &first["spec"]["containers"][0]["env"];
    let copied = patched(&pod("1", env));
    let gcd = |pod: &Value| values(&pod["spec"]["containers"][0]).pop().unwrap().1;
    assert_eq!(
        (gcd(&first), gcd(&copied)),
        ("3".to_owned(), "1".to_owned())
    );
    let of_user = json!([{"name": "IPUOF_VIPU_API_GCD_ID", "value": "7"}]);
    assert_eq!(gcd(&patched(&pod("1", &of_user))), "7");
}

/// The Pod after guests made these changes to the IPUJob as which it was shown.
fn after_guests(pod: &Value, change: impl FnOnce(&mut Value)) -> Result<Value, SizeError> {
    let PodRequest::New(new) = request(pod) else {
        panic!("it requests a new partition");
    };
    let additions = additions(pod, &request(pod));
    let job = shown::as_job(pod.clone(), "team", new.ipus);
    let mut defaulted = job.clone();
    change(&mut defaulted);
    let patch = finished(additions, diff(&job, &defaulted), &defaulted, &new)?;
    let mut patched = pod.clone();
    json_patch::patch(&mut patched, &patch).unwrap();
    Ok(patched)
}

#[test]
fn of_the_defaults_only_size_labels_and_annotations_reach_the_pod() {
    let pod = pod(|_| {});
    let patched = after_guests(&pod, |job| {
        job["metadata"]["labels"]["team"] = json!("vision");
        job["metadata"]["annotations"] = json!({"a/b": "c"});
        job["spec"]["ipusPerJobInstance"] = json!("8");
        job["spec"]["cleanPodPolicy"] = json!("None");
        job["spec"]["workers"]["template"]["spec"]["hostNetwork"] = json!(true);
    });
    let patched = patched.unwrap();
    assert_eq!(
        patched["metadata"],
        json!({
            "name": "web", "annotations": {"a/b": "c"},
            "labels": {"graphcore.ai/native-pod": "true", "team": "vision"},
        })
    );
    let resources = &patched["spec"]["containers"][0]["resources"];
    for part in ["limits", "requests"] {
        assert_eq!(resources[part], json!({"graphcore.ai/ipu": "8"}));
    }
    assert_eq!(patched["spec"].get("hostNetwork"), None);
    assert_eq!(patched["spec"].get("cleanPodPolicy"), None);
    assert_eq!(
        request(&patched),
        PodRequest::New(NewPartition {
            ipus: 8,
            container: Some(0),
            is_annotated: false,
        })
    );
}

#[test]
fn guests_cannot_take_the_label_or_the_request_from_a_pod() {
    let pod = pod(|pod| {
        pod["spec"]["containers"][0]["resources"] = json!({});
        pod["metadata"]["annotations"] = json!({"graphcore.ai/ipu": "4"});
    });
    let patched = after_guests(&pod, |job| {
        job["metadata"]["labels"] = json!({"team": "vision"});
        job["metadata"]["annotations"] = json!({});
        job["spec"]["ipusPerJobInstance"] = json!("2");
    });
    let patched = patched.unwrap();
    assert_eq!(
        patched["metadata"]["labels"],
        json!({"graphcore.ai/native-pod": "true", "team": "vision"})
    );
    assert_eq!(
        patched["metadata"]["annotations"],
        json!({"graphcore.ai/ipu": "2"})
    );
}

#[test]
fn a_size_that_no_pod_can_request_is_the_fault_of_the_policy() {
    for size in [json!("0"), json!("many"), json!(null), json!(8)] {
        let error = after_guests(&pod(|_| {}), |job| {
            job["spec"]["ipusPerJobInstance"] = size.clone();
        });
        let error = error.unwrap_err();
        assert_eq!(error, SizeError(size.clone()));
        assert!(error.to_string().contains("correct the guest"), "{error}");
    }
}

#[test]
fn rules_are_about_what_the_user_has_written() {
    let written = [
        pod(|_| {}),
        pod(|pod| {
            pod["spec"]["containers"][0]["env"] = json!([{"name": "GCD", "value": "0"}]);
            pod["spec"]["schedulingGates"] = json!([{"name": "other"}]);
            pod["spec"]["initContainers"] = json!([{"name": "first", "image": "a:1"}]);
        }),
        pod(|pod| {
            let own = json!([{"name": "IPUOF_VIPU_API_GCD_ID", "value": "7"}]);
            pod["spec"]["containers"][0]["env"] = own;
        }),
    ];
    for pod in written {
        let mut seen = without_additions(patched(&pod), request(&pod).gcd());
        assert_eq!(seen["metadata"]["labels"][NATIVE_POD_LABEL], json!("true"));
        seen["metadata"] = pod["metadata"].clone();
        assert_eq!(seen, pod);
    }
    for broken in [
        json!({"spec": {"containers": [7, {"env": 7}], "schedulingGates": {}}}),
        json!({"spec": 7}),
        json!(7),
    ] {
        assert_eq!(without_additions(broken.clone(), 0), broken);
    }
}
