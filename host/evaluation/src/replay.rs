//! Pure: replays jobs in virtual time: their arrivals, placements and ends.
//!
//! A partition is created, and removed, in no time. Whenever IPUs are released, the waiting
//! requests are served in the order of the operator's queue. A new request is served at once, after
//! those.

mod order;
mod serve;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ipu_api::guest::placement::{Decision, PlacementRequest};
use ipu_placement::backfill::BACKFILL_LIMIT;
use ipu_placement::queue::QueueEntry;
use jiff::Timestamp;
use serde::Serialize;

use crate::buddy::BlockChoice;
use crate::controllers::Controller;
use crate::jobs::Job;
use crate::pool::Pool;
use crate::requested::Requested;
use crate::statistics::float;
use crate::timeline::{Point, Timeline};
use crate::usage::Usages;

/// Moments without a running job after which a replay ends: its gangs take each other's IPUs for
/// ever.
const IDLE_MAX: u32 = 100;

/// The order of the waiting requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By creation, as in the operator.
    #[default]
    Creation,
    /// By the IPUs of the namespace, the fewest first, and then by creation. The operator does not
    /// have this order; the replay measures its effect.
    FairShare,
}

/// Settings of the queue.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The order of the waiting requests.
    pub order: Order,
    /// Waiting time after which capacity is reserved for a request.
    pub backfill_limit: Duration,
    /// Time for which a gang holds a part of its partitions while the others find no capacity.
    pub gang_patience: Duration,
    /// Whether the controllers report which IPUs are free. Otherwise policies see an estimate.
    pub exact_blocks: bool,
    /// The free block that a controller splits for a partition.
    pub block_choice: BlockChoice,
}

impl Default for Settings {
    /// Returns the defaults of the operator.
    fn default() -> Self {
        Self {
            order: Order::default(),
            backfill_limit: BACKFILL_LIMIT,
            gang_patience: Duration::from_mins(2),
            exact_blocks: false,
            block_choice: BlockChoice::default(),
        }
    }
}

/// The decision that the host carries out.
#[derive(Clone, Debug)]
pub struct Decided {
    /// The decision.
    pub decision: Decision,
    /// Reason why it is not the policy's own.
    pub overruled: Option<String>,
}

/// Outcome of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ran, from this second on.
    Ran {
        /// The second.
        started: u64,
    },
    /// It was rejected, for this reason.
    Rejected(String),
    /// It never got its partitions.
    Waiting,
}

/// Counts of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Decisions of the policy.
    pub decisions: u64,
    /// Decisions that a controller refused, because its free IPUs formed no block of the size.
    pub refused: u64,
    /// Decisions of the policy that the host overruled.
    pub overruled: u64,
    /// Reason why it overruled the first one.
    pub first_overruled: Option<String>,
}

/// The result of a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// Outcome of each job, in the order of the jobs.
    pub outcomes: Vec<Outcome>,
    /// The state of the controllers over time.
    pub timeline: Timeline,
    /// Counts.
    pub counts: Counts,
}

/// Replays `jobs`, in the order of their arrival, with the policy `place`. It gets the second of
/// the decision, too, so that one policy can follow another.
pub fn replay(
    jobs: &[Job],
    controllers: &[Controller],
    settings: &Settings,
    place: impl FnMut(u64, PlacementRequest) -> Decided,
) -> Replay {
    let mut run = Run::new(jobs, controllers, settings, place);
    let mut arrivals = jobs.iter().enumerate().peekable();
    let mut idle = 0;
    while idle < IDLE_MAX {
        let arrival = arrivals.peek().map(|(_, job)| job.arrival);
        let event = run.events.peek().map(|Reverse((at, _))| *at);
        let Some(now) = arrival.into_iter().chain(event).min() else {
            break;
        };
        if run.release(now) {
            run.serve_queue(now);
        }
        while let Some((index, _)) = arrivals.next_if(|(_, job)| job.arrival <= now) {
            run.arrive(index, now);
        }
        run.note(now);
        let is_idle = run.running_jobs == 0 && arrivals.peek().is_none();
        idle = if is_idle { idle + 1 } else { 0 };
    }
    Replay {
        outcomes: run.outcomes,
        timeline: run.timeline,
        counts: run.counts,
    }
}

/// Something that happens by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The job with this index ends.
    End(usize),
    /// A partition of its gang has waited long enough for the others.
    GangTimeout(usize),
}

/// A replay in progress.
struct Run<'a, P> {
    jobs: &'a [Job],
    settings: &'a Settings,
    place: P,
    /// The share of each partition size.
    mix: Vec<(u32, f64)>,
    pool: Pool,
    usages: Usages,
    /// The IPUPartitions of the jobs that wait or run, by the index of the job.
    requested: BTreeMap<usize, Requested>,
    /// The waiting requests, in order.
    queue: Vec<QueueEntry>,
    /// Job and slot of each waiting request, by name.
    slots: HashMap<Arc<str>, (usize, usize)>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    running_jobs: usize,
    running_ipus: u64,
    outcomes: Vec<Outcome>,
    timeline: Timeline,
    counts: Counts,
}

impl<'a, P: FnMut(u64, PlacementRequest) -> Decided> Run<'a, P> {
    fn new(jobs: &'a [Job], controllers: &[Controller], settings: &'a Settings, place: P) -> Self {
        Self {
            jobs,
            settings,
            place,
            mix: mix(jobs, controllers),
            pool: Pool::new(controllers),
            usages: Usages::default(),
            requested: BTreeMap::new(),
            queue: Vec::new(),
            slots: HashMap::new(),
            events: BinaryHeap::new(),
            running_jobs: 0,
            running_ipus: 0,
            outcomes: vec![Outcome::Waiting; jobs.len()],
            timeline: Timeline::default(),
            counts: Counts::default(),
        }
    }

    /// Handles the events of this moment. Returns whether IPUs were released.
    fn release(&mut self, now: u64) -> bool {
        let mut is_released = false;
        while let Some(Reverse((at, event))) = self.events.peek().copied() {
            if at > now {
                break;
            }
            self.events.pop();
            is_released |= match event {
                Event::End(index) => self.end(index),
                Event::GangTimeout(index) => self.release_gang(index, now),
            };
        }
        is_released
    }

    /// A job has ended.
    fn end(&mut self, index: usize) -> bool {
        self.running_jobs -= 1;
        self.running_ipus -= self.jobs[index].all_ipus();
        self.remove(index)
    }

    /// Removes the IPUPartitions of a job. Returns whether they had IPUs.
    fn remove(&mut self, index: usize) -> bool {
        let job = &self.jobs[index];
        let requested = self.requested.remove(&index);
        let blocks = requested.map(Requested::into_blocks).unwrap_or_default();
        for block in &blocks {
            self.pool.remove(*block);
            self.usages.remove_placed(&job.namespace, job.ipus);
        }
        !blocks.is_empty()
    }

    /// The partitions of a gang are released and requested again if its other members find no
    /// capacity.
    fn release_gang(&mut self, index: usize, now: u64) -> bool {
        let job = &self.jobs[index];
        let Some(requested) = self.requested.get_mut(&index) else {
            return false;
        };
        let blocks = requested.release_late(self.settings.gang_patience, timestamp(now));
        for block in &blocks {
            self.pool.remove(*block);
            self.usages.remove_placed(&job.namespace, job.ipus);
        }
        self.enqueue(index, now);
        !blocks.is_empty()
    }

    /// A job is created.
    fn arrive(&mut self, index: usize, now: u64) {
        let job = &self.jobs[index];
        let requested = Requested::new(index, job, timestamp(now));
        self.requested.insert(index, requested);
        self.enqueue(index, now);
        for slot in 0..job.gang {
            if !self.requested.contains_key(&index) {
                break;
            }
            self.serve(index, slot as usize, now);
        }
    }

    /// Adds the requests of a job to the queue that are not in it.
    fn enqueue(&mut self, index: usize, now: u64) {
        let job = &self.jobs[index];
        for (slot, entry) in self.requested[&index].entries(timestamp(now)) {
            if !self.slots.contains_key(&entry.name) {
                self.usages.add_waiting(&job.namespace, job.ipus);
                self.slots.insert(entry.name.clone(), (index, slot));
                self.queue.push(entry);
            }
        }
        self.sort_queue();
    }

    /// Notes the state of the controllers.
    fn note(&mut self, now: u64) {
        self.timeline.add(Point {
            at: now,
            running: self.running_ipus,
            waiting: self.usages.waiting_ipus(),
            fragmentation: self.pool.fragmentation(&self.mix),
            least_fragmentation: self.pool.least_fragmentation(&self.mix),
        });
    }
}

/// Returns the share of each partition size, of the jobs that fit.
fn mix(jobs: &[Job], controllers: &[Controller]) -> Vec<(u32, f64)> {
    let mut partitions: BTreeMap<u32, u64> = BTreeMap::new();
    for job in jobs.iter().filter(|job| job.fits(controllers)) {
        *partitions.entry(job.ipus).or_default() += u64::from(job.gang);
    }
    let all = float(partitions.values().sum::<u64>());
    let shares = partitions.into_iter();
    shares
        .map(|(ipus, number)| (ipus, float(number) / all))
        .collect()
}

/// Returns a moment of virtual time.
fn timestamp(second: u64) -> Timestamp {
    let second = i64::try_from(second).unwrap_or(i64::MAX);
    Timestamp::from_second(second).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
