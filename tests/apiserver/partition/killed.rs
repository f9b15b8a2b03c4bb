//! The proxy is killed at each named step of a partition's life, and started again.
//!
//! Nothing can delay the proxy between two writes without a call to a V-IPU controller. Therefore
//! "recorded and not called" is tested as "called and not arrived": the object and the controllers
//! are the same. "The removal is recorded and the finalizer still exists" has no such equivalent.
//! The simulation covers it.

mod steps;

use std::collections::BTreeSet;

use cluster::wait::{Seen, eventually};
use ipu_api::ipupartition::{AttemptOutcome, IPUPartition, IPUPartitionStatus, PartitionPhase};
use kube::ResourceExt;
use serde_json::json;
use vipu_simulator::faults::{Method, Order};
use vipu_simulator::journal::Call;
use vipu_simulator::pod::{Partition, PartitionSpec, Stage, Timings};
use vipu_simulator::{Options, Simulator};

use super::fixture::{Fixture, id};

/// IPUs of the partition.
const IPUS: u32 = 4;

/// The next action of the proxy for the partition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Make,
    Reset,
    Remove,
}

/// Moment at which the delayed calls of a killed proxy arrive at a controller.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrival {
    Never,
    /// While no proxy runs.
    Down,
    /// Once the last proxy has finished.
    Late,
}

/// One run of the proxy, from its start until it is killed.
struct Life {
    /// The faults of the first controller during the run.
    faults: Vec<Order>,
    /// Whether operations that the first controller starts during the run end only after the last
    /// start.
    is_endless: bool,
    /// Whether the proxy has reached the step at which it is killed.
    has_come: fn(&Snapshot) -> bool,
}

struct Case {
    step: &'static str,
    work: Work,
    lives: Vec<Life>,
    arrival: Arrival,
    /// The expected number of creations, over all controllers.
    creates: usize,
}

#[tokio::test(flavor = "multi_thread")]
async fn wherever_it_is_killed_there_is_one_partition_and_in_the_end_none() {
    for case in steps::all() {
        println!("killed when: {}", case.step);
        let mut fixture = Fixture::without_proxy(&[16, 16]).await;
        let partition = prepared(&mut fixture, case.work).await;
        for life in &case.lives {
            live(&mut fixture, &partition, case.step, life).await;
        }
        recover(&mut fixture, &partition, &case).await;
        let asked = asked_for(&fixture);
        let once: BTreeSet<&String> = asked.iter().collect();
        assert_eq!(once.len(), asked.len(), "{}: {asked:?}", case.step);
        assert_eq!(asked.len(), case.creates, "{}: {asked:?}", case.step);
    }
}

/// Creates a partition that needs the action, without a proxy.
async fn prepared(fixture: &mut Fixture, work: Work) -> IPUPartition {
    let partition = fixture.request("wanted", IPUS).await;
    if work == Work::Make {
        return partition;
    }
    fixture.start_proxy().await;
    fixture.once_in(&partition, PartitionPhase::Ready).await;
    fixture.kill_proxy().await;
    if work == Work::Reset {
        let change = json!({"spec": {"resetGeneration": 1}});
        fixture.patch(&partition, change).await.unwrap();
    } else {
        fixture.delete(&partition).await;
    }
    partition
}

/// One run of the proxy, and its end. The kill also cuts off its next call.
async fn live(fixture: &mut Fixture, partition: &IPUPartition, step: &str, life: &Life) {
    let server = fixture.pods[0].server.clone();
    server.clear();
    server.with(|world, _| world.pod.timings = timings(life.is_endless));
    for fault in &life.faults {
        server.order(fault.clone());
    }
    fixture.start_proxy().await;
    eventually(step, async || {
        Seen::when(Snapshot::of(fixture, partition).await, life.has_come)
    })
    .await;
    fixture.kill_proxy().await;
    eventually(
        "the controllers see that their caller is gone",
        async || {
            let calls = Snapshot::of(fixture, partition).await.calls;
            Seen::when(calls, |calls| calls.iter().all(|call| call.ended.is_some()))
        },
    )
    .await;
}

/// Starts the last proxy, which finishes the action, and releases the partition.
async fn recover(fixture: &mut Fixture, partition: &IPUPartition, case: &Case) {
    let on_the_way = cut_off(fixture);
    fixture.pods[0].server.clear();
    if case.arrival == Arrival::Down {
        arrive(fixture, &on_the_way);
    }
    fixture.start_proxy().await;
    fixture.pods[0].server.with(|world, now| {
        world.pod.timings = timings(false);
        world.pod.finish(now);
    });
    let mut left = Vec::new();
    if case.work == Work::Remove {
        fixture.once_gone(partition).await;
    } else {
        left.push(id(&once_done(fixture, partition, case.work).await));
    }
    if case.arrival == Arrival::Late {
        arrive(fixture, &on_the_way);
    }
    fixture
        .once_ids("there is the ready partition, and nothing else", |ids| {
            ids.concat() == left
        })
        .await;
    if case.work != Work::Remove {
        fixture.delete(partition).await;
        fixture.once_gone(partition).await;
    }
    fixture
        .once_ids("nothing is left", |ids| ids.concat().is_empty())
        .await;
}

/// Returns the object once it is ready, and was reset if the test requests that.
async fn once_done(fixture: &Fixture, partition: &IPUPartition, work: Work) -> IPUPartition {
    let resets = i64::from(work == Work::Reset);
    fixture
        .once(partition, "it is ready", |object| {
            let status = object.status.clone().unwrap_or_default();
            status.phase == PartitionPhase::Ready && status.observed_reset_generation == resets
        })
        .await
}

fn timings(is_endless: bool) -> Timings {
    if is_endless {
        Timings {
            forming_ms: steps::ENDLESS,
            removing_ms: steps::ENDLESS,
            resetting_ms: steps::ENDLESS,
        }
    } else {
        Options::quick("any", 0).timings
    }
}

/// Returns the calls that did not reach the first controller, because their caller was killed
/// before.
fn cut_off(fixture: &Fixture) -> Vec<Call> {
    let mut calls = fixture.pods[0].server.calls(0);
    calls.retain(|call| call.outcome.as_deref() == Some("left"));
    calls
}

/// Delivers these calls late. They can be impossible by now, and no caller receives the errors.
fn arrive(fixture: &Fixture, calls: &[Call]) {
    fixture.pods[0].server.with(|world, now| {
        for Call {
            method, partition, ..
        } in calls
        {
            match method {
                Method::CreatePartition => {
                    let wanted = PartitionSpec {
                        id: partition.clone(),
                        ipus: IPUS,
                        ..PartitionSpec::default()
                    };
                    world.pod.take(&wanted, now).unwrap();
                }
                Method::ResetPartition => drop(world.pod.reset(partition, false, now)),
                Method::RemovePartition => drop(world.pod.remove(partition, false, now)),
                _ => {}
            }
        }
    });
}

/// Returns the ids that any controller was requested to create.
fn asked_for(fixture: &Fixture) -> Vec<String> {
    let calls = fixture.pods.iter().flat_map(|pod| pod.server.calls(0));
    let creates = calls.filter(|call| call.method == Method::CreatePartition);
    creates.map(|call| call.partition).collect()
}

/// The observable state of the proxy's progress.
#[derive(Debug)]
struct Snapshot {
    object: Option<IPUPartition>,
    calls: Vec<Call>,
    /// By controller.
    partitions: Vec<Vec<Partition>>,
}

impl Snapshot {
    async fn of(fixture: &Fixture, partition: &IPUPartition) -> Self {
        let name = partition.name_any();
        let pods = &fixture.pods;
        let on = |pod: &Simulator| {
            pod.server
                .with(|world, now| world.pod.partitions(now).cloned().collect())
        };
        Snapshot {
            object: fixture.partitions().get_opt(&name).await.unwrap(),
            calls: pods.iter().flat_map(|pod| pod.server.calls(0)).collect(),
            partitions: pods.iter().map(on).collect(),
        }
    }

    fn status(&self) -> IPUPartitionStatus {
        let object = self.object.as_ref();
        object
            .and_then(|object| object.status.clone())
            .unwrap_or_default()
    }

    fn says(&self, words: &str) -> bool {
        let message = self.status().message;
        message.is_some_and(|message| message.contains(words))
    }

    fn has_finalizer(&self) -> bool {
        let object = self.object.as_ref();
        object.is_some_and(|object| !object.finalizers().is_empty())
    }

    /// Returns the number of attempts with this outcome.
    fn attempts(&self, outcome: AttemptOutcome) -> usize {
        let attempts = self.status().attempts.into_iter();
        attempts.filter(|one| one.outcome == outcome).count()
    }

    /// Returns the number of calls of a method that have not ended.
    fn under_way(&self, method: Method) -> usize {
        self.count(method, None)
    }

    /// Returns the number of calls of a method that were carried out and whose reply was lost.
    fn lost(&self, method: Method) -> usize {
        self.count(method, Some("lost"))
    }

    fn count(&self, method: Method, outcome: Option<&str>) -> usize {
        let calls = self.calls.iter();
        calls
            .filter(|call| call.method == method && call.outcome.as_deref() == outcome)
            .count()
    }

    /// Returns the number of partitions in this state on all controllers.
    fn in_stage(&self, is_in: fn(Stage) -> bool) -> usize {
        let partitions = self.partitions.iter().flatten();
        partitions
            .filter(|partition| is_in(partition.stage))
            .count()
    }
}
