//! A replica whose watch of IPUPartitions is late, and that is alone after another one has used a
//! partition.

use super::job_watches::Kind;
use super::kubelet::Disruption;
use super::world_of_one;

/// Time, in milliseconds, at which the Pod uses its partition.
const IN_USE: u64 = 120_000;

/// Time, in milliseconds, after which the replica does not expect its own writes any more, and
/// decides.
const NOT_EXPECTED: u64 = 200_000;

/// Time, in milliseconds, for which the other replica is down.
const DOWN: u64 = 1_200_000;

/// Time, in milliseconds, in which an evicted Pod is deleted.
const GONE_WITHIN: u64 = 60_000;

#[test]
fn a_late_watch_of_partitions_skips_no_reset() {
    let mut world = world_of_one();
    // The job has come; its Pod has no end of itself from now on.
    world.run_until(1);
    world.is_over = true;
    world.become_leader(1);
    let late = Kind::Partitions as usize;
    let jobs = world.replicas[1].jobs.as_mut().expect("it leads");
    // The watch delivers nothing.
    jobs.positions[late] = usize::MAX;
    world.run_until(IN_USE);
    world.kill(0, DOWN);
    world.run_until(IN_USE + NOT_EXPECTED);
    let pods: Vec<u64> = world.pods.keys().copied().collect();
    assert_eq!(pods.len(), 1, "it runs");
    let id = world.pods[&pods[0]].id.clone();
    world.disrupt_pod(pods[0], Disruption::Evicted);
    let gone = world.event_queue.now() + GONE_WITHIN;
    world.run_until(gone);
    assert_eq!(
        world.server.pods().count(),
        0,
        "it is gone, and none follows"
    );
    // The watch is at the present again.
    let jobs = world.replicas[1].jobs.as_mut().expect("it leads");
    jobs.positions[late] = 0;
    world.watch_jobs(1, Kind::Partitions, world.changes_of(Kind::Partitions));
    world.settle();
    let ids: Vec<&str> = world.pods.values().map(|pod| pod.id.as_str()).collect();
    assert_eq!(ids, [id.as_str()], "it is reset, and used again");
    world.end();
}
