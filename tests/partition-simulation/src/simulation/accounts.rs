//! The accounts of IPU-seconds of a world without faults, beside the record of its V-IPU
//! controllers, and of worlds with faults.

mod faulty;

use std::collections::BTreeMap;
use std::sync::Arc;

use ipu_api::ipupartition::IPUPartition;
use ipu_api::uid::Uid;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;
use vipu_client::error::VipuError;
use vipu_client::inventory::Report;

use super::controllers::Controller;
use super::owners::Job;
use super::rng::Rng;
use super::trace::{Detail, Trace};
use super::world::World;
use ipu_partitions::accounting::observation::{LedgerUse, UsedPartitions};
use ipu_partitions::accounting::pod_readiness::PodCounts;
use ipu_partitions::accounting::{Accounts, ControllerUse, IpuState};
use ipu_partitions::store::Cache;

/// IPUs of each controller.
const SIZES: [u32; 2] = [8, 16];

/// Jobs that come and go.
const JOBS: usize = 40;

/// Milliseconds between two observations.
const STEP: u64 = 250;

/// The same, for a range.
const STEP_BY: usize = 250;

/// The first observation, the change of the leader, and the last observation: full seconds, in
/// milliseconds.
const TIMES: [u64; 3] = [1_000, 300_000, 600_000];

/// An observer of a world.
#[derive(Default)]
struct Observer {
    cache: Cache,
    used: UsedPartitions,
    accounts: Accounts,
    /// The IPUs of all controllers, by each name that they have had.
    capacities: BTreeMap<String, u32>,
    /// IPUs in partitions that the controllers have, and their IPU-milliseconds so far.
    recorded: (u64, u64),
}

impl Observer {
    /// Observes the controllers of the list, as the leader does.
    fn observe(&mut self, world: &World) -> BTreeMap<String, ControllerUse> {
        let now = world.timestamp();
        self.cache.apply_event(Event::Init, now);
        for (_, stored) in world.api.list() {
            let object = DeserializeGuard(Ok(IPUPartition::clone(&stored.object)));
            self.cache.apply_event(Event::InitApply(object), now);
        }
        self.cache.apply_event(Event::InitDone, now);
        let pods = |_: &Arc<str>, id: Uid| {
            let users = world.pods.values();
            let users = users.filter(|pod| Uid::of(&pod.id) == id).count();
            Some(PodCounts {
                ready: u32::try_from(users).expect("Pods are few"),
                ..PodCounts::default()
            })
        };
        let ledger = LedgerUse::of(
            self.cache.briefs().map(|(brief, _)| brief),
            self.cache.smallest_waiting(),
            pods,
            &mut self.used,
            now,
        );
        for controller in &world.controllers {
            let name = controller.reference.name.clone();
            self.capacities.insert(name, controller.total);
        }
        let listed = world.controllers.iter().filter(|one| one.is_listed);
        let reports: Vec<_> = listed.map(|one| ledger.report(&report(one))).collect();
        let observed = ledger.observed(&reports);
        let is_kept = |name: &str| ledger.has_controller(name);
        self.accounts.observe(&observed, is_kept, now);
        observed
    }

    /// Records what the controllers of a world without faults have.
    fn record(&mut self, world: &World, observed: &BTreeMap<String, ControllerUse>) {
        self.recorded.1 += self.recorded.0 * STEP;
        self.recorded.0 = 0;
        for controller in &world.controllers {
            let made = controller.made.values();
            let made: u32 = made.map(|one| one.ipus).sum();
            is_contained(made, &observed[&controller.reference.name]);
            self.recorded.0 += u64::from(made);
        }
    }

    /// Another leader knows only what the statuses of the VIPUControllers say.
    fn change_leader(&mut self) {
        let mut accounts = Accounts::default();
        for (name, status) in self.accounts.statuses() {
            accounts.resume(&name, &status, self.capacities[&name]);
        }
        self.accounts = accounts;
        self.used = UsedPartitions::default();
    }

    /// IPU-seconds in these states.
    fn seconds(&self, is_counted: impl Fn(IpuState) -> bool) -> f64 {
        let all = self.accounts.seconds().flat_map(|(_, states)| states);
        let counted = all.filter(|(state, _)| is_counted(*state));
        counted.map(|(_, seconds)| seconds).sum()
    }
}

/// Returns the leader's report of a controller.
fn report(controller: &Controller) -> Report {
    let is_answering = !controller.is_down && !controller.denies;
    let address = controller.reference.name.clone();
    Report {
        controller: controller.reference.clone(),
        inventory: if is_answering {
            Ok(controller.view(false).0)
        } else {
            // Accounts do not distinguish errors.
            Err(Arc::new(VipuError::UnlistedAddress { address }))
        },
        version: None,
    }
}

/// Each partition that a controller has is in the ledger: it is recorded before it is requested,
/// and forgotten after it is gone.
fn is_contained(made: u32, observed: &ControllerUse) {
    let counted: u32 = observed.partitions.iter().map(|one| one.ipus).sum();
    assert!(counted >= made, "{counted} of {made}: {observed:?}");
    assert_eq!(observed.others, 0, "{observed:?}");
}

#[test]
fn accounts_add_up_and_contain_what_the_controllers_record() {
    let [begin, change, end] = TIMES;
    let mut world = World::calm(1, &SIZES, Trace::new(Detail::Nothing));
    world.longest_run = 60_000;
    let mut rng = Rng::new(1);
    for number in 0..JOBS {
        let mut job = Job::new(
            format!("job-{number}"),
            String::new(),
            rng.pick(&[2, 4, 8]),
            1,
        );
        job.runs = Some(rng.pick(&[0, 1]));
        world.add_job_later(job, rng.between(begin, end));
    }
    let mut observer = Observer::default();
    world.run_until(begin);
    let observed = observer.observe(&world);
    observer.record(&world, &observed);
    for time in (begin + STEP..=end).step_by(STEP_BY) {
        world.run_until(time);
        let observed = observer.observe(&world);
        observer.record(&world, &observed);
        if time == change {
            observer.change_leader();
        }
    }
    let capacity = f64::from(SIZES.iter().sum::<u32>());
    let time = std::time::Duration::from_millis(end - begin).as_secs_f64();
    let all = observer.seconds(|_| true);
    assert!((all - capacity * time).abs() < 0.001, "{all}");
    // All states before are of allocated IPUs.
    let allocated = observer.seconds(|state| state < IpuState::Unhealthy);
    let unknown = observer.seconds(|state| state == IpuState::Unknown);
    assert!(
        unknown > 0.0 && unknown <= all / 1_000.0,
        "{unknown} of {all}"
    );
    let recorded = std::time::Duration::from_millis(observer.recorded.1).as_secs_f64();
    assert!(recorded > all / 10.0, "{recorded} of {all}");
    // The ledger learns a moment later that a partition is gone.
    let counted = allocated + unknown;
    assert!(
        recorded <= counted && allocated <= recorded * 1.1,
        "{allocated}, {unknown} and {recorded}"
    );
    assert!(observer.seconds(|state| state == IpuState::Running) > 0.0);
}
