//! The proxy is killed at each named step of a partition's life, and started again.
//!
//! Between two writes that touch no V-IPU controller nothing can hold the proxy up, so that "recorded
//! and not called yet" is met as "called and not arrived": the object and the controllers are the same.
//! "The removal is noted and the finalizer still on" has no such equal, and is left to the simulation.

mod steps;

use std::collections::BTreeSet;

use cluster::wait::{Seen, eventually};
use ipu_api::ipupartition::{AttemptOutcome, IPUPartition, IPUPartitionStatus, PartitionPhase};
use kube::ResourceExt;
use serde_json::json;
use vipu_simulator::faults::{Method, Order};
use vipu_simulator::journal::Call;
use vipu_simulator::pod::{Partition, Stage, Timings, Wanted};
use vipu_simulator::{Options, Simulator};

use super::fixture::{Fixture, id};

/// IPUs of the partition.
const IPUS: u32 = 4;

/// What the proxy is about to do for the partition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Make,
    Reset,
    Remove,
}

/// When the calls arrive that were on their way to a controller when the proxy was killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrival {
    Never,
    /// While no proxy runs.
    Down,
    /// Once the proxy that was started last is done.
    Late,
}

/// From a start of the proxy until it is killed.
struct Life {
    /// What goes wrong with the first controller meanwhile.
    faults: Vec<Order>,
    /// Whether what the first controller begins meanwhile ends only after the last start.
    is_endless: bool,
    /// Whether the proxy is where it is to be killed.
    has_come: fn(&Snapshot) -> bool,
}

struct Case {
    step: &'static str,
    work: Work,
    lives: Vec<Life>,
    arrival: Arrival,
    /// How often a partition was asked for in the end, over all controllers.
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

/// A partition for which the work is to be done, and no proxy.
async fn prepared(fixture: &mut Fixture, work: Work) -> IPUPartition {
    let partition = fixture.want("wanted", IPUS).await;
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

/// One life of the proxy, and its end. What it was about to ask is cut off with it.
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

/// The proxy is started for the last time, does what is wanted, and lets the partition go.
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
        .once_ids("there is what is ready, and nothing else", |ids| {
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

/// The object once it is ready, and was reset where that is wanted.
async fn once_done(fixture: &Fixture, partition: &IPUPartition, work: Work) -> IPUPartition {
    let resets = i64::from(work == Work::Reset);
    fixture
        .once(partition, "what is wanted is there", |object| {
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

/// The calls that never arrived at the first controller, since their caller was killed before.
fn cut_off(fixture: &Fixture) -> Vec<Call> {
    let mut calls = fixture.pods[0].server.calls(0);
    calls.retain(|call| call.outcome.as_deref() == Some("left"));
    calls
}

/// They arrive after all. What they ask for may be impossible by now, which nobody is told.
fn arrive(fixture: &Fixture, calls: &[Call]) {
    fixture.pods[0].server.with(|world, now| {
        for Call {
            method, partition, ..
        } in calls
        {
            match method {
                Method::CreatePartition => {
                    let wanted = Wanted {
                        id: partition.clone(),
                        ipus: IPUS,
                        ..Wanted::default()
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

/// The ids that any controller was asked to make.
fn asked_for(fixture: &Fixture) -> Vec<String> {
    let calls = fixture.pods.iter().flat_map(|pod| pod.server.calls(0));
    let creates = calls.filter(|call| call.method == Method::CreatePartition);
    creates.map(|call| call.partition).collect()
}

/// What can be seen from outside of where the proxy is.
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

    /// How many attempts at the partition have this outcome.
    fn attempts(&self, outcome: AttemptOutcome) -> usize {
        let attempts = self.status().attempts.into_iter();
        attempts.filter(|one| one.outcome == outcome).count()
    }

    /// How many calls of a method have not ended.
    fn under_way(&self, method: Method) -> usize {
        self.count(method, None)
    }

    /// How many calls of a method were carried out, and their reply was lost.
    fn lost(&self, method: Method) -> usize {
        self.count(method, Some("lost"))
    }

    fn count(&self, method: Method, outcome: Option<&str>) -> usize {
        let calls = self.calls.iter();
        calls
            .filter(|call| call.method == method && call.outcome.as_deref() == outcome)
            .count()
    }

    /// How many partitions on all controllers stand there.
    fn in_stage(&self, is_in: fn(Stage) -> bool) -> usize {
        let partitions = self.partitions.iter().flatten();
        partitions
            .filter(|partition| is_in(partition.stage))
            .count()
    }
}
