//! Objects that come, go, change hands and are written.

mod writes;

use vipu_client::failure_stats::FailureStats;

use super::super::fit::Fit;
use super::super::status::Listed;
use super::*;
use crate::controllers::summary::Summary;

const HERE: &str = "ipu";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn listed(address: &str, used: u32) -> Observed {
    Observed {
        address: address.to_owned(),
        partitions: 1,
        unsettled: 0,
        is_used: true,
        duplicate_of: None,
        listed: Some(Listed {
            summary: Summary {
                name: address.to_owned(),
                label_key: "ipunode".to_owned(),
                label_value: "a".to_owned(),
                has_nodes: true,
                reachable: true,
                reason: None,
                total_ipus: 64,
                used_ipus: used,
                used_by_others: 0,
                largest_free: 16,
                free_ipus: None,
                server_version: None,
                cordon_state: None,
                partition_count: 1,
                other_count: 0,
                failure_stats: FailureStats::default(),
            },
            nodes: 1,
            last_failure: None,
            fit: Fit {
                largest: 16,
                reserved_for: None,
            },
        }),
    }
}

fn left(address: &str) -> Observed {
    Observed {
        listed: None,
        ..listed(address, 0)
    }
}

fn emptied(address: &str) -> Observed {
    Observed {
        partitions: 0,
        is_used: false,
        ..left(address)
    }
}

fn object(release: Option<&str>, status: Option<VIPUControllerStatus>) -> Object {
    Object {
        uid: "uid".to_owned(),
        resource_version: "1".to_owned(),
        release: release.map(ToOwned::to_owned),
        spec: ObservedSpec::default(),
        status,
        is_deleted: false,
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "an object may have no status, and each row says what it has"
)]
fn written(observed: &Observed) -> Option<VIPUControllerStatus> {
    Some(status::desired(
        observed,
        None,
        ObservedSpec::default(),
        at(0),
    ))
}

/// The plan for controllers and the objects with their names, where another release is in the
/// namespace `other`.
fn planned(controllers: &[Observed], objects: &[(&str, Object)]) -> Plan {
    let objects = objects.iter().cloned();
    let objects = objects.map(|(name, object)| (name.to_owned(), object));
    plan(&Facts {
        release: HERE,
        other_releases: Some(&BTreeSet::from(["other".to_owned()])),
        controllers,
        is_list_current: true,
        has_bad_entries: false,
        objects: &objects.collect(),
        written: &BTreeMap::new(),
        now: at(100),
    })
}

/// The facts of the only release, whose list is current.
fn alone<'a>(
    controllers: &'a [Observed],
    objects: &'a BTreeMap<String, Object>,
    written: &'a BTreeMap<String, Timestamp>,
    now: i64,
) -> Facts<'a> {
    Facts {
        release: HERE,
        other_releases: None,
        controllers,
        is_list_current: true,
        has_bad_entries: false,
        objects,
        written,
        now: at(now),
    }
}

/// The verb of each action.
fn verbs(plan: &Plan) -> Vec<(&str, &'static str)> {
    let actions = plan.actions.iter();
    let verbs = actions.map(|(name, action)| {
        let verb = match action {
            Action::Create(_) => "create",
            Action::Adopt { .. } => "adopt",
            Action::Write { .. } => "write",
            Action::Delete { .. } => "delete",
        };
        (name.as_str(), verb)
    });
    verbs.collect()
}

#[test]
fn each_controller_has_its_object() {
    let (a, b) = (listed("a:8090", 0), listed("b:8090", 0));
    for (why, controllers, objects, expected) in [
        (
            "new in the list",
            vec![a.clone(), b.clone()],
            vec![("a-8090", object(Some(HERE), written(&a)))],
            vec![("b-8090", "create")],
        ),
        (
            "one that left before there were objects, and holds partitions",
            vec![left("c:8090")],
            vec![],
            vec![("c-8090", "create")],
        ),
        (
            "in the list twice",
            vec![a.clone(), a.clone()],
            vec![],
            vec![("a-8090", "create")],
        ),
        (
            "out of the list, and empty",
            vec![],
            vec![("a-8090", object(Some(HERE), written(&a)))],
            vec![("a-8090", "delete")],
        ),
        (
            "out of the list, with partitions",
            vec![left("a:8090")],
            vec![("a-8090", object(Some(HERE), written(&a)))],
            vec![("a-8090", "write")],
        ),
        (
            "created by an admin before it is in the list",
            vec![],
            vec![("a-8090", object(None, None))],
            vec![],
        ),
        (
            "created by an admin, and in the list now",
            vec![a.clone()],
            vec![("a-8090", object(None, None))],
            vec![("a-8090", "adopt")],
        ),
        (
            "its status was lost in a restore",
            vec![a.clone()],
            vec![("a-8090", object(Some(HERE), None))],
            vec![("a-8090", "write")],
        ),
        (
            "nothing new",
            vec![a.clone()],
            vec![("a-8090", object(Some(HERE), written(&a)))],
            vec![],
        ),
    ] {
        assert_eq!(verbs(&planned(&controllers, &objects)), expected, "{why}");
    }
}

#[test]
fn an_object_whose_controller_left_the_list_is_kept_for_its_cordon_and_while_the_list_has_mistakes()
{
    let cordon = |cordon_state: CordonState| ObservedSpec {
        cordon_state: Some(cordon_state),
        generation: Some(2),
    };
    let (plain, write) = (ObservedSpec::default(), &[("a-8090", "write")][..]);
    let status = written(&listed("a:8090", 0));
    for (spec, status, is_current, has_bad_entries, expected) in [
        (plain, &status, true, false, &[("a-8090", "delete")][..]),
        (plain, &status, true, true, write),
        (cordon(CordonState::Cordoned), &status, true, false, write),
        (cordon(CordonState::Draining), &status, true, true, write),
        (cordon(CordonState::Draining), &None, true, false, &[][..]),
        // An outdated list does not prove that a controller has left it.
        (
            cordon(CordonState::Cordoned),
            &status,
            false,
            false,
            &[][..],
        ),
    ] {
        let mut object = object(Some(HERE), status.clone());
        object.spec = spec;
        let objects = BTreeMap::from([("a-8090".to_owned(), object)]);
        let addresses = addresses(&objects, HERE);
        let controllers: Vec<_> = addresses.map(|one| emptied(one)).collect();
        assert_eq!(controllers.len(), usize::from(status.is_some()));
        let plan = plan(&Facts {
            release: HERE,
            other_releases: None,
            controllers: &controllers,
            is_list_current: is_current,
            has_bad_entries,
            objects: &objects,
            written: &BTreeMap::new(),
            now: at(100),
        });
        let what = (spec, is_current, has_bad_entries);
        assert_eq!(verbs(&plan), expected, "{what:?}");
        if let Some((_, Action::Write { status, .. })) = plan.actions.first() {
            assert!(status.summary.starts_with("Unlisted"), "{what:?}");
        }
    }
}

#[test]
fn the_address_of_an_object_is_that_of_its_status_if_its_name_agrees() {
    let objects = [
        ("a-8090", object(Some(HERE), written(&left("a:8090")))),
        ("b-8090", object(Some(HERE), written(&left("a:8090")))),
        ("c-8090", object(Some("other"), written(&left("c:8090")))),
        ("d-8090", object(Some(HERE), None)),
    ];
    let objects = objects.map(|(name, object)| (name.to_owned(), object));
    let objects = BTreeMap::from(objects);
    let found: Vec<_> = addresses(&objects, HERE).collect();
    assert_eq!(found, ["a:8090"]);
}

#[test]
fn what_is_being_deleted_is_left_alone_and_nothing_is_deleted_by_an_old_list() {
    let a = listed("a:8090", 0);
    let mut deleted = object(Some(HERE), None);
    deleted.is_deleted = true;
    for controllers in [vec![a.clone()], vec![]] {
        let plan = planned(&controllers, &[("a-8090", deleted.clone())]);
        assert_eq!(plan, Plan::default());
    }
    let objects = BTreeMap::from([("a-8090".to_owned(), object(Some(HERE), written(&a)))]);
    let facts = Facts {
        release: HERE,
        other_releases: None,
        controllers: &[],
        is_list_current: false,
        has_bad_entries: false,
        objects: &objects,
        written: &BTreeMap::new(),
        now: at(100),
    };
    assert_eq!(plan(&facts), Plan::default());
}

#[test]
fn an_object_of_another_release_is_left_alone_while_that_release_is_there() {
    let a = listed("a:8090", 0);
    let unlisted = written(&left("a:8090"));
    for (why, controller, release, status, expected) in [
        ("it is there", a.clone(), "other", written(&a), None),
        (
            "it was uninstalled",
            a.clone(),
            "former",
            written(&a),
            Some("adopt"),
        ),
        (
            "its list no longer contains the controller",
            a.clone(),
            "other",
            unlisted.clone(),
            Some("adopt"),
        ),
        (
            "no list has the controller any more",
            left("a:8090"),
            "other",
            unlisted,
            None,
        ),
    ] {
        let plan = planned(&[controller], &[("a-8090", object(Some(release), status))]);
        let verbs = verbs(&plan).into_iter().map(|(_, verb)| verb).next();
        assert_eq!(verbs, expected, "{why}");
        assert_eq!(plan.of_others.is_empty(), expected.is_some(), "{why}");
    }
    let unknown = Facts {
        release: HERE,
        other_releases: None,
        controllers: std::slice::from_ref(&a),
        is_list_current: true,
        has_bad_entries: false,
        objects: &BTreeMap::from([("a-8090".to_owned(), object(Some("former"), written(&a)))]),
        written: &BTreeMap::new(),
        now: at(100),
    };
    let plan = plan(&unknown);
    assert_eq!(plan.actions, []);
    assert_eq!(plan.of_others["a-8090"], "former");
}

#[test]
fn a_state_is_written_at_once_and_figures_after_ten_seconds() {
    let before = listed("a:8090", 0);
    let mut down = before.clone();
    let summary = &mut down.listed.as_mut().unwrap().summary;
    (summary.reachable, summary.reason) = (false, Some("down".to_owned()));
    let mut cordoned = object(Some(HERE), written(&before));
    cordoned.spec.cordon_state = Some(CordonState::Cordoned);
    let plain = object(Some(HERE), written(&before));
    for (why, observed, object, age, is_written) in [
        ("figures", listed("a:8090", 4), &plain, 9, false),
        ("figures", listed("a:8090", 4), &plain, 10, true),
        ("a clock set back", listed("a:8090", 4), &plain, -60, true),
        ("it is down", down, &plain, 1, true),
        ("cordoned", before, &cordoned, 1, true),
    ] {
        let objects = BTreeMap::from([("a-8090".to_owned(), object.clone())]);
        let written = BTreeMap::from([("a-8090".to_owned(), at(100 - age))]);
        let plan = plan(&alone(&[observed], &objects, &written, 100));
        assert_eq!(!plan.actions.is_empty(), is_written, "{why}, {age} s");
    }
}
