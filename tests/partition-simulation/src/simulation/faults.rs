//! Fault injection: faults of controllers, replicas and the API server, and changes by users.

use ipu_api::ipupartition::AttemptOutcome;
use ipu_api::labels;
use ipu_api::naming::Identity;
use ipu_api::vipu_controller::CordonState;
use ipu_placement::samples;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use vipu_client::model::{OperationState, ReadyState};

use super::api_server::{self, Key, job_of};
use super::controllers::Then;
use super::coverage::CoveragePoint;
use super::event_queue::Event;
use super::executor::CallFault;
use super::repair::Repair;
use super::world::World;

/// Fault rates, per thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FaultRates {
    /// Of calls to controllers.
    pub calls: u64,
    /// Of requests to the API server.
    pub requests: u64,
    /// Of decisions after which the replica is paused.
    pub stalls: u64,
    /// Of requests that are slow.
    pub slow: u64,
    /// Of partitions that do not form, of resets and of removals that fail.
    pub failures: u64,
    /// Mean time between two faults, in milliseconds; 0: none.
    pub interval: u64,
}

impl World {
    /// The fault of one call to a controller.
    pub(super) fn call_fault(&mut self) -> CallFault {
        if !self.rng.permille(self.fault_rates.calls) {
            return CallFault::Nothing;
        }
        self.rng.pick(&[
            CallFault::RequestLost,
            CallFault::ReplyLost,
            CallFault::ReplyLost,
            CallFault::Late,
            CallFault::Duplicated,
            CallFault::Refused,
        ])
    }

    /// Returns the duration of a message, in milliseconds.
    pub(super) fn latency(&mut self) -> u64 {
        let most = match self.rng.between(0, 999) {
            n if n < self.fault_rates.slow / 8 => 5_000,
            n if n < self.fault_rates.slow => 300,
            _ => 8,
        };
        self.rng.between(1, most)
    }

    /// Returns the wait of a caller for a reply that does not arrive.
    pub(super) fn patience(&mut self) -> u64 {
        self.rng.pick(&[20, 500, 3_000, 60_000])
    }

    /// Injects a random fault.
    pub(super) fn inject_fault(&mut self) {
        if self.is_over {
            return;
        }
        let next = self.rng.between(1, 2 * self.fault_rates.interval);
        self.event_queue.add(next, Event::Fault);
        match self.rng.below(34) {
            0 => self.controller_goes_down(),
            1 | 2 => self.partition_is_harmed(),
            3 => self.capacity_is_taken(),
            4 => self.capacity_is_fragmented(),
            5 | 6 => self.replica_dies(),
            7 | 8 => {
                let who = self.rng.below(2);
                self.stand_still(who);
            }
            9 => self.outage(),
            10 => self.watch_lags(),
            11 | 12 => self.object_is_deleted(),
            13 => self.object_is_moved(),
            14 | 15 => self.partition_is_harmed(),
            16 => self.controller_is_closed(),
            17 => self.status_is_edited(),
            18 => self.release_is_replaced(),
            19 => self.back_up(),
            20 => self.controller_forgets(),
            21 => self.controller_removes_nothing(),
            22 => self.controller_denies(),
            23 => self.controller_leaves(),
            24 => self.controller_is_renamed(),
            25 => self.clock_is_set_back(),
            26..=28 => self.pod_is_disrupted(),
            29 => self.pod_is_deleted(),
            30 | 31 => self.job_process_dies(),
            _ => self.request_reset(),
        }
    }

    fn controller_goes_down(&mut self) {
        let index = self.rng.below(self.controllers.len());
        let loses_state = self.rng.permille(250);
        let controller = &mut self.controllers[index];
        controller.is_down = true;
        if loses_state {
            let history = &self.history;
            controller.made.retain(|id, _| !history.is_ours(id));
        }
        if loses_state {
            self.cover(CoveragePoint::LostState);
        }
        self.cover(CoveragePoint::WentDown);
        let pause = self.rng.pick(&[2_000, 20_000, 60_000, 200_000]);
        self.repair_later(pause, Repair::ControllerIsUp(index));
        self.note(|| format!("controller {index} is down; lost its state: {loses_state}"));
    }

    /// A controller restarts and has not loaded its partitions for a moment, or for longer.
    fn controller_forgets(&mut self) {
        let index = self.rng.below(self.controllers.len());
        self.controllers[index].is_blank = true;
        self.cover(CoveragePoint::Forgets);
        let pause = self.rng.pick(&[500, 5_000, 20_000, 45_000]);
        self.repair_later(pause, Repair::Remembers(index));
        self.note(|| format!("controller {index} forgets its partitions for {pause} ms"));
    }

    fn controller_denies(&mut self) {
        let index = self.rng.below(self.controllers.len());
        self.controllers[index].denies = true;
        self.cover(CoveragePoint::Denies);
        let pause = self.rng.pick(&[2_000, 20_000, 90_000]);
        self.repair_later(pause, Repair::Admits(index));
        self.note(|| format!("controller {index} lets the operator see nothing for {pause} ms"));
    }

    fn controller_removes_nothing(&mut self) {
        let index = self.rng.below(self.controllers.len());
        self.controllers[index].refuses_removals = true;
        self.cover(CoveragePoint::RefusesRemovals);
        let pause = self.rng.between(10_000, 300_000);
        self.repair_later(pause, Repair::Removes(index));
        self.note(|| format!("controller {index} removes nothing for {pause} ms"));
    }

    /// A partition of the operator goes to ERROR, is removed by a user, is busy without end, or
    /// reports an unknown state.
    fn partition_is_harmed(&mut self) {
        let index = self.rng.below(self.controllers.len());
        let kind = self.rng.below(5);
        let ours: Vec<String> = self.controllers[index]
            .made
            .keys()
            .filter(|id| self.history.is_ours(id))
            .cloned()
            .collect();
        if ours.is_empty() {
            return;
        }
        let id = ours[self.rng.below(ours.len())].clone();
        self.note(|| format!("{id} is harmed: {kind}"));
        let made = self.controllers[index]
            .made
            .get_mut(&id)
            .expect("it was listed");
        match kind {
            0 => {
                self.controllers[index].made.remove(&id);
                self.cover(CoveragePoint::TakenByHand);
            }
            1 => {
                made.is_odd = !made.is_odd;
                self.cover(CoveragePoint::OddState);
            }
            2 => {
                if (made.ready, made.operation) == (ReadyState::Active, OperationState::Idle) {
                    made.ready = ReadyState::Pending;
                    made.operation = OperationState::Resetting;
                    self.cover(CoveragePoint::StaysBusy);
                }
            }
            _ => {
                made.ready = ReadyState::Error;
                made.operation = OperationState::Idle;
                self.cover(CoveragePoint::WentToError);
                if self.rng.permille(800) {
                    let pause = self.rng.between(20_000, 120_000);
                    let then = Then::Healed;
                    let controller = index;
                    self.event_queue.add(
                        pause,
                        Event::Progress {
                            controller,
                            id,
                            then,
                        },
                    );
                }
            }
        }
    }

    fn capacity_is_taken(&mut self) {
        let index = self.rng.below(self.controllers.len());
        let ipus = self.rng.pick(&[1, 2, 4, 8]);
        self.numbers += 1;
        let number = self.numbers;
        if self.controllers[index].inventory().free() < ipus {
            return;
        }
        self.cover(CoveragePoint::CapacityTaken);
        let id = foreign(number);
        self.note(|| format!("{id} of {ipus} IPUs is made by hand on {index}"));
        self.controllers[index].insert(id.clone(), ipus, ReadyState::Active, OperationState::Idle);
        self.foreign.insert((index, id));
        let pause = self.rng.between(10_000, 600_000);
        self.repair_later(pause, Repair::CapacityReleased(index, number));
    }

    fn capacity_is_fragmented(&mut self) {
        let index = self.rng.below(self.controllers.len());
        self.controllers[index].largest = self.rng.pick(&[0, 1, 2]);
        self.cover(CoveragePoint::Fragmented);
        let pause = self.rng.between(5_000, 120_000);
        self.repair_later(pause, Repair::LargeAgain(index));
        self.note(|| format!("controller {index} makes nothing large"));
    }

    fn controller_is_closed(&mut self) {
        let index = self.rng.below(self.controllers.len());
        let cordon_state = self
            .rng
            .pick(&[CordonState::Cordoned, CordonState::Draining]);
        let name = self.controllers[index].reference.name.clone();
        self.cover(CoveragePoint::Cordoned);
        self.note(|| format!("{name} is {cordon_state:?}"));
        self.cordons.insert(name, cordon_state);
        let pause = self.rng.between(10_000, 120_000);
        self.repair_later(pause, Repair::Opened(index));
    }

    /// A client writes the partition of another one into a status, as if it were the object's own.
    fn status_is_edited(&mut self) {
        let (Some(key), Some((index, id))) = (self.some_object(), self.foreign.first().cloned())
        else {
            return;
        };
        self.cover(CoveragePoint::StatusEdited);
        self.note(|| format!("{id} is written into the status of {}", self.name(key)));
        let controller = self.controllers[index].reference.clone();
        let outcome = self
            .rng
            .pick(&[AttemptOutcome::Created, AttemptOutcome::Unknown]);
        self.api.update(key, |object| {
            let status = object.status.get_or_insert_default();
            status
                .attempts
                .push(samples::attempt(controller, &id, outcome));
        });
    }

    fn replica_dies(&mut self) {
        let who = self.rng.below(2);
        if !self.is_dead(who) {
            let downtime = self.rng.between(500, 20_000);
            self.kill(who, downtime);
        }
    }

    /// A replica crashes, and restarts after these milliseconds.
    pub(super) fn kill(&mut self, who: usize, downtime: u64) {
        self.crash(who, downtime);
        self.repair_later(downtime, Repair::Started(who));
        self.repair_later(15_000, Repair::BecomeLeader(1 - who));
        self.note(|| format!("replica {who} is killed"));
    }

    /// A replica is paused and retains its state; meanwhile the other one becomes the leader.
    pub(super) fn stand_still(&mut self, who: usize) {
        if self.is_dead(who) {
            return;
        }
        self.cover(CoveragePoint::Paused);
        let pause = self.rng.pick(&[50, 2_000, 30_000, 90_000]);
        let notices = self.rng.between(0, 10_000);
        self.replicas[who].stands_until = self.event_queue.now() + pause;
        if pause > 15_000 {
            self.repair_later(15_000, Repair::BecomeLeader(1 - who));
            self.repair_later(pause + notices, Repair::StepDown(who));
        }
        self.note(|| format!("replica {who} stands still for {pause} ms"));
    }

    fn outage(&mut self) {
        self.cover(CoveragePoint::Outage);
        let pause = self.rng.between(100, 10_000);
        self.api_down_until = self.event_queue.now() + pause;
        self.note(|| format!("the API server is down for {pause} ms"));
    }

    fn watch_lags(&mut self) {
        self.cover(CoveragePoint::LaggingWatch);
        let who = self.rng.below(2);
        self.replicas[who].lag = self.rng.pick(&[500, 5_000, 30_000]);
        let pause = self.rng.between(5_000, 60_000);
        self.repair_later(pause, Repair::WatchIsQuick(who));
    }

    fn object_is_deleted(&mut self) {
        let Some(key) = self.some_object() else {
            return;
        };
        self.cover(CoveragePoint::DeletedByHand);
        let now = Time(self.timestamp());
        let is_forced = self.rng.permille(500);
        self.note(|| {
            format!(
                "{} is deleted by hand; by force: {is_forced}",
                self.name(key)
            )
        });
        if is_forced {
            self.cover(CoveragePoint::Forced);
            self.api.update(key, |object| {
                let annotations = object.metadata.annotations.get_or_insert_default();
                annotations.insert(labels::FORCE_ANNOTATION.to_owned(), "true".to_owned());
            });
        }
        self.api.delete(key, now);
        self.pods_of_partition_are_deleted(key);
    }

    /// An object is deleted and restored within the grace period. Its owner tolerates that.
    fn object_is_moved(&mut self) {
        let Some(key) = self.some_object() else {
            return;
        };
        let is_foreign = self.jobs[job_of(key)].is_foreign;
        let is_deleted = self
            .api
            .get(key)
            .is_some_and(|stored| api_server::is_deleted(&stored.object));
        if !is_foreign || is_deleted {
            return;
        }
        self.cover(CoveragePoint::Moved);
        self.note(|| format!("{} is gone for a time", self.name(key)));
        self.api.move_out(key);
        let pause = self.rng.between(100, 25_000);
        self.repair_later(pause, Repair::Restored(key));
    }

    fn request_reset(&mut self) {
        if let Some(key) = self.some_object() {
            self.note(|| format!("a reset of {} is asked for by hand", self.name(key)));
            self.ask_reset(key);
        }
    }

    fn some_object(&mut self) -> Option<Key> {
        let keys: Vec<Key> = self.api.list().map(|(key, _)| key).collect();
        if keys.is_empty() {
            return None;
        }
        Some(self.rng.pick(&keys))
    }

    pub(super) fn note(&self, line: impl FnOnce() -> String) {
        self.trace.say(self.event_queue.now(), line);
    }
}

/// Ids of other clients: a user, Graphcore's operator, another cluster.
pub(super) fn foreign(number: u64) -> String {
    match number % 3 {
        0 => format!("handmade-{number}"),
        1 => format!("p-mnist-default-{number}"),
        _ => {
            let elsewhere = Identity::new("another-cluster", "release");
            format!("p-mnist-{}-{number:010}", elsewhere.tag())
        }
    }
}
