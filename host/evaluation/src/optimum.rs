//! Pure: the exact optimum of small instances: no policy and no order of the queue can do better,
//! even if it knows all arrivals and durations.
//!
//! The search is a branch and bound in plain Rust. A time-indexed integer program, as a solver
//! takes it, needs a variable for each job, block and second, and durations are thousands of
//! seconds; the search needs only the ends of jobs. In some optimal schedule each job starts at its
//! arrival, or when the last job before it in its block ends: otherwise it could start earlier. So
//! it is enough to try each order of the jobs with each choice of blocks. Blocks that can be
//! exchanged with each other are tried once, and states that were reached at a lower cost are not
//! searched again.

use std::collections::{BTreeMap, BTreeSet};

use ipu_api::partition_request::largest_partition;

use crate::controllers::{self, Controller};
use crate::jobs::Job;
use crate::statistics::float;

/// Most jobs of a small instance.
const JOBS_MAX: usize = 8;

/// Most controllers.
const CONTROLLERS_MAX: usize = 2;

/// Most IPUs of all controllers.
const IPUS_MAX: u64 = 32;

/// Most states that a search visits: a few seconds.
const STATES_MAX: usize = 100_000;

/// Mark of the IPUs that a gang has chosen, while its start is not known.
const CHOSEN: u64 = u64::MAX;

/// Returns the lowest possible sum of all waiting times, each multiplied with the weight of its
/// job. `None` if the instance is too large for an exact solution, or a job never fits.
pub(crate) fn weighted_wait(
    jobs: &[&Job],
    weight: impl Fn(&Job) -> f64,
    controllers: &[Controller],
) -> Option<f64> {
    let weights: Vec<f64> = jobs.iter().map(|job| weight(job)).collect();
    let cost = |before: f64, index: usize, start: u64| {
        before + weights[index] * float(start - jobs[index].arrival)
    };
    solve(jobs, controllers, &cost)
}

/// Returns the earliest possible end of the last job. `None` as above.
pub(crate) fn last_end(jobs: &[&Job], controllers: &[Controller]) -> Option<f64> {
    let cost = |before: f64, index: usize, start: u64| {
        before.max(float(start.saturating_add(jobs[index].duration)))
    };
    solve(jobs, controllers, &cost)
}

/// The cost of a schedule with one more job: the cost before, the index of the job, and the second
/// in which it starts.
type Cost<'a> = &'a dyn Fn(f64, usize, u64) -> f64;

/// For each controller, the second from which on each IPU is free. IPUs are ordered so that equal
/// halves of blocks, and equal controllers, are one state.
type Free = Vec<Vec<u64>>;

fn solve(jobs: &[&Job], controllers: &[Controller], cost: Cost<'_>) -> Option<f64> {
    let is_small = jobs.len() <= JOBS_MAX
        && controllers.len() <= CONTROLLERS_MAX
        && controllers::capacity(controllers) <= IPUS_MAX;
    if !is_small || !jobs.iter().all(|job| job.fits(controllers)) {
        return None;
    }
    let free = controllers.iter().map(|one| vec![0; one.ipus as usize]);
    let mut search = Search {
        jobs,
        cost,
        best: f64::INFINITY,
        reached: BTreeMap::new(),
    };
    search.extend((0..jobs.len()).collect(), free.collect(), 0.0);
    (search.reached.len() <= STATES_MAX).then_some(search.best)
}

/// A search over the schedules of some jobs.
struct Search<'a> {
    jobs: &'a [&'a Job],
    cost: Cost<'a>,
    /// The lowest cost of a whole schedule so far.
    best: f64,
    /// The lowest cost at which each state was reached: the jobs that are left, and the IPUs.
    reached: BTreeMap<(Vec<usize>, Free), f64>,
}

impl Search<'_> {
    /// Extends a schedule with each of the jobs that are left, in each choice of blocks.
    fn extend(&mut self, left: Vec<usize>, free: Free, cost: f64) {
        let soonest = |cost, &index: &usize| {
            let start = earliest(self.jobs[index], &free);
            (self.cost)(cost, index, start)
        };
        if left.iter().fold(cost, soonest) >= self.best || self.reached.len() > STATES_MAX {
            return;
        }
        if left.is_empty() {
            self.best = cost;
            return;
        }
        let state = (left, free);
        if self.reached.get(&state).is_some_and(|&known| known <= cost) {
            return;
        }
        self.reached.insert(state.clone(), cost);
        let (left, free) = state;
        for &index in &left {
            let job = self.jobs[index];
            let others: Vec<usize> = left.iter().copied().filter(|one| *one != index).collect();
            for (start, free) in choices(job, &free) {
                let cost = (self.cost)(cost, index, start);
                self.extend(others.clone(), free, cost);
            }
        }
    }
}

/// Returns the earliest start of a job, if no other job comes before it.
fn earliest(job: &Job, free: &[Vec<u64>]) -> u64 {
    let blocks = blocks(job, free).into_iter();
    let ready = blocks.filter_map(|(controller, first)| {
        let block = first..first + job.ipus as usize;
        ready(&free[controller][block])
    });
    ready.min().unwrap_or(0).max(job.arrival)
}

/// Returns the start of the job in each choice of blocks, and the IPUs after it.
fn choices(job: &Job, free: &[Vec<u64>]) -> BTreeSet<(u64, Free)> {
    let mut states = BTreeSet::from([(job.arrival, free.to_vec())]);
    for _ in 0..job.gang {
        let mut next = BTreeSet::new();
        for (start, free) in &states {
            for (controller, first) in blocks(job, free) {
                let block = first..first + job.ipus as usize;
                let Some(ready) = ready(&free[controller][block.clone()]) else {
                    continue;
                };
                let mut after = free.clone();
                after[controller][block].fill(CHOSEN);
                next.insert((ready.max(*start), ordered(after)));
            }
        }
        states = next;
    }
    let ended = states.into_iter().map(|(start, mut free)| {
        let chosen = free.iter_mut().flatten().filter(|ipu| **ipu == CHOSEN);
        chosen.for_each(|ipu| *ipu = start.saturating_add(job.duration));
        (start, ordered(free))
    });
    ended.collect()
}

/// Returns the controller and the first IPU of each block for a partition of the job.
fn blocks(job: &Job, free: &[Vec<u64>]) -> Vec<(usize, usize)> {
    let size = job.ipus as usize;
    let numbered = free.iter().enumerate();
    let blocks = numbered.flat_map(|(controller, ipus)| {
        let count = ipus.len() / size;
        (0..count).map(move |block| (controller, block * size))
    });
    blocks.collect()
}

/// Returns the second from which on a whole block is free. `None` if another partition of the gang
/// has it.
fn ready(block: &[u64]) -> Option<u64> {
    let ready = block.iter().copied().max().unwrap_or(0);
    (ready != CHOSEN).then_some(ready)
}

/// Orders the IPUs: it does not matter which of two equal controllers, or of two halves of a block,
/// is which.
fn ordered(mut free: Free) -> Free {
    for ipus in &mut free {
        in_order(ipus);
    }
    free.sort();
    free
}

/// Orders the IPUs of one controller, which consists of several blocks if their number is no power
/// of two.
fn in_order(ipus: &mut [u64]) {
    let length = u32::try_from(ipus.len()).unwrap_or(u32::MAX);
    let (block, rest) = ipus.split_at_mut(largest_partition(length) as usize);
    halves_in_order(block);
    if !rest.is_empty() {
        in_order(rest);
    }
}

fn halves_in_order(block: &mut [u64]) {
    if block.len() < 2 {
        return;
    }
    let (one, other) = block.split_at_mut(block.len() / 2);
    halves_in_order(one);
    halves_in_order(other);
    if *one > *other {
        one.swap_with_slice(other);
    }
}

#[cfg(test)]
mod tests;
