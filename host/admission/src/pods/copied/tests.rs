//! What new Pods keep and lose, by where they come from.

use json_patch::patch;
use serde_json::json;

use super::*;

/// The Pod of a user, with one change.
fn written(change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web"}, "annotations": {"graphcore.ai/ipu": "4"}},
        "spec": {"nodeSelector": {"zone": "a"}, "containers": [{"name": "main", "image": "a:1"}]},
    });
    change(&mut pod);
    pod
}

/// The same, as `kubectl get --output yaml` shows it once it runs, with one change.
fn exported(change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = written(|_| {});
    let request = PodRequest::of(&pod).unwrap().unwrap();
    let additions = super::super::patch::additions(&pod, &request);
    patch(&mut pod, &additions).unwrap();
    let metadata = &mut pod["metadata"];
    metadata["uid"] = json!("web-uid");
    metadata["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    metadata["labels"]["graphcore.ai/partition-id"] = json!("p-web");
    for (key, value) in [
        ("graphcore.ai/vipu-host", "pod1"),
        ("graphcore.ai/vipu-port", "8090"),
        ("graphcore.ai/node-label", "ipunode=pod1"),
        ("graphcore.ai/workload", "batch"),
    ] {
        metadata["annotations"][key] = json!(value);
    }
    let spec = pod["spec"].as_object_mut().unwrap();
    spec.remove("schedulingGates");
    spec.insert("nodeName".to_owned(), json!("node-1"));
    spec["nodeSelector"]["ipunode"] = json!("pod1");
    change(&mut pod);
    pod
}

/// The Pod without what it loses, and the warning.
fn cleaned(pod: &Value) -> (Value, Option<String>) {
    let mut cleaned = pod.clone();
    let Removals {
        operations,
        warning,
    } = removals(pod);
    patch(&mut cleaned, &operations).unwrap();
    (cleaned, warning)
}

fn limited(pod: &mut Value) {
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"graphcore.ai/ipu": "4"}});
}

#[test]
fn a_pod_that_is_no_copy_loses_nothing() {
    let of_job = |pod: &mut Value| {
        pod["metadata"]["annotations"]["graphcore.ai/workload"] = json!("batch");
        pod["metadata"]["ownerReferences"] = json!([{"kind": "Job", "controller": true}]);
    };
    let gated = |pod: &mut Value| {
        pod["spec"]["schedulingGates"] = json!([{"name": "graphcore.ai/partition"}]);
    };
    let on_a_node = |pod: &mut Value| pod["spec"]["nodeName"] = json!("node-1");
    let marked = |pod: &mut Value| {
        pod["metadata"] = json!({"labels": {"graphcore.ai/partition-id": "p-of-a-user"}});
    };
    for pod in [
        written(|_| {}),
        written(limited),
        written(of_job),
        written(gated),
        written(on_a_node),
        written(marked),
        json!({}),
    ] {
        assert_eq!(removals(&pod), Removals::default(), "{pod}");
    }
}

#[test]
fn an_exported_pod_keeps_only_what_its_user_wrote() {
    let (pod, warning) = cleaned(&exported(|_| {}));
    let metadata = &pod["metadata"];
    assert_eq!(
        metadata["labels"],
        json!({"app": "web", "graphcore.ai/native-pod": "true"})
    );
    assert_eq!(metadata["annotations"], json!({"graphcore.ai/ipu": "4"}));
    assert_eq!(pod["spec"]["nodeSelector"], json!({"zone": "a"}));
    assert_eq!(pod["spec"].get("nodeName"), None);
    assert!(warning.unwrap().contains("4 IPUs of its own"));
}

#[test]
fn a_node_selector_that_its_user_wrote_stays() {
    for value in [
        json!(null),
        json!("ipunode=pod2"),
        json!("ipunode"),
        json!(7),
    ] {
        let (pod, _) = cleaned(&exported(|pod| {
            pod["metadata"]["annotations"]["graphcore.ai/node-label"] = value.clone();
        }));
        assert_eq!(
            pod["spec"]["nodeSelector"]["ipunode"],
            json!("pod1"),
            "{value}"
        );
    }
}

/// The copy of `kubectl debug --copy-to`: it never has the node, and has labels and annotations
/// only by options.
fn copied(keeps: &[&str], change: impl FnOnce(&mut Value)) -> Value {
    exported(|pod| {
        change(pod);
        let metadata = pod["metadata"].as_object_mut().unwrap();
        metadata.retain(|key, _| key == "name" || keeps.contains(&key.as_str()));
        pod["spec"].as_object_mut().unwrap().remove("nodeName");
    })
}

#[test]
fn a_debug_copy_with_annotations_alone_requests_nothing() {
    let (pod, warning) = cleaned(&copied(&["annotations"], |_| {}));
    assert_eq!(PodRequest::of(&pod), Ok(None));
    assert_eq!(pod["metadata"]["annotations"], json!({}));
    assert!(warning.unwrap().contains("runs without IPUs"));
}

#[test]
fn a_debug_copy_with_labels_alone_holds_no_partition() {
    let (pod, _) = cleaned(&copied(&["labels"], |_| {}));
    assert_eq!(PodRequest::of(&pod), Ok(None));
    assert_eq!(pod["metadata"]["labels"], json!({"app": "web"}));
}

#[test]
fn a_copy_with_a_limit_or_with_all_keys_requests_ipus() {
    let everything: &[&str] = &["labels", "annotations"];
    for (keeps, change) in [
        (&[][..], limited as fn(&mut Value)),
        (&["annotations"][..], limited),
        (everything, limited),
        (everything, |_| {}),
    ] {
        let (pod, warning) = cleaned(&copied(keeps, change));
        let request = PodRequest::of(&pod).unwrap().unwrap();
        assert!(
            matches!(request, PodRequest::New(new) if new.ipus == 4),
            "{keeps:?}"
        );
        assert!(warning.unwrap().contains("4 IPUs of its own"), "{keeps:?}");
    }
}

#[test]
fn a_copy_without_a_request_loses_the_gate() {
    let waiting = |pod: &mut Value| {
        pod["spec"]["schedulingGates"] =
            json!([{"name": "kueue.x-k8s.io/admission"}, {"name": "graphcore.ai/partition"}]);
    };
    let (pod, warning) = cleaned(&copied(&[], waiting));
    assert_eq!(
        pod["spec"]["schedulingGates"],
        json!([{"name": "kueue.x-k8s.io/admission"}])
    );
    assert_eq!(warning, None);
}

#[test]
fn annotations_of_a_pod_template_remain_a_request() {
    let owned = |pod: &mut Value| {
        pod["metadata"]["labels"] = json!({"app": "web"});
        pod["metadata"]["ownerReferences"] = json!([{"kind": "ReplicaSet", "controller": true}]);
    };
    let (pod, _) = cleaned(&exported(owned));
    assert_eq!(
        pod["metadata"]["annotations"],
        json!({"graphcore.ai/ipu": "4"})
    );
}

#[test]
fn an_exported_pod_shares_the_same_partition() {
    let sharing = |pod: &mut Value| {
        let annotations = &mut pod["metadata"]["annotations"];
        *annotations = json!({
            "graphcore.ai/partition": "notebook", "graphcore.ai/gcd": "1", "graphcore.ai/vipu-host": "pod1",
        });
    };
    let (pod, warning) = cleaned(&exported(sharing));
    assert!(matches!(
        PodRequest::of(&pod),
        Ok(Some(PodRequest::Existing(_)))
    ));
    assert!(
        warning
            .unwrap()
            .contains("shares the IPUPartition notebook, with GCD 1")
    );
    let (pod, warning) = cleaned(&copied(&["annotations"], sharing));
    assert_eq!(PodRequest::of(&pod), Ok(None));
    assert!(warning.unwrap().contains("runs without IPUs"));
}
