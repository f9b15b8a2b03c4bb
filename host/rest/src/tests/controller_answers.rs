//! Answers about controllers and their partitions.

use ipu_api::vipu_controller::CordonState;
use ipu_partitions::controllers::{ControllerState, summary};
use ipu_partitions::store::Cache;
use ipu_placement::samples;
use jiff::Timestamp;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;
use vipu_client::failure_stats::FailureStats;
use vipu_client::model::{ListedPartition, ReadyState};

use super::*;

#[test]
fn stats_are_those_of_the_original() {
    let mut cache = Cache::default();
    for (namespace, ipus, outcome) in [
        ("default", 4, AttemptOutcome::Created),
        ("other", 8, AttemptOutcome::Unknown),
    ] {
        let mut partition = partition(namespace, ipus, outcome);
        partition.metadata.name = Some(namespace.to_owned());
        let heard = Event::Apply(DeserializeGuard(Ok(partition)));
        cache.apply_event(heard, Timestamp::UNIX_EPOCH);
    }
    let partitions = cache.briefs().map(|(one, _)| one);
    let answer = answers::stats(partitions, &[controller(32, 4, None)]);
    insta::assert_json_snapshot!(answer, @r#"
    {
      "default": {
        "used": 4,
        "available": 28
      },
      "total": {
        "used": 4,
        "available": 28
      }
    }
    "#);
}

#[test]
fn what_others_made_is_not_available_and_not_ours() {
    let controllers = [
        controller(16, 16, None),
        controller(64, 20, None),
        controller(64, 0, Some("down")),
    ];
    let answer = answers::stats(std::iter::empty(), &controllers);
    assert_eq!(answer.len(), 1);
    assert_eq!(
        answer["total"],
        answers::Stats {
            used: 0,
            available: 44
        }
    );
}

#[test]
fn capacity_counts_each_controller_by_itself() {
    let controllers = [controller(16, 13, None), controller(16, 3, None)];
    let numbers: Vec<u64> = [1, 2, 4, 8, 16]
        .map(|size| answers::capacity(size, &controllers).num_of_partitions)
        .into();
    assert_eq!(numbers, [16, 7, 3, 1, 0]);
}

#[test]
fn an_unreachable_controller_is_named() {
    let capacity = answers::capacity(1, &[controller(16, 0, Some("connection refused"))]);
    insta::assert_json_snapshot!(capacity, @r#"
    {
      "available": true,
      "numOfPartitions": 0,
      "message": "not counted, since they do not answer: pod1:8090 (connection refused)"
    }
    "#);
}

/// The state of a controller with a partition of the operator and one of somebody else.
fn state(view: ControllerView) -> ControllerState {
    let listed = [("p-mnist", 4), ("by-hand", 6)].map(|(id, ipus)| ListedPartition {
        id: id.to_owned(),
        ipus,
        gcds: 1,
        first_ipu: None,
        ready_state: ReadyState::Active,
    });
    ControllerState {
        view,
        withheld: None,
        version: None,
        listed: listed.into(),
        free_ipus: Some("4-7,14-15".to_owned()),
        cordon_state: None,
        failure_stats: FailureStats::default(),
    }
}

#[test]
fn a_controller_reports_the_owners_of_its_ipus() {
    let mut ours = partition("default", 4, AttemptOutcome::Created);
    ours.metadata.name = Some("p".to_owned());
    let states = vec![ControllerState {
        version: Some("1.18.0".to_owned()),
        cordon_state: Some(CordonState::Draining),
        ..state(controller(16, 10, None))
    }];
    let mut held = controllers::Holdings::default();
    held.add(&ours);
    held.add(&partition("x", 8, AttemptOutcome::Unknown));
    let answer = controllers::controllers(states, held);
    insta::assert_json_snapshot!(answer, @r#"
    [
      {
        "name": "pod1:8090",
        "labelKey": "vipu",
        "labelValue": "pod1",
        "hasNodes": true,
        "reachable": true,
        "reason": null,
        "totalIpus": 16,
        "usedIpus": 10,
        "usedByOthers": 6,
        "largestFree": 0,
        "freeIpus": "4-7,14-15",
        "serverVersion": "1.18.0",
        "cordonState": "draining",
        "partitionCount": 1,
        "otherCount": 1,
        "failureStats": {
          "failedPartitions": 0,
          "autoResets": 0,
          "devices": []
        },
        "partitions": [
          {
            "name": "p",
            "id": "p-mnist",
            "owner": {
              "apiVersion": "graphcore.ai/v1alpha1",
              "kind": "IPUJob",
              "namespace": "default",
              "name": "mnist",
              "uid": "uid"
            },
            "ipus": 4,
            "phase": "Pending"
          }
        ],
        "others": [
          {
            "id": "by-hand",
            "ipus": 6
          }
        ]
      }
    ]
    "#);
}

#[test]
fn everybody_sees_the_number_of_partitions_and_no_owner() {
    let mut ours = partition("team", 4, AttemptOutcome::Created);
    ours.metadata.name = Some("p".to_owned());
    if let Some(status) = &mut ours.status {
        status.controller = Some(samples::controller());
    }
    let mut cache = Cache::default();
    let heard = Event::Apply(DeserializeGuard(Ok(ours.clone())));
    cache.apply_event(heard, Timestamp::UNIX_EPOCH);
    let name = samples::controller().name;
    let mut view = controller(16, 10, None);
    view.name.clone_from(&name);
    let states = vec![state(view)];
    // By its IPUPartition, a vanished partition is on no controller, and still held.
    let mut answer = Vec::new();
    for is_vanished in [false, true] {
        if is_vanished {
            let mut lost = ours.clone();
            lost.status.as_mut().unwrap().controller = None;
            cache.apply_event(
                Event::Apply(DeserializeGuard(Ok(lost))),
                Timestamp::UNIX_EPOCH,
            );
        }
        let ours = summary::ours(cache.held());
        answer.push(summary::summaries(states.clone(), &ours));
    }
    assert_eq!(answer[0], answer[1]);
    let [one] = answer[0].as_slice() else {
        panic!("there is one controller");
    };
    assert_eq!((one.partition_count, one.other_count), (1, 1));
    assert_eq!((one.used_ipus, one.used_by_others), (10, 6));
    let text = serde_json::to_string(one).unwrap();
    for secret in ["mnist", "by-hand", "team", "uid"] {
        assert!(!text.contains(secret), "{text}");
    }
}
