//! Use of IPU-hours, by namespace, V-IPU controller and state.

use insta::assert_snapshot;
use ipu_api::ipuaccounting::IPUAccounting;
use ipu_api::vipu_controller::VIPUController;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Goodput, GoodputBy, Since, accounted, csv, goodput, text};

/// Half past the hour.
fn now() -> Timestamp {
    "2026-01-02T10:30:00Z".parse().unwrap()
}

/// A period with IPU-seconds that are whole hours.
fn period(start: &str, namespaces: &[(&str, u32, u32)], free: u32, unknown: u32) -> Value {
    let namespaces = namespaces.iter().map(|(namespace, running, idle)| {
        json!({
            "namespace": namespace, "forming": 1_800, "waitingPods": 0, "running": running * 3_600,
            "resetting": 0, "idleAllocated": idle * 3_600, "releasing": 1_800,
        })
    });
    json!({
        "start": start,
        "unallocated": {
            "free": free * 3_600, "stranded": 3_600, "unhealthy": 0, "others": 0,
            "unknown": unknown * 3_600,
        },
        "namespaces": namespaces.collect::<Vec<_>>(),
    })
}

fn controller(name: &str) -> VIPUController {
    let object = json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "VIPUController",
        "metadata": {"name": format!("{name}-8090")},
        "spec": {},
        "status": {"address": format!("{name}:8090"), "summary": "Ready"},
    });
    serde_json::from_value(object).unwrap()
}

fn record(name: &str, mut accounting: Value) -> IPUAccounting {
    accounting["address"] = json!(format!("{name}:8090"));
    let object = json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUAccounting",
        "metadata": {"name": format!("{name}-8090")},
        "spec": accounting,
    });
    serde_json::from_value(object).unwrap()
}

/// Two V-IPU controllers and one that has no accounting yet.
fn controllers() -> [VIPUController; 3] {
    ["pod1", "pod2", "pod3"].map(controller)
}

/// The accountings of two V-IPU controllers, one of which is counted since today.
fn records() -> [IPUAccounting; 2] {
    let old = period("2026-01-01T09:00:00Z", &[("team-z", 100, 0)], 0, 0);
    let first = period("2026-01-01T10:00:00Z", &[("team-a", 10, 2)], 3, 1);
    let last = period(
        "2026-01-02T10:00:00Z",
        &[("team-a", 5, 0), ("team-b", 8, 1), ("", 1, 0)],
        2,
        0,
    );
    let yesterday = period("2026-01-01T00:00:00Z", &[("team-a", 110, 2)], 3, 1);
    let today = period("2026-01-02T00:00:00Z", &[("team-b", 8, 1)], 2, 0);
    let pod1 = json!({
        "since": "2025-12-01T00:00:00Z",
        "until": "2026-01-02T10:29:00Z",
        "total": period("2025-12-01T00:00:00Z", &[("team-a", 1_000, 0)], 500, 5),
        "hours": [old, first, last],
        "days": [yesterday, today],
    });
    let short = period("2026-01-02T10:00:00Z", &[("team-b", 2, 0)], 1, 0);
    let pod2 = json!({
        "since": "2026-01-02T10:05:00Z",
        "until": "2026-01-02T10:29:30Z",
        "total": short,
        "hours": [short],
        "days": [short],
    });
    [record("pod1", pod1), record("pod2", pod2)]
}

fn counted(since: Since, by: GoodputBy) -> Goodput {
    goodput(&accounted(&controllers(), &records()), since, by, now())
}

#[test]
fn a_day_by_namespace() {
    let report = counted(Since::Hours(24), GoodputBy::Namespace);
    assert_snapshot!(text(&report, false));
}

#[test]
fn a_day_by_controller_in_wide_form() {
    let report = counted(Since::Hours(24), GoodputBy::Controller);
    assert_snapshot!(text(&report, true));
}

#[test]
fn a_day_by_state() {
    let report = counted(Since::Hours(24), GoodputBy::State);
    assert_snapshot!(text(&report, false));
}

#[test]
fn a_day_as_csv() {
    let records = records();
    let known = accounted(&controllers(), &records);
    assert_snapshot!(csv(&known, Since::Hours(24), now()));
}

#[test]
fn hours_days_and_all_time_are_summed_up_from_their_own_periods() {
    for (since, running, from) in [
        (Since::Hours(1), 16.0, "2026-01-02T10:00:00Z"),
        (Since::Hours(24), 26.0, "2026-01-01T10:00:00Z"),
        (Since::Hours(25), 126.0, "2026-01-01T09:00:00Z"),
        (Since::Hours(26), 120.0, "2026-01-01T00:00:00Z"),
        (Since::Days(1), 120.0, "2026-01-01T00:00:00Z"),
        (Since::All, 1_002.0, "2025-12-01T00:00:00Z"),
    ] {
        let report = json!(counted(since, GoodputBy::Namespace));
        assert_eq!(report["total"]["running"], json!(running), "{since:?}");
        assert_eq!(report["from"], from, "{since:?}");
    }
}

#[test]
fn the_states_add_up_to_all_ipu_hours() {
    let report = counted(Since::Hours(24), GoodputBy::State);
    let all: f64 = report.states.iter().map(|one| one.hours).sum();
    let unallocated = &report.unallocated_total;
    let expected = report.total.total
        + unallocated.free
        + unallocated.stranded
        + unallocated.unhealthy
        + unallocated.others
        + unallocated.unknown;
    assert!((all - expected).abs() < 1e-6, "{all} and {expected}");
    let shares: f64 = report.states.iter().map(|one| one.share).sum();
    assert!((shares - 1.0).abs() < 1e-3, "{shares}");
}

#[test]
fn without_an_accounting_nothing_is_counted_and_that_is_said() {
    let none = accounted(&[controller("pod3")], &[]);
    let report = goodput(&none, Since::Hours(24), GoodputBy::Namespace, now());
    let text = text(&report, false);
    for part in [
        "No accounting covers this time.",
        "pod3:8090 has no accounting yet",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(report.total.goodput, None);
}

#[test]
fn a_controller_that_has_left_the_list_counts_as_long_as_its_time_is_asked_about() {
    let records = records();
    let known = accounted(&[controller("pod1")], &records);
    let of = |since, now: Timestamp| {
        let report = goodput(&known, since, GoodputBy::Controller, now);
        let names: Vec<_> = report.rows.into_iter().map(|row| row.name).collect();
        (names, report.notes)
    };
    let (names, _) = of(Since::Hours(24), now());
    assert_eq!(names, ["pod1:8090", "pod2:8090"]);
    let (names, notes) = of(Since::Hours(1), "2026-02-02T10:30:00Z".parse().unwrap());
    assert!(names.is_empty(), "{names:?}");
    let note = "pod1:8090 is not counted: its accounting ended at 2026-01-02T10:29:00Z";
    assert_eq!(notes, [note]);
}
