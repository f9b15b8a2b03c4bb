//! The status of controllers that answer, do not answer, have left the list, and are drained.

use vipu_client::failure_stats::FailureStats;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn observed(cause: Option<&str>) -> Observed {
    let is_up = cause.is_none();
    Observed {
        address: "pod1:8090".to_owned(),
        partitions: 2,
        unsettled: 0,
        is_used: true,
        duplicate_of: None,
        listed: Some(Listed {
            summary: Summary {
                name: "pod1:8090".to_owned(),
                label_key: "ipunode".to_owned(),
                label_value: "pod1".to_owned(),
                has_nodes: true,
                reachable: is_up,
                reason: cause.map(ToOwned::to_owned),
                total_ipus: if is_up { 64 } else { 0 },
                used_ipus: if is_up { 20 } else { 0 },
                used_by_others: if is_up { 12 } else { 0 },
                largest_free: if is_up { 32 } else { 0 },
                free_ipus: None,
                server_version: Some("1.18.0".to_owned()),
                cordon_state: None,
                partition_count: 2,
                other_count: usize::from(is_up),
                failure_stats: FailureStats {
                    failed_partitions: 3,
                    auto_resets: 1,
                    devices: Vec::new(),
                },
            },
            nodes: 4,
            last_failure: Some(at(-5) + jiff::SignedDuration::from_millis(1)),
            fit: Fit {
                largest: if is_up { 16 } else { 0 },
                reserved_for: is_up.then(|| "default/large".to_owned()),
            },
        }),
    }
}

fn spec(cordon_state: CordonState, generation: i64) -> ObservedSpec {
    ObservedSpec {
        cordon_state: Some(cordon_state),
        generation: Some(generation),
    }
}

fn said(status: &VIPUControllerStatus) -> Vec<(&str, &str, &str, i64)> {
    let conditions = status.conditions.iter();
    let shown = conditions.map(|one| {
        let since = one.last_transition_time.0.as_second() - 1_800_000_000;
        (&*one.type_, &*one.status, &*one.reason, since)
    });
    shown.collect()
}

#[test]
fn a_reachable_controller_is_reported_as_it_is() {
    let status = desired(&observed(None), None, ObservedSpec::default(), at(0));
    insta::assert_json_snapshot!(status, @r#"
    {
      "address": "pod1:8090",
      "summary": "Ready",
      "labelKey": "ipunode",
      "labelValue": "pod1",
      "nodes": 4,
      "serverVersion": "1.18.0",
      "ipus": {
        "total": 64,
        "used": 20,
        "usedByOthers": 12,
        "largestFree": 32,
        "largestFit": 16
      },
      "reservedFor": "default/large",
      "partitions": 2,
      "otherPartitions": 1,
      "lastDay": {
        "failedPartitions": 3,
        "autoResets": 1,
        "last": "2027-01-15T07:59:55Z"
      },
      "conditions": [
        {
          "lastTransitionTime": "2027-01-15T08:00:00Z",
          "message": "it answers",
          "reason": "Reachable",
          "status": "True",
          "type": "Ready"
        },
        {
          "lastTransitionTime": "2027-01-15T08:00:00Z",
          "message": "it is in the list of V-IPU controllers",
          "reason": "ControllerListed",
          "status": "True",
          "type": "Listed"
        }
      ]
    }
    "#);
    let read: VIPUControllerStatus =
        serde_json::from_value(serde_json::to_value(&status).unwrap()).unwrap();
    let again = desired(&observed(None), Some(&read), ObservedSpec::default(), at(7));
    assert_eq!(change(Some(&read), &again), Change::Nothing);
}

#[test]
fn one_that_does_not_answer_or_left_the_list_keeps_what_is_known() {
    let ready = desired(&observed(None), None, ObservedSpec::default(), at(0));
    let down = observed(Some("connection refused"));
    let not_ready = desired(&down, Some(&ready), ObservedSpec::default(), at(10));
    assert_eq!(not_ready.summary, "NotReady");
    let last_known = ControllerIpus {
        largest_fit: Some(0),
        ..ready.ipus
    };
    assert_eq!(
        (not_ready.ipus, &not_ready.reserved_for),
        (last_known, &None)
    );
    assert_eq!(not_ready.other_partitions, 1);
    assert_eq!(
        said(&not_ready),
        [
            ("Ready", "False", "Unreachable", 10),
            ("Listed", "True", "ControllerListed", 0)
        ]
    );
    let left = Observed {
        partitions: 1,
        listed: None,
        ..down
    };
    let unlisted = desired(
        &left,
        Some(&not_ready),
        spec(CordonState::Cordoned, 2),
        at(20),
    );
    assert_eq!(unlisted.summary, "Unlisted,Cordoned");
    assert_eq!((unlisted.partitions, unlisted.nodes), (1, 4));
    assert_eq!((unlisted.ipus.total, unlisted.ipus.largest_free), (64, 0));
    assert_eq!(
        said(&unlisted),
        [
            ("Ready", "False", "ControllerNotListed", 10),
            ("Listed", "False", "ControllerNotListed", 20)
        ]
    );
}

#[test]
fn one_that_left_the_list_says_why_it_still_has_an_object() {
    let mut observed = observed(None);
    observed.listed = None;
    let cordoned = spec(CordonState::Cordoned, 1);
    for (is_used, spec, expected) in [
        (true, cordoned, "partitions of the operator are still on it"),
        (false, cordoned, "its object keeps the cordon; uncordon it"),
        (
            false,
            ObservedSpec::default(),
            "entries of the list cannot be read",
        ),
    ] {
        observed.is_used = is_used;
        let status = desired(&observed, None, spec, at(0));
        for condition in &status.conditions {
            let message = &condition.message;
            assert!(message.contains(expected), "{message}");
            assert_eq!(condition.reason, "ControllerNotListed");
        }
    }
}

#[test]
fn a_second_name_counts_nothing_and_says_which_entry_to_remove() {
    let before = desired(&observed(None), None, ObservedSpec::default(), at(0));
    let second = Observed {
        partitions: 0,
        duplicate_of: Some("pod.example.com:8090".to_owned()),
        listed: None,
        ..observed(None)
    };
    let drain = spec(CordonState::Draining, 2);
    let status = desired(&second, Some(&before), drain, at(9));
    assert_eq!(status.summary, "Duplicate,Draining");
    assert_eq!((status.ipus.total, status.other_partitions), (0, 0));
    assert_eq!(
        said(&status),
        [
            ("Ready", "False", "SecondName", 9),
            ("Listed", "False", "SecondName", 9),
            ("Drained", "False", "SecondName", 9),
        ]
    );
    let message = &status.conditions[0].message;
    let fix = "remove the entry of pod1:8090 from controllers.yaml in the ConfigMap of the list";
    assert!(message.contains(fix), "{message}");
}

#[test]
fn one_that_is_drained_says_when_nothing_is_left_on_it() {
    let drain = spec(CordonState::Draining, 2);
    let mut observed = observed(None);
    let draining = desired(&observed, None, drain, at(0));
    assert_eq!(draining.summary, "Ready,Draining");
    assert_eq!(
        said(&draining)[2],
        ("Drained", "False", "PartitionsLeft", 0)
    );
    observed.partitions = 0;
    let drained = desired(&observed, Some(&draining), drain, at(9));
    assert_eq!(
        said(&drained)[2],
        ("Drained", "True", "NoPartitionsLeft", 9)
    );
    let uncordoned = desired(&observed, Some(&drained), ObservedSpec::default(), at(10));
    assert_eq!(uncordoned.summary, "Ready");
    assert_eq!(said(&uncordoned).len(), 2);
}

#[test]
fn one_is_not_drained_while_a_request_may_have_created_a_partition() {
    let mut observed = observed(None);
    for (partitions, unsettled, expected, message) in [
        (
            0,
            1,
            "False",
            "0; requests that may have created another one: 1",
        ),
        (
            1,
            1,
            "False",
            "1; requests that may have created another one: 1",
        ),
        (1, 0, "False", "1"),
        (0, 0, "True", "0"),
    ] {
        (observed.partitions, observed.unsettled) = (partitions, unsettled);
        let status = desired(&observed, None, spec(CordonState::Draining, 2), at(0));
        assert_eq!(said(&status)[2].1, expected, "{message}");
        let said = &status.conditions[2].message;
        let left = "partitions of the operator that are left on it: ";
        assert_eq!(said.strip_prefix(left), Some(message));
    }
}

#[test]
fn a_condition_says_which_spec_it_is_about() {
    let mut observed = observed(None);
    observed.partitions = 0;
    let of_spec =
        |before: &VIPUControllerStatus, spec| desired(&observed, Some(before), spec, at(9));
    let generations = |status: &VIPUControllerStatus| -> Vec<_> {
        let conditions = status.conditions.iter();
        conditions.map(|one| one.observed_generation).collect()
    };
    let drain = |generation| spec(CordonState::Draining, generation);
    let first = of_spec(&VIPUControllerStatus::default(), drain(2));
    assert_eq!(generations(&first), [Some(2); 3]);
    let second = of_spec(&first, drain(4));
    assert_eq!(generations(&second), [Some(4); 3]);
    assert_eq!(said(&second), said(&first));
    assert_eq!(change(Some(&first), &second), Change::State);
    let cordoned = of_spec(&first, spec(CordonState::Cordoned, 5));
    let again = of_spec(&cordoned, spec(CordonState::Cordoned, 6));
    assert_eq!(change(Some(&cordoned), &again), Change::Figures);
}

#[test]
fn a_change_of_state_differs_from_a_change_of_figures() {
    let before = desired(&observed(None), None, ObservedSpec::default(), at(0));
    let change_to = |observed: &Observed, cordon_state| {
        let spec = ObservedSpec {
            cordon_state,
            ..ObservedSpec::default()
        };
        let after = desired(observed, Some(&before), spec, at(5));
        change(Some(&before), &after)
    };
    assert_eq!(change(None, &before), Change::State);
    assert_eq!(change_to(&observed(None), None), Change::Nothing);
    let mut more = observed(None);
    more.partitions = 3;
    assert_eq!(change_to(&more, None), Change::Figures);
    assert_eq!(change_to(&observed(Some("down")), None), Change::State);
    let cordoned = Some(CordonState::Cordoned);
    assert_eq!(change_to(&observed(None), cordoned), Change::State);
    let after = desired(
        &observed(Some("a")),
        Some(&before),
        ObservedSpec::default(),
        at(5),
    );
    let other = desired(
        &observed(Some("b")),
        Some(&after),
        ObservedSpec::default(),
        at(6),
    );
    assert_eq!(change(Some(&after), &other), Change::Figures, "a message");
}

#[test]
fn a_patch_removes_what_is_not_known_any_more() {
    let mut status = desired(&observed(None), None, ObservedSpec::default(), at(0));
    let full = patch("uid", &status);
    assert_eq!(full["metadata"]["uid"], "uid");
    assert_eq!(full["status"]["serverVersion"], "1.18.0");
    status.server_version = None;
    status.reserved_for = None;
    status.last_day.last = None;
    let less = patch("uid", &status);
    let fields = less["status"].as_object().unwrap();
    for optional in ["serverVersion", "reservedFor"] {
        assert_eq!(fields.get(optional), Some(&Value::Null), "{optional}");
    }
    assert_eq!(fields["lastDay"].get("last"), Some(&Value::Null));
}
