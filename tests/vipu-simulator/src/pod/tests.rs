//! Tables for the simulated pod: one fixture, one change, one outcome.

use super::*;

fn at(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap()
}

fn pod() -> Pod {
    Pod::new(
        "pod1",
        16,
        Timings {
            forming_ms: 100,
            removing_ms: 10,
            resetting_ms: 20,
        },
    )
}

fn spec(id: &str, ipus: u32) -> PartitionSpec {
    PartitionSpec {
        id: id.to_owned(),
        ipus,
        ..PartitionSpec::default()
    }
}

fn stage(pod: &mut Pod, id: &str, now: i64) -> Stage {
    pod.partition(id, at(now)).unwrap().stage
}

#[test]
fn a_partition_is_formed_reset_and_removed() {
    let mut pod = pod();
    assert_eq!(pod.create(&spec("p", 4), None, at(0)), Ok(at(100)));
    assert_eq!(stage(&mut pod, "p", 99), Stage::Creating(at(100)));
    assert_eq!(pod.free(at(99)), (12, 8));
    assert_eq!(stage(&mut pod, "p", 100), Stage::Active);
    assert_eq!(pod.reset("p", false, at(200)), Ok(at(220)));
    assert_eq!(stage(&mut pod, "p", 219), Stage::Resetting(at(220)));
    assert_eq!(stage(&mut pod, "p", 220), Stage::Active);
    assert_eq!(pod.remove("p", false, at(300)), Ok(at(310)));
    assert_eq!(stage(&mut pod, "p", 309), Stage::Removing(at(310)));
    assert_eq!(pod.free(at(309)), (12, 8));
    let gone = pod.partition("p", at(310)).unwrap_err();
    assert_eq!(gone, Rejection::Unknown("p".to_owned()));
    assert_eq!(pod.free(at(310)), (16, 16));
}

#[test]
fn the_time_of_ipus_in_partitions_is_exact() {
    let mut pod = pod();
    assert_eq!(pod.occupancy(at(5)), Occupancy::default());
    pod.create(&spec("removed", 4), None, at(10)).unwrap();
    pod.create(&spec("forgotten", 2), None, at(20)).unwrap();
    pod.create(&spec("left", 1), None, at(40)).unwrap();
    pod.forget("forgotten", at(50)).unwrap();
    pod.remove("removed", false, at(200)).unwrap();
    let expected = |ipu_milliseconds| Occupancy {
        ipus: 7,
        ipu_milliseconds,
    };
    assert_eq!(pod.occupancy(at(205)), expected(4 * 195 + 2 * 30 + 165));
    // The removal ended at 210, no matter when the state is read.
    assert_eq!(pod.occupancy(at(1_000)), expected(4 * 200 + 2 * 30 + 960));
    assert!(pod.create(&spec("refused", 32), None, at(1_000)).is_err());
    assert_eq!(pod.occupancy(at(1_000)).ipus, 7);
}

#[test]
fn work_that_is_under_way_can_be_ended_at_once() {
    let mut pod = pod();
    for id in ["formed", "removed"] {
        pod.create(&spec(id, 4), None, at(0)).unwrap();
    }
    pod.remove("removed", false, at(1)).unwrap();
    pod.finish(at(2));
    assert_eq!(stage(&mut pod, "formed", 2), Stage::Active);
    assert_eq!(pod.free(at(2)), (12, 8));
}

#[test]
fn each_broken_rule_is_named() {
    type Change = fn(&mut PartitionSpec);
    let table: [(Change, &str); 9] = [
        (|w| w.id.clear(), "a partition needs an id"),
        (|w| w.ipus = 0, "size 0 is not a power of two"),
        (|w| w.ipus = 3, "size 3 is not a power of two"),
        (|w| w.gcds = 3, "3 GCDs do not divide 4 IPUs"),
        (|w| w.gcds = 8, "8 GCDs do not divide 4 IPUs"),
        (
            |w| {
                w.gcds = 2;
                w.replicas = 1;
            },
            "1 replicas do not divide 4 IPUs in 2 GCDs",
        ),
        (
            |w| w.replicas = 3,
            "3 replicas do not divide 4 IPUs in 1 GCDs",
        ),
        (
            |w| w.allocation = "other".to_owned(),
            "there is no allocation \"other\"",
        ),
        (
            |w| w.ipus = 32,
            "no 32 connected IPUs are free: the largest free block has 16",
        ),
    ];
    for (change, text) in table {
        let mut spec = spec("p", 4);
        change(&mut spec);
        let rejection = pod().create(&spec, None, at(0)).unwrap_err();
        assert_eq!(rejection.to_string(), text);
    }
}

#[test]
fn a_partition_is_in_the_named_cluster() {
    let names = ["c1", "c2"].map(str::to_owned);
    let mut pod = pod().with_clusters(&names);
    assert_eq!(pod.free(at(0)), (16, 8));
    let spec_in = |id: &str, ipus: u32, cluster: &str| PartitionSpec {
        cluster: cluster.to_owned(),
        ..spec(id, ipus)
    };
    for (id, cluster, first) in [("p", "c2", 8), ("q", "c1", 0)] {
        pod.create(&spec_in(id, 8, cluster), None, at(0)).unwrap();
        let partition = pod.partition(id, at(0)).unwrap();
        assert_eq!(
            (&*partition.cluster, partition.block.first),
            (cluster, first)
        );
    }
    for (cluster, text) in [
        (
            "c1",
            "no 1 connected IPUs are free: the largest free block has 0",
        ),
        ("c3", "there is no cluster \"c3\""),
        (
            "",
            "the pod has several clusters, and the request names none",
        ),
    ] {
        let rejection = pod.create(&spec_in("r", 1, cluster), None, at(0));
        assert_eq!(rejection.unwrap_err().to_string(), text);
    }
}

#[test]
fn gcds_and_replicas_have_their_defaults() {
    let mut pod = pod();
    let mut spec = spec("p", 8);
    pod.create(&spec, None, at(0)).unwrap();
    let partition = pod.partition("p", at(0)).unwrap();
    assert_eq!((partition.gcds, partition.replicas), (1, 1));
    spec.id = "q".to_owned();
    spec.gcds = 4;
    pod.create(&spec, None, at(0)).unwrap();
    let partition = pod.partition("q", at(0)).unwrap();
    assert_eq!((partition.gcds, partition.replicas), (4, 4));
}

#[test]
fn an_id_is_taken_until_its_partition_is_gone() {
    let mut pod = pod();
    pod.create(&spec("p", 4), None, at(0)).unwrap();
    let again = pod.create(&spec("p", 4), None, at(200));
    assert_eq!(again, Err(Rejection::Exists("p".to_owned())));
    pod.remove("p", false, at(200)).unwrap();
    assert!(pod.create(&spec("p", 4), None, at(205)).is_err());
    assert!(pod.create(&spec("p", 4), None, at(210)).is_ok());
}

#[test]
fn a_partition_is_busy_during_an_operation() {
    let mut pod = pod();
    pod.create(&spec("p", 4), None, at(0)).unwrap();
    let busy = |result: Result<Timestamp, Rejection>| {
        assert!(matches!(result, Err(Rejection::Busy { .. })), "{result:?}");
    };
    busy(pod.reset("p", false, at(50)));
    assert!(matches!(
        pod.usable("p", at(50)),
        Err(Rejection::Busy { .. })
    ));
    pod.remove("p", false, at(60)).unwrap();
    busy(pod.remove("p", false, at(65)));
    busy(pod.reset("p", false, at(65)));
}

#[test]
fn a_doomed_partition_breaks_once_it_is_formed_and_a_reset_repairs_it() {
    let mut pod = pod();
    let doom = Some("link training failed".to_owned());
    pod.create(&spec("p", 4), doom, at(0)).unwrap();
    assert_eq!(stage(&mut pod, "p", 50), Stage::Creating(at(100)));
    assert_eq!(stage(&mut pod, "p", 100), Stage::Failed);
    let broken = pod.usable("p", at(100)).unwrap_err();
    assert_eq!(
        broken.to_string(),
        "partition \"p\" is in error: link training failed"
    );
    pod.reset("p", false, at(100)).unwrap();
    assert!(pod.usable("p", at(120)).unwrap().errors.is_empty());
}

#[test]
fn only_force_removes_a_stuck_partition() {
    let mut pod = pod();
    pod.take(&spec("p", 4), at(0)).unwrap();
    pod.break_down("p", "agent lost", true, at(0)).unwrap();
    assert!(matches!(
        pod.remove("p", false, at(0)),
        Err(Rejection::Broken { .. })
    ));
    assert!(pod.remove("p", true, at(0)).is_ok());
}

#[test]
fn the_server_stops_after_a_number_of_automatic_resets() {
    let mut pod = pod();
    pod.take(&spec("p", 4), at(0)).unwrap();
    for count in 1..=AUTO_RESETS_MAX {
        let now = at(i64::from(count) * 1000);
        pod.auto_reset("p", now).unwrap();
        let partition = pod.partition("p", now).unwrap();
        assert_eq!(partition.auto_resets, count);
        assert_eq!(partition.last_auto_reset, Some(now));
    }
    assert!(pod.auto_reset("p", at(10_000)).is_err());
    assert_eq!(stage(&mut pod, "p", 20_000), Stage::Failed);
}

#[test]
fn a_stored_pod_is_restored_unchanged() {
    let mut pod = pod();
    pod.create(&spec("p", 4), Some("bad".to_owned()), at(0))
        .unwrap();
    pod.take(&spec("q", 2), at(5)).unwrap();
    let text = serde_json::to_string(&pod).unwrap();
    assert_eq!(serde_json::from_str::<Pod>(&text).unwrap(), pod);
}
