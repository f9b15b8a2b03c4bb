//! The cached state of IPUPartitions after events of a watch.

use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-01T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// An object of this owner, with more or other fields.
fn object(name: &str, owner: &str, other: &Value) -> Guarded {
    let mut object = json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
        "metadata": {
            "name": name, "uid": format!("uid-of-{name}"), "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T11:00:00Z",
        },
        "spec": {
            "owner": {
                "apiVersion": "v1", "kind": "K", "namespace": "n", "name": owner, "uid": owner,
            },
            "slot": 0, "ipus": 4, "gcds": 1,
        },
    });
    json_patch::merge(&mut object, other);
    serde_json::from_value(object).unwrap()
}

fn waits(name: &str) -> Guarded {
    object(name, name, &json!({}))
}

fn ready(name: &str, owner: &str, gang: Option<u32>) -> Guarded {
    let controller = json!({
        "name": "pod1:8090", "host": "pod1", "port": 8090, "labelKey": "a", "labelValue": "b",
    });
    let status = json!({"phase": "Ready", "partitionId": "i", "controller": controller});
    let options = json!({"gangSize": gang});
    object(
        name,
        owner,
        &json!({"status": status, "spec": {"options": options}}),
    )
}

fn unreadable(name: &str) -> Guarded {
    let metadata = json!({"name": name, "uid": format!("uid-of-{name}")});
    let object = json!({"metadata": metadata, "spec": {"ipus": "four"}});
    serde_json::from_value(object).unwrap()
}

fn knowing(objects: impl IntoIterator<Item = Guarded>) -> Cache {
    let mut cache = Cache::default();
    cache.apply_event(Event::Init, now());
    for object in objects {
        cache.apply_event(Event::InitApply(object), now());
    }
    cache.apply_event(Event::InitDone, now());
    cache
}

fn names(cache: &Cache) -> Vec<String> {
    let names = cache.names().into_iter();
    names.map(|name| name.to_string()).collect()
}

#[test]
fn an_applied_object_is_returned_unchanged() {
    let applied = [waits("b"), ready("a", "o", None), unreadable("c")];
    let cache = knowing(applied.clone());
    for object in applied {
        let got = cache.get(&object.name_any()).unwrap().0;
        match (got, object.0) {
            (Ok(got), Ok(applied)) => assert_eq!(json!(got), json!(applied)),
            (Err(got), Err(applied)) => {
                assert_eq!((got.error, got.metadata), (applied.error, applied.metadata));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(cache.get("d").is_none());
    let page = |cache: &Cache, after, count| -> Vec<String> {
        let page = cache.page(after, count, |_| true).into_iter();
        page.map(|(name, _)| name.to_string()).collect()
    };
    assert_eq!(page(&cache, None, 2), ["a", "b"]);
    assert_eq!(page(&cache, Some("a"), 9), ["b", "c"]);
    assert_eq!(page(&cache, Some("c"), 9), [""; 0]);
    let readable = cache.page(None, 9, |_| true).into_iter();
    let readable: Vec<_> = readable.map(|(_, object)| object.is_some()).collect();
    assert_eq!(readable, [true, true, false]);
}

#[test]
fn what_a_new_list_does_not_name_is_gone_and_nothing_is_looked_at_before_it_is_complete() {
    let mut cache = Cache::default();
    assert_eq!(cache.apply_event(Event::Init, now()), None);
    assert_eq!(cache.apply_event(Event::InitApply(waits("a")), now()), None);
    assert_eq!(cache.apply_event(Event::InitDone, now()), Some(Change::All));
    let of = |name: &str| Some(Change::Of(name.into()));
    assert_eq!(cache.apply_event(Event::Apply(waits("b")), now()), of("b"));
    let changes = cache.changes();
    cache.apply_event(Event::Init, now());
    cache.apply_event(Event::InitApply(waits("c")), now());
    assert_eq!(
        names(&cache),
        ["a", "b", "c"],
        "the old ones may still be there"
    );
    cache.apply_event(Event::InitDone, now());
    assert_eq!(names(&cache), ["c"]);
    assert!(cache.changes() > changes);
    let changes = cache.changes();
    for _ in 0..2 {
        assert_eq!(cache.apply_event(Event::Delete(waits("c")), now()), None);
        assert_eq!(cache.changes(), changes + 1, "twice is once");
    }
    assert_eq!(names(&cache), [""; 0]);
}

#[test]
fn the_queue_is_the_same_as_that_of_the_objects_themselves() {
    let lacking = json!({
        "metadata": {"creationTimestamp": "2026-01-01T11:50:00Z"},
        "spec": {"options": {"gangSize": 3}, "slot": 1},
        "status": {"phase": "Pending", "generation": 1},
    });
    let leaving = json!({
        "metadata": {"deletionTimestamp": NOW}, "spec": {"options": {"gangSize": 3}, "slot": 2},
    });
    let all = [
        ready("a", "gang", Some(3)),
        object("b", "gang", &lacking),
        object("c", "gang", &leaving),
        waits("d"),
        ready("e", "other", None),
        unreadable("f"),
    ];
    let readable: Vec<IPUPartition> = all.iter().filter_map(|one| one.0.clone().ok()).collect();
    let entries = queue::entries(readable.iter(), now());
    assert_eq!(entries.len(), 2);
    assert_eq!(
        (
            entries[0].position.name.as_ref(),
            entries[0].missing_members
        ),
        ("a", 1)
    );
    assert_eq!(knowing(all).queue(now()), entries);
}

#[test]
fn what_is_asked_of_all_finds_the_few_that_are_wanted() {
    let controller = json!({
        "name": "pod2:8090", "host": "pod2", "port": 8090, "labelKey": "a", "labelValue": "b",
    });
    let attempt = json!({"controller": controller, "id": "i", "outcome": "unknown"});
    let asked = json!({"status": {"phase": "Creating", "attempts": [attempt]}});
    let all = [
        ready("a", "o", None),
        object("b", "o", &asked),
        object("c", "p", &json!({})),
        unreadable("d"),
    ];
    let cache = knowing(all);
    let some = |is_wanted: &dyn Fn(&Brief) -> bool| -> Vec<String> {
        let some = cache.some(is_wanted).into_iter();
        some.map(|one| one.name_any()).collect()
    };
    assert_eq!(some(&|one| one.is_of(Uid::of("o"))), ["a", "b"]);
    assert_eq!(some(&|one| !one.requested.is_empty()), ["b"]);
    assert_eq!(
        some(&|one| one.controller.as_deref() == Some("pod1:8090")),
        ["a"]
    );
    assert_eq!(some(&|_| true), ["a", "b", "c"], "one cannot be read");
    assert_eq!(cache.names_of(|one| one.phase.is_none()).len(), 1);
    let siblings = cache.briefs().map(|(one, _)| one.sibling);
    let placed: Vec<_> = siblings.map(|one| one.is_placed).collect();
    assert_eq!(placed, [true, true, false, false]);
}

#[test]
fn a_request_with_an_unknown_outcome_is_unsettled_whoever_has_made_it() {
    let other = |outcome: &str| {
        let controller = json!({
            "name": "pod1:8090", "host": "pod1", "port": 8090, "labelKey": "a", "labelValue": "b",
        });
        let attempts = json!([{"controller": controller, "id": "p-1", "outcome": outcome}]);
        object("a", "a", &json!({"status": {"attempts": attempts}}))
    };
    let unsettled = |cache: &Cache| -> Vec<(String, u32)> {
        let all = cache.unsettled();
        all.map(|(name, ipus)| (name.to_owned(), ipus)).collect()
    };
    for (outcome, expected) in [("unknown", 1), ("created", 0), ("removed", 0)] {
        let expected = vec![("pod1:8090".to_owned(), 4); expected];
        assert_eq!(unsettled(&knowing([other(outcome)])), expected, "{outcome}");
        let mut cache = knowing([]);
        cache.apply_other(&other(outcome).0.unwrap());
        assert_eq!(unsettled(&cache), expected, "{outcome}, of another release");
        let held = cache.allocations().held().count();
        assert_eq!(held, usize::from(outcome == "created"), "{outcome}");
    }
}

#[test]
fn names_that_nobody_has_any_more_are_not_kept() {
    let on = |name: &str, controller: &str| {
        let controller = json!({"status": {"controller": {"name": controller}}});
        let mut object = json!(ready(name, "o", None).0.unwrap());
        json_patch::merge(&mut object, &controller);
        serde_json::from_value::<Guarded>(object).unwrap()
    };
    let mut cache = knowing([on("a", "pod1"), on("b", "pod1")]);
    assert_eq!(cache.words.count(), 2, "a controller and a namespace");
    for controller in ["pod2", "pod3", "pod4"] {
        cache.apply_event(Event::Apply(on("a", controller)), now());
    }
    assert!(cache.words.count() <= 4, "{:?}", cache.words);
}

#[test]
fn what_is_held_is_held_until_an_object_that_can_be_read_says_otherwise() {
    let controller = json!({
        "name": "pod1:8090", "host": "pod1", "port": 8090, "labelKey": "a", "labelValue": "b",
    });
    let with = |outcome: &str| {
        let attempts = json!([{"controller": controller, "id": "p-1", "outcome": outcome}]);
        object("a", "a", &json!({"status": {"attempts": attempts}}))
    };
    let mut cache = knowing([with("created")]);
    let seen = |cache: &Cache| {
        let held: Vec<_> = cache.allocations().controllers().collect();
        (held.len(), cache.released())
    };
    assert_eq!(seen(&cache), (1, 0));
    for _ in 0..2 {
        cache.apply_event(Event::Apply(unreadable("a")), now());
        assert_eq!(seen(&cache), (1, 0));
    }
    cache.apply_event(Event::Apply(with("removed")), now());
    assert_eq!(seen(&cache), (0, 1));
    cache.apply_event(Event::Apply(with("created")), now());
    cache.apply_event(Event::Delete(with("created")), now());
    assert_eq!(seen(&cache), (0, 2));
    cache.apply_event(Event::Apply(with("created")), now());
    cache.apply_event(Event::Init, now());
    cache.apply_event(Event::InitDone, now());
    assert_eq!(seen(&cache), (0, 3), "it is not in the new list");
}

#[test]
fn an_unreadable_object_does_not_inherit_what_another_one_of_its_name_held() {
    let controller = json!({
        "name": "pod1:8090", "host": "pod1", "port": 8090, "labelKey": "a", "labelValue": "b",
    });
    let attempts = json!([{"controller": controller, "id": "p-1", "outcome": "created"}]);
    let deleted = json!({"metadata": {"uid": "deleted"}, "status": {"attempts": attempts}});
    let deleted = object("a", "a", &deleted);
    let mut of_other = knowing([]);
    of_other.apply_other(&deleted.0.clone().unwrap());
    for mut cache in [knowing([deleted]), of_other] {
        assert_eq!(cache.allocations().controllers().count(), 1);
        cache.apply_event(Event::Init, now());
        cache.apply_event(Event::InitApply(unreadable("a")), now());
        cache.apply_event(Event::InitDone, now());
        assert_eq!(cache.allocations().controllers().count(), 0);
    }
}
