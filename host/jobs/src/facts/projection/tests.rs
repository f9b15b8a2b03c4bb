//! Projections of whole, odd and missing fields.

use ipu_runtime::trimmed::{Guarded, readable};
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use super::*;

fn pod(patch: &Value) -> Pod {
    let mut pod = json!({
        "metadata": {
            "name": "sample-worker-1", "namespace": "n", "uid": "u-1", "resourceVersion": "7",
            "labels": {
                "graphcore.ai/instance": "1", "graphcore.ai/run": "2",
                "graphcore.ai/partition-id": "p-1", "else": "not read",
            },
            "annotations": {"graphcore.ai/template-hash": "h-1"},
        },
        "spec": {"nodeName": "node-1", "containers": [{"name": "main", "image": "large"}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{
                "name": "main", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }],
        },
    });
    json_patch::merge(&mut pod, patch);
    serde_json::from_value(pod).unwrap()
}

fn observed(patch: &Value) -> ObservedPod {
    ObservedPod::of(&pod(patch)).unwrap()
}

#[test]
fn a_pod_is_read_as_it_is() {
    let found = observed(&json!({}));
    let object = (found.object.name(), found.object.uid());
    assert_eq!(object, ("sample-worker-1", "u-1"));
    assert_eq!((found.instance, &found.termination), (Some(1), &None));
    let since = found.running_since.as_deref().copied();
    assert_eq!(since, Some("2026-01-01T00:00:00Z".parse().unwrap()));
    let at = "2026-01-01T00:05:00Z";
    let deleted = observed(&json!({
        "metadata": {"deletionTimestamp": at, "deletionGracePeriodSeconds": 30},
    }));
    let expected = Termination {
        due: at.parse().unwrap(),
        node: Some("node-1".into()),
        held_by: None,
    };
    assert_eq!(deleted.termination, Some(Box::new(expected)));
    assert!(matches!(
        deleted.state(None, 0, false),
        PodState::Terminating { started: true, .. }
    ));
}

#[test]
fn a_pod_of_an_earlier_run_or_of_another_partition_is_stale_until_it_has_ended() {
    let running = PodState::Running {
        ready: true,
        main_ready: true,
    };
    let ended = json!({"status": {"phase": "Succeeded", "containerStatuses": null}});
    let unlabelled = json!({"metadata": {"labels": null}});
    for (patch, partition, run, expected) in [
        (json!({}), None, 2, running.clone()),
        (json!({}), Some("p-1"), 1, running.clone()),
        (json!({}), Some("p-1"), 3, PodState::Stale),
        (json!({}), Some("p-2"), 2, PodState::Stale),
        (ended.clone(), Some("p-2"), 2, PodState::Succeeded(None)),
        (ended, Some("p-1"), 3, PodState::Stale),
        (unlabelled.clone(), Some("p-2"), 0, running),
        (unlabelled, Some("p-2"), 1, PodState::Stale),
    ] {
        let found = observed(&patch).state(partition.map(Uid::of), run, false);
        assert_eq!(found, expected, "{patch} {partition:?} {run}");
    }
}

#[test]
fn a_pod_is_of_another_template_if_both_hashes_differ() {
    let template = |text: &str, canonical: &str| {
        TemplateDigests::of(Some(&text.to_owned()), Some(&canonical.to_owned()))
    };
    let unknown = observed(&json!({"metadata": {"annotations": null}}));
    assert!(!unknown.is_of_other_template(&template("h-2", "c-2")));
    let of_earlier_version = observed(&json!({}));
    assert!(!of_earlier_version.is_of_other_template(&template("h-1", "c-1")));
    assert!(of_earlier_version.is_of_other_template(&template("h-2", "c-1")));
    let annotations = json!({"graphcore.ai/canonical-template-hash": "c-1"});
    let known = observed(&json!({"metadata": {"annotations": annotations}}));
    assert!(!known.is_of_other_template(&template("h-2", "c-1")));
    assert!(
        !known.is_of_other_template(&template("h-1", "c-2")),
        "its form has another rule now"
    );
    assert!(known.is_of_other_template(&template("h-2", "c-2")));
}

#[test]
fn a_pod_that_lacks_everything_but_its_name_waits() {
    let bare = json!({"metadata": {"name": "a", "uid": "u"}});
    let bare = ObservedPod::of(&serde_json::from_value(bare).unwrap()).unwrap();
    assert_eq!(
        bare.state(Some(Uid::of("p")), 0, false),
        PodState::Pending(None)
    );
    assert_eq!((bare.instance, &bare.termination), (None, &None));
    let odd = json!({"graphcore.ai/instance": "-1", "graphcore.ai/run": "many"});
    let odd = observed(&json!({"metadata": {"labels": odd}}));
    assert_eq!((odd.instance, odd.run), (None, 0));
    for missing in ["name", "uid"] {
        let nameless = pod(&json!({"metadata": {missing: null}}));
        assert_eq!(ObservedPod::of(&nameless), None, "{missing}");
    }
}

fn partition(patch: &Value) -> Value {
    let controller = json!({
        "name": "pod1:8090", "host": "pod1", "port": 8090, "labelKey": "ipunode",
        "labelValue": "pod1",
    });
    let mut partition = json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
        "metadata": {"name": "sample-1", "uid": "u-1"},
        "spec": {
            "owner": {
                "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "namespace": "n",
                "name": "sample", "uid": "job-uid",
            },
            "slot": 1, "ipus": 4, "gcds": 2, "options": {"pinned": true},
        },
        "status": {
            "phase": "Ready", "controller": controller, "partitionId": "p-1",
            "autoResets": {"count": 3, "max": 5},
            "attempts": [{
                "controller": controller, "id": "p-1", "outcome": "created",
                "started": "2026-01-01T00:00:00Z",
            }],
        },
    });
    json_patch::merge(&mut partition, patch);
    partition
}

fn read(patch: &Value, shared: &mut SharedFields) -> ObservedPartition {
    let object = serde_json::from_value(partition(patch)).unwrap();
    ObservedPartition::of(&object, shared).unwrap()
}

#[test]
fn a_partition_is_read_as_it_is() {
    let mut shared = SharedFields::default();
    let found = read(&json!({}), &mut shared);
    assert_eq!(found.object.name(), "sample-1");
    assert_eq!((found.slot, found.ipus, found.gcds), (1, 4, 2));
    assert_eq!((found.automatic_resets, found.is_pinned), (3, true));
    assert_eq!((found.is_placed, found.is_terminating), (true, false));
    assert!(found.times.requested.is_some());
    let elsewhere = BTreeMap::from([("ipunode".to_owned(), "pod2".to_owned())]);
    assert!(found.state(&BTreeMap::new()).usable().is_some());
    assert!(found.state(&elsewhere).usable().is_none());
    let new = read(&json!({"status": null}), &mut shared);
    assert_eq!(new.state, PartitionState::Waiting([].into()));
    assert!(!new.is_placed);
}

#[test]
fn partitions_share_controllers_and_reasons_as_long_as_one_of_them_has_them() {
    let mut all = SharedFields::default();
    let on = |name: &str| json!({"status": {"controller": {"name": name}}});
    let [one, other] = ["a", "a"].map(|name| read(&on(name), &mut all));
    let shared = |found: &ObservedPartition| Arc::clone(&found.state.placed().unwrap().controller);
    assert!(Arc::ptr_eq(&shared(&one), &shared(&other)));

    let waits = |reason: &str| {
        let waiting = json!([{"controller": "pod1:8090", "reason": reason}]);
        json!({"status": {
            "phase": "Pending", "partitionId": null, "controller": null, "waiting": waiting,
        }})
    };
    let [one, other] = ["full", "full"].map(|reason| read(&waits(reason), &mut all));
    let reasons = |found: &ObservedPartition| match &found.state {
        PartitionState::Waiting(reasons) => Arc::clone(reasons),
        other => panic!("{other:?}"),
    };
    assert_eq!(reasons(&one).len(), 1);
    assert!(Arc::ptr_eq(&reasons(&one), &reasons(&other)));

    for number in 0..100 {
        read(&on(&number.to_string()), &mut all);
        read(&waits(&number.to_string()), &mut all);
    }
    let count = all.controllers.count() + all.reasons.count();
    assert!(
        count < 20,
        "{count} are left of those that nobody has any more"
    );
}

#[test]
fn objects_with_fields_of_wrong_types_are_left_out() {
    let bad = pod_with_wrong_type();
    let bad: Guarded<Pod> = serde_json::from_value(bad).unwrap();
    assert!(readable(Event::Apply(bad)).is_none());
    let bad = partition(&json!({"spec": {"slot": "first"}}));
    let bad: Guarded<IPUPartition> = serde_json::from_value(bad).unwrap();
    assert!(readable(Event::Apply(bad)).is_none());
}

fn pod_with_wrong_type() -> Value {
    let mut object = json!(pod(&json!({})));
    json_patch::merge(&mut object, &json!({"spec": {"containers": 5}}));
    object
}
