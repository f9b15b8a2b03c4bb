//! What goes wrong of itself: with controllers, replicas, the API server, and by people's hands.

use ipu_api::ipupartition::{Attempt, AttemptOutcome};
use ipu_api::labels;
use ipu_api::naming::Identity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use vipu_client::cordon::CordonState;
use vipu_client::model::{OperationState, ReadyState};

use super::agenda::Event;
use super::api_server::{self, Key, job_of};
use super::controllers::Then;
use super::coverage::Sight;
use super::executor::Mishap;
use super::repair::Repair;
use super::world::World;

/// How much goes wrong, in cases of a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weather {
    /// Of calls to controllers.
    pub calls: u64,
    /// Of requests to the API server.
    pub requests: u64,
    /// Of decisions, after which the replica stands still.
    pub stalls: u64,
    /// Of requests that are slow.
    pub slow: u64,
    /// Of partitions that do not form, of resets and of removals that fail.
    pub failures: u64,
    /// Milliseconds between two troubles, on average; 0 where there are none.
    pub troubles: u64,
}

impl World {
    /// What goes wrong with a call to a controller.
    pub(super) fn mishap(&mut self) -> Mishap {
        if !self.chance.permille(self.weather.calls) {
            return Mishap::Nothing;
        }
        self.chance.pick(&[
            Mishap::RequestLost,
            Mishap::ReplyLost,
            Mishap::ReplyLost,
            Mishap::Late,
            Mishap::Duplicated,
            Mishap::Refused,
        ])
    }

    /// How long a message takes, in milliseconds.
    pub(super) fn latency(&mut self) -> u64 {
        let most = match self.chance.between(0, 999) {
            n if n < self.weather.slow / 8 => 5_000,
            n if n < self.weather.slow => 300,
            _ => 8,
        };
        self.chance.between(1, most)
    }

    /// How long a caller waits for a reply that does not come.
    pub(super) fn patience(&mut self) -> u64 {
        self.chance.pick(&[20, 500, 3_000, 60_000])
    }

    /// Something goes wrong somewhere.
    pub(super) fn trouble(&mut self) {
        if self.is_over {
            return;
        }
        let next = self.chance.between(1, 2 * self.weather.troubles);
        self.agenda.add(next, Event::Trouble);
        match self.chance.below(28) {
            0 => self.controller_goes_down(),
            1 | 2 => self.partition_is_harmed(),
            3 => self.room_is_taken(),
            4 => self.room_is_fragmented(),
            5 | 6 => self.replica_dies(),
            7 | 8 => {
                let who = self.chance.below(2);
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
            _ => self.reset_is_asked(),
        }
    }

    fn controller_goes_down(&mut self) {
        let index = self.chance.below(self.controllers.len());
        let loses_state = self.chance.permille(250);
        let controller = &mut self.controllers[index];
        controller.is_down = true;
        if loses_state {
            let ledger = &self.ledger;
            controller.made.retain(|id, _| !ledger.is_ours(id));
        }
        if loses_state {
            self.saw(Sight::LostState);
        }
        self.saw(Sight::WentDown);
        let pause = self.chance.pick(&[2_000, 20_000, 60_000, 200_000]);
        self.agenda
            .add(pause, Event::Repair(Repair::ControllerIsUp(index)));
        self.note(|| format!("controller {index} is down; lost its state: {loses_state}"));
    }

    /// A controller starts again and does not know its partitions for a moment, or for longer.
    fn controller_forgets(&mut self) {
        let index = self.chance.below(self.controllers.len());
        self.controllers[index].is_blank = true;
        self.saw(Sight::Forgets);
        let pause = self.chance.pick(&[500, 5_000, 20_000, 45_000]);
        self.agenda
            .add(pause, Event::Repair(Repair::Remembers(index)));
        self.note(|| format!("controller {index} forgets its partitions for {pause} ms"));
    }

    fn controller_denies(&mut self) {
        let index = self.chance.below(self.controllers.len());
        self.controllers[index].denies = true;
        self.saw(Sight::Denies);
        let pause = self.chance.pick(&[2_000, 20_000, 90_000]);
        self.agenda.add(pause, Event::Repair(Repair::Admits(index)));
        self.note(|| format!("controller {index} lets the operator see nothing for {pause} ms"));
    }

    fn controller_removes_nothing(&mut self) {
        let index = self.chance.below(self.controllers.len());
        self.controllers[index].refuses_removals = true;
        self.saw(Sight::RefusesRemovals);
        let pause = self.chance.between(10_000, 300_000);
        self.agenda
            .add(pause, Event::Repair(Repair::Removes(index)));
        self.note(|| format!("controller {index} removes nothing for {pause} ms"));
    }

    /// A partition of ours goes to ERROR, is removed by hand, is at work without end, or tells an odd
    /// state.
    fn partition_is_harmed(&mut self) {
        let index = self.chance.below(self.controllers.len());
        let kind = self.chance.below(5);
        let ours: Vec<String> = self.controllers[index]
            .made
            .keys()
            .filter(|id| self.ledger.is_ours(id))
            .cloned()
            .collect();
        if ours.is_empty() {
            return;
        }
        let id = ours[self.chance.below(ours.len())].clone();
        self.note(|| format!("{id} is harmed: {kind}"));
        let made = self.controllers[index]
            .made
            .get_mut(&id)
            .expect("it was listed");
        match kind {
            0 => {
                self.controllers[index].made.remove(&id);
                self.saw(Sight::TakenByHand);
            }
            1 => {
                made.is_odd = !made.is_odd;
                self.saw(Sight::OddState);
            }
            2 => {
                if (made.ready, made.operation) == (ReadyState::Active, OperationState::Idle) {
                    made.ready = ReadyState::Pending;
                    made.operation = OperationState::Resetting;
                    self.saw(Sight::StaysBusy);
                }
            }
            _ => {
                made.ready = ReadyState::Error;
                made.operation = OperationState::Idle;
                self.saw(Sight::WentToError);
                if self.chance.permille(800) {
                    let pause = self.chance.between(20_000, 120_000);
                    let then = Then::Healed;
                    let controller = index;
                    self.agenda.add(
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

    fn room_is_taken(&mut self) {
        let index = self.chance.below(self.controllers.len());
        let ipus = self.chance.pick(&[1, 2, 4, 8]);
        self.numbers += 1;
        let number = self.numbers;
        if self.controllers[index].inventory().free() < ipus {
            return;
        }
        self.saw(Sight::RoomTaken);
        let id = foreign(number);
        self.note(|| format!("{id} of {ipus} IPUs is made by hand on {index}"));
        self.controllers[index].insert(id.clone(), ipus, ReadyState::Active, OperationState::Idle);
        self.foreign.insert((index, id));
        let pause = self.chance.between(10_000, 600_000);
        self.agenda
            .add(pause, Event::Repair(Repair::RoomGiven(index, number)));
    }

    fn room_is_fragmented(&mut self) {
        let index = self.chance.below(self.controllers.len());
        self.controllers[index].largest = self.chance.pick(&[0, 1, 2]);
        self.saw(Sight::Fragmented);
        let pause = self.chance.between(5_000, 120_000);
        self.agenda
            .add(pause, Event::Repair(Repair::LargeAgain(index)));
        self.note(|| format!("controller {index} makes nothing large"));
    }

    fn controller_is_closed(&mut self) {
        let index = self.chance.below(self.controllers.len());
        let cordon_state = self
            .chance
            .pick(&[CordonState::Cordoned, CordonState::Draining]);
        let name = self.controllers[index].reference.name.clone();
        self.saw(Sight::Closed);
        self.note(|| format!("{name} is {cordon_state:?}"));
        self.cordons.insert(name, cordon_state);
        let pause = self.chance.between(10_000, 120_000);
        self.agenda.add(pause, Event::Repair(Repair::Opened(index)));
    }

    /// Somebody writes what others have made into a status, as if it were the object's own.
    fn status_is_edited(&mut self) {
        let (Some(key), Some((index, id))) = (self.some_object(), self.foreign.first().cloned())
        else {
            return;
        };
        self.saw(Sight::StatusEdited);
        self.note(|| format!("{id} is written into the status of {}", self.name(key)));
        let controller = self.controllers[index].reference.clone();
        let outcome = self
            .chance
            .pick(&[AttemptOutcome::Created, AttemptOutcome::Unknown]);
        self.api.update(key, |object| {
            let status = object.status.get_or_insert_default();
            status.attempts.push(Attempt {
                controller,
                id,
                outcome,
                reason: None,
                started: None,
                decided_by: None,
                account: None,
            });
        });
    }

    fn replica_dies(&mut self) {
        let who = self.chance.below(2);
        if !self.is_dead(who) {
            let downtime = self.chance.between(500, 20_000);
            self.kill(who, downtime);
        }
    }

    /// A replica is killed, and starts again after so many milliseconds.
    pub(super) fn kill(&mut self, who: usize, downtime: u64) {
        self.crash(who, downtime);
        self.agenda
            .add(downtime, Event::Repair(Repair::Started(who)));
        self.agenda
            .add(15_000, Event::Repair(Repair::TakeOver(1 - who)));
        self.note(|| format!("replica {who} is killed"));
    }

    /// A replica stands still with all that it knows; meanwhile the other one takes over.
    pub(super) fn stand_still(&mut self, who: usize) {
        if self.is_dead(who) {
            return;
        }
        self.saw(Sight::Paused);
        let pause = self.chance.pick(&[50, 2_000, 30_000, 90_000]);
        let notices = self.chance.between(0, 10_000);
        self.replicas[who].stands_until = self.agenda.now() + pause;
        if pause > 15_000 {
            self.agenda
                .add(15_000, Event::Repair(Repair::TakeOver(1 - who)));
            self.agenda
                .add(pause + notices, Event::Repair(Repair::StepDown(who)));
        }
        self.note(|| format!("replica {who} stands still for {pause} ms"));
    }

    fn outage(&mut self) {
        self.saw(Sight::Outage);
        let pause = self.chance.between(100, 10_000);
        self.api_down_until = self.agenda.now() + pause;
        self.note(|| format!("the API server is down for {pause} ms"));
    }

    fn watch_lags(&mut self) {
        self.saw(Sight::LaggingWatch);
        let who = self.chance.below(2);
        self.replicas[who].lag = self.chance.pick(&[500, 5_000, 30_000]);
        let pause = self.chance.between(5_000, 60_000);
        self.agenda
            .add(pause, Event::Repair(Repair::WatchIsQuick(who)));
    }

    fn object_is_deleted(&mut self) {
        let Some(key) = self.some_object() else {
            return;
        };
        self.saw(Sight::DeletedByHand);
        let now = Time(self.timestamp());
        let is_forced = self.chance.permille(500);
        self.note(|| {
            format!(
                "{} is deleted by hand; by force: {is_forced}",
                self.name(key)
            )
        });
        if is_forced {
            self.saw(Sight::Forced);
            self.api.update(key, |object| {
                let annotations = object.metadata.annotations.get_or_insert_default();
                annotations.insert(labels::FORCE_ANNOTATION.to_owned(), "true".to_owned());
            });
        }
        self.api.delete(key, now);
    }

    /// An object is gone and restored within the grace. Its owner is one that does not mind.
    fn object_is_moved(&mut self) {
        let Some(key) = self.some_object() else {
            return;
        };
        let is_stranger = self.jobs[job_of(key)].is_stranger;
        let is_deleted = self
            .api
            .get(key)
            .is_some_and(|stored| api_server::is_deleted(&stored.object));
        if !is_stranger || is_deleted {
            return;
        }
        self.saw(Sight::Moved);
        self.note(|| format!("{} is gone for a time", self.name(key)));
        self.api.move_out(key);
        let pause = self.chance.between(100, 25_000);
        self.agenda.add(pause, Event::Repair(Repair::Restored(key)));
    }

    fn reset_is_asked(&mut self) {
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
        Some(self.chance.pick(&keys))
    }

    pub(super) fn note(&self, line: impl FnOnce() -> String) {
        self.trace.say(self.agenda.now(), line);
    }
}

/// Ids that somebody else gave: by hand, by the original, by another cluster.
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
