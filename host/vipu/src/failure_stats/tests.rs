//! Days of trouble, each partition counted once for each time that it failed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

const POD: &str = "pod1:8090";

fn at(hours: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours)
}

fn device(number: u32) -> Device {
    Device {
        ip: "10.1.0.1".to_owned(),
        server_port: 0,
        rdma_port: 0,
        device_id: number,
        routing_id: number,
        chip_id: format!("chip-{number}"),
    }
}

fn resets(count: u32, last: Option<i64>) -> AutoResets {
    AutoResets {
        count,
        max: 3,
        last_time: last.map(|hours| Time(at(hours))),
    }
}

/// Lets a partition of these IPUs fail; answers those that have become suspect.
fn fail(log: &mut FailureLog, id: &str, devices: &[u32], hours: i64) -> Vec<String> {
    let failure_id = log.record_failure(POD, id, at(hours)).unwrap();
    let devices: Vec<_> = devices.iter().map(|&number| device(number)).collect();
    let suspects = log.record_devices(POD, failure_id, &devices, at(hours));
    suspects.into_iter().map(|one| one.device).collect()
}

#[test]
fn a_partition_counts_once_until_it_has_recovered() {
    let mut log = FailureLog::default();
    assert!(log.record_failure(POD, "p-1", at(0)).is_some());
    assert!(log.record_failure(POD, "p-1", at(1)).is_none());
    assert!(log.record_failure("pod2:8090", "p-1", at(1)).is_some());
    log.record_recovery(POD, "p-1");
    assert!(log.record_failure(POD, "p-1", at(2)).is_some());
    log.forget(POD, "p-1");
    assert_eq!(log.stats(POD, at(3)).failed_partitions, 2);
    assert_eq!(log.stats("pod3:8090", at(3)), FailureStats::default());
}

#[test]
fn what_is_a_day_old_counts_no_more() {
    let mut log = FailureLog::default();
    fail(&mut log, "p-1", &[0], 0);
    fail(&mut log, "p-2", &[0], 12);
    assert_eq!(log.stats(POD, at(23)).failed_partitions, 2);
    assert_eq!(log.last(POD, at(23)), Some(at(12)));
    assert_eq!(log.last("pod2:8090", at(23)), None);
    let later = log.stats(POD, at(24));
    assert_eq!(later.failed_partitions, 1);
    assert_eq!(later.devices[0].failures, 1);
    assert_eq!(log.stats(POD, at(36)), FailureStats::default());
    assert_eq!(log.last(POD, at(36)), None);
    log.record_resets(POD, "p-3", &resets(1, Some(40)), at(41));
    assert_eq!(log.last(POD, at(42)), Some(at(41)));
}

#[test]
fn an_ipu_in_three_failures_is_suspect_and_reported_once() {
    let mut log = FailureLog::default();
    assert!(fail(&mut log, "p-1", &[0, 1], 0).is_empty());
    assert!(fail(&mut log, "p-2", &[1, 2], 1).is_empty());
    assert_eq!(
        fail(&mut log, "p-3", &[1, 3], 2),
        ["IPU 1 of 10.1.0.1 (chip chip-1)"]
    );
    assert!(fail(&mut log, "p-4", &[1], 3).is_empty());
    let failure_stats = log.stats(POD, at(3));
    let counted = |one: &DeviceFailures| (one.device.clone(), one.failures);
    assert_eq!(
        counted(&failure_stats.devices[0]),
        ("IPU 1 of 10.1.0.1 (chip chip-1)".to_owned(), 4)
    );
    assert_eq!(failure_stats.devices.len(), 4);
    // Two days later it begins anew.
    for (id, expected) in [("p-5", 0), ("p-6", 0), ("p-7", 1)] {
        assert_eq!(fail(&mut log, id, &[1], 48).len(), expected, "{id}");
    }
}

#[test]
fn only_the_worst_are_reported() {
    let mut log = FailureLog::default();
    let all: Vec<u32> = (0..100).collect();
    fail(&mut log, "p-1", &all, 0);
    fail(&mut log, "p-2", &[77], 0);
    let devices = log.stats(POD, at(0)).devices;
    assert_eq!(devices.len(), DEVICES_SHOWN);
    assert_eq!(devices[0].device, "IPU 77 of 10.1.0.1 (chip chip-77)");
    assert_eq!(devices[0].failures, 2);
}

#[test]
fn resets_are_what_a_counter_has_grown_by() {
    let mut log = FailureLog::default();
    let mut count = |id: &str, resets: AutoResets, now: i64| {
        log.record_resets(POD, id, &resets, at(now));
        log.stats(POD, at(now)).auto_resets
    };
    assert_eq!(count("p-1", resets(0, None), 0), 0);
    assert_eq!(count("p-1", resets(1, Some(1)), 1), 1);
    assert_eq!(count("p-1", resets(1, Some(1)), 2), 1);
    assert_eq!(count("p-1", resets(3, Some(2)), 2), 3);
    // A user has reset it, and the counter has restarted.
    assert_eq!(count("p-1", resets(0, None), 3), 3);
    assert_eq!(count("p-1", resets(1, Some(4)), 4), 4);
    // Seen for the first time: only the last one is known to have been within the day.
    assert_eq!(count("p-2", resets(3, Some(4)), 5), 5);
    assert_eq!(count("p-3", resets(3, Some(-30)), 5), 5);
    assert_eq!(count("p-4", resets(3, None), 5), 5);
    assert_eq!(count("p-1", resets(u32::MAX, None), 6), u32::MAX);
}

#[test]
fn partitions_that_nobody_observes_again_hide_no_later_trouble() {
    let mut log = FailureLog::default();
    // Another process has removed them, so that this one never reads that they are gone.
    for number in 0..EVENTS_MAX {
        let id = format!("gone-{number}");
        assert!(log.record_failure(POD, &id, at(0)).is_some());
        log.record_resets(POD, &id, &resets(1, Some(0)), at(0));
    }
    assert!(log.record_failure(POD, "p-1", at(30)).is_some());
    assert!(log.record_failure(POD, "p-1", at(31)).is_none());
    log.record_resets(POD, "p-1", &resets(1, Some(30)), at(30));
    log.record_resets(POD, "p-1", &resets(3, Some(31)), at(31));
    let stats = log.stats(POD, at(31));
    assert_eq!((stats.failed_partitions, stats.auto_resets), (1, 3));
}

#[test]
fn a_flood_of_trouble_is_bounded() {
    let mut log = FailureLog::default();
    for number in 0..10_000 {
        let id = format!("p-{number}");
        log.record_failure(POD, &id, at(0));
        log.record_resets(POD, &id, &resets(1, Some(0)), at(0));
    }
    let all: Vec<_> = (0..u32::try_from(DEVICES_MAX).unwrap() + 10)
        .map(device)
        .collect();
    let mut other = FailureLog::default();
    for id in ["p-1", "p-2"] {
        let failure_id = other.record_failure(POD, id, at(0)).unwrap();
        other.record_devices(POD, failure_id, &all, at(0));
    }
    assert_eq!(other.controllers[POD].counts().len(), DEVICES_MAX);
    let failure_stats = log.stats(POD, at(0));
    let most = u32::try_from(EVENTS_MAX).unwrap();
    assert_eq!(
        (failure_stats.failed_partitions, failure_stats.auto_resets),
        (most, most)
    );
}
