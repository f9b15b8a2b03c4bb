//! The accounts of worlds with faults: each IPU-second is in exactly one state, whatever happens.

use std::collections::BTreeMap;

use super::Observer;
use crate::simulation::rng::Rng;
use crate::simulation::scenario::random_world;
use crate::simulation::trace::{Detail, Trace};
use ipu_partitions::accounting::IpuState;

/// Worlds, each with a seed of its own.
const SEEDS: u64 = 16;

/// Milliseconds between two observations, so that they are anywhere within a second.
const STEP: usize = 700;

/// Observations that are missed, and changes of the leader, per thousand.
const MISSED: u64 = 100;
const CHANGES: u64 = 20;

/// Pauses in which nobody observes, per thousand observations, and their length in milliseconds.
const PAUSES: u64 = 4;
const PAUSE: u64 = 100_000;

/// The states of each account add up to the IPUs of its controller, for as long as it is counted.
fn add_up(observer: &Observer, when: &str) {
    for (name, states) in observer.accounts.seconds() {
        let status = observer
            .accounts
            .record(name)
            .expect("it has an account")
            .accounting;
        let time = status.until.0.duration_since(status.since.0);
        let expected = f64::from(observer.capacities[name]) * time.as_secs_f64();
        let all: f64 = states.iter().map(|(_, seconds)| seconds).sum();
        assert!(
            (all - expected).abs() < 0.001,
            "{when}: {name}: {all} instead of {expected}: {states:?}"
        );
    }
}

#[test]
fn accounts_add_up_whatever_fails() {
    let mut sums: BTreeMap<IpuState, f64> = BTreeMap::new();
    for seed in 0..SEEDS {
        let (mut world, end) = random_world(seed, Trace::new(Detail::Nothing));
        let mut rng = Rng::new(seed);
        let mut observer = Observer::default();
        let mut next = 0;
        for time in (0..=end).step_by(STEP) {
            world.run_until(time);
            if rng.permille(PAUSES) {
                next = time + PAUSE;
            }
            if time < next || rng.permille(MISSED) {
                continue;
            }
            if rng.permille(CHANGES) {
                observer.change_leader();
            }
            observer.observe(&world);
            add_up(&observer, &format!("seed {seed} at {time} ms"));
        }
        for (state, seconds) in observer.accounts.seconds().flat_map(|(_, all)| all) {
            *sums.entry(state).or_default() += seconds;
        }
    }
    // These faults and changes did occur.
    for state in [
        IpuState::Running,
        IpuState::Forming,
        IpuState::Unhealthy,
        IpuState::Others,
        IpuState::Unknown,
        IpuState::Free,
    ] {
        assert!(sums[&state] > 0.0, "{state:?}: {sums:?}");
    }
}
