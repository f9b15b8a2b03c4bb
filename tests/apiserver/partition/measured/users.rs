//! The users of the jobs: they request each partition at its arrival, and delete it when its job
//! has run since Ready.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::pin::pin;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use ipu_api::ipupartition::{IPUPartition, PartitionOptions, PartitionOwner, PartitionPhase};
use ipu_api::naming;
use ipu_evaluation::Job;
use jiff::Timestamp;
use kube::api::{DeleteParams, ListParams};
use kube::runtime::{WatchStreamExt, watcher};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::OWNERS;
use crate::partition::fixture::{Fixture, notebook};

/// The observations of the users. Times are since the beginning.
pub(super) struct Observed {
    begun: Timestamp,
    /// Time of the request of each job.
    pub(super) requested: Vec<Duration>,
    /// The job of each partition id.
    pub(super) ids: HashMap<String, usize>,
    /// The jobs that each policy placed.
    pub(super) decided: BTreeMap<String, BTreeSet<usize>>,
    /// Time of the last list of the attempts.
    pub(super) listed: Duration,
    /// The jobs that have been Ready.
    ready: BTreeSet<usize>,
}

impl Observed {
    /// Returns the time since the beginning.
    pub(super) fn since_begin(&self, time: Timestamp) -> Duration {
        Duration::try_from(time.duration_since(self.begun)).unwrap_or_default()
    }

    /// Records the attempts of a job. Returns the job once, when it is Ready.
    fn note(&mut self, partition: &IPUPartition) -> Option<usize> {
        let number = partition.spec.owner.name.strip_prefix(OWNERS)?;
        let job = number.parse().ok()?;
        let status = partition.status.as_ref()?;
        for attempt in &status.attempts {
            self.ids.insert(attempt.id.clone(), job);
            if let Some(by) = &attempt.decided_by {
                let jobs = self.decided.entry(by.policy.clone());
                jobs.or_default().insert(job);
            }
        }
        let is_ready = status.phase == PartitionPhase::Ready;
        (is_ready && self.ready.insert(job)).then_some(job)
    }
}

/// Runs all jobs until the last one has arrived. `half` is notified when half of them have.
pub(super) async fn run(fixture: &Fixture, jobs: &[Job], half: &Notify) -> Observed {
    let changes = watcher(fixture.partitions(), watcher::Config::default());
    let mut changes = pin!(changes.default_backoff().applied_objects());
    let mut upcoming = jobs.iter().enumerate().peekable();
    let mut ends: BinaryHeap<Reverse<(Instant, usize)>> = BinaryHeap::new();
    let mut calls: FuturesUnordered<LocalBoxFuture<'_, ()>> = FuturesUnordered::new();
    let begun = Instant::now();
    let mut observed = Observed {
        begun: Timestamp::now(),
        requested: Vec::new(),
        ids: HashMap::new(),
        decided: BTreeMap::new(),
        listed: Duration::ZERO,
        ready: BTreeSet::new(),
    };
    while let Some((number, job)) = upcoming.peek().copied() {
        let arrival = begun + Duration::from_millis(job.arrival);
        let end = ends.peek().map(|Reverse((end, _))| *end);
        let next = end.map_or(arrival, |end| arrival.min(end));
        tokio::select! {
            () = sleep_until(next) => {
                if next == arrival {
                    upcoming.next();
                    let now = observed.since_begin(Timestamp::now());
                    observed.requested.push(now);
                    calls.push(request(fixture, number, job.ipus).boxed_local());
                    if number == jobs.len() / 2 {
                        half.notify_one();
                    }
                } else if let Some(Reverse((_, number))) = ends.pop() {
                    calls.push(release(fixture, number).boxed_local());
                }
            }
            Some(()) = calls.next() => {}
            // An interrupted watch begins again by itself.
            Some(Ok(partition)) = changes.next() => {
                if let Some(number) = observed.note(&partition) {
                    let duration = Duration::from_millis(jobs[number].duration);
                    ends.push(Reverse((Instant::now() + duration, number)));
                }
            }
        }
    }
    while calls.next().await.is_some() {}
    // The last attempts, which the watch has not reported.
    observed.listed = observed.since_begin(Timestamp::now());
    let partitions = fixture.partitions().list(&ListParams::default()).await;
    for partition in partitions.unwrap() {
        observed.note(&partition);
    }
    observed
}

/// The owner of a job. Names are in the order of the arrivals, because they decide between requests
/// of the same second.
fn owner(number: usize) -> PartitionOwner {
    notebook(&format!("{OWNERS}{number:04}"))
}

async fn request(fixture: &Fixture, number: usize, ipus: u32) {
    let options = PartitionOptions::default();
    fixture.request_with(owner(number), 0, ipus, options).await;
}

async fn release(fixture: &Fixture, number: usize) {
    let name = naming::partition_object(&owner(number), 0);
    let (partitions, params) = (fixture.partitions(), DeleteParams::default());
    partitions.delete(&name, &params).await.unwrap();
}
