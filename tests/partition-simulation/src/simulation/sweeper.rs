//! The sweep, as in `sweep.rs`: it lists the controllers, lists the API server, and performs the
//! tasks of `course.rs`. Other events may occur in between.

use std::time::Duration;

use ipu_ledger::sweep::orphans::RemotePartition;
use ipu_ledger::sweep::{Course, Task};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use vipu_client::model::ReadyState;

use super::api_server::{Key, Stored, is_deleted, job_of};
use super::controllers::{Call, Controller, Verb};
use super::coverage::CoveragePoint;
use super::event_queue::Event;
use super::executor::ApiFault;
use super::invariants::{OWNERLESS_ONLY, demand};
use super::sim_adapter;
use super::world::World;

/// Interval between two sweeps that find nothing, in milliseconds.
pub(super) const PERIOD: u64 = 120_000;

/// An object, and the version in which a sweep has found its owner to be gone.
type Ownerless = (Key, u64);

/// The actions of a sweep; failures are texts.
type Tasks = Course<Ownerless, &'static str>;

/// The progress of a sweep.
#[derive(Debug)]
pub(super) enum Stage {
    /// Nothing was read yet.
    List,
    /// The controllers were listed.
    Judge(Vec<RemotePartition>),
    /// These remain, one after the other.
    Tasks(Tasks),
}

impl World {
    pub(super) fn schedule_sweep(&mut self, who: usize, delay: u64) {
        let life = self.replicas[who].life;
        let stage = Stage::List;
        self.event_queue
            .add(delay, Event::Sweep { who, life, stage });
    }

    /// A replica continues its sweep.
    pub(super) fn sweep(&mut self, who: usize, life: u64, stage: Stage) {
        if self.replicas[who].life != life || self.is_dead(who) {
            return;
        }
        let next = match stage {
            // The next leader sweeps when it starts to lead.
            Stage::List if !self.replicas[who].acts => return,
            Stage::List => Some(Stage::Judge(self.partitions_on_controllers(who))),
            Stage::Judge(found) => match self.api_fault() {
                ApiFault::Nothing => Some(Stage::Tasks(self.judge(who, &found))),
                // Orphans are not determined without that list.
                ApiFault::Before | ApiFault::After => {
                    self.cover(CoveragePoint::SweepFailed);
                    None
                }
            },
            Stage::Tasks(mut tasks) => tasks.next_task().map(|task| {
                if let Err(error) = self.perform(task, &mut tasks) {
                    tasks.failed(error);
                }
                Stage::Tasks(tasks)
            }),
        };
        let Some(stage) = next else {
            let has_suspects = !self.replicas[who].suspects.is_empty();
            let pause = if has_suspects { grace() } else { PERIOD };
            self.schedule_sweep(who, pause);
            return;
        };
        let pause = self.latency();
        self.event_queue
            .add(pause, Event::Sweep { who, life, stage });
    }

    /// Every partition on every controller that answers, in the list or not, as long as an object
    /// holds a partition there.
    fn partitions_on_controllers(&mut self, who: usize) -> Vec<RemotePartition> {
        let left = self.left_behind(who);
        let is_silent = |one: &&Controller| one.is_down || one.is_blank || one.denies;
        let is_swept = |one: &&Controller| one.is_listed || left.contains(&one.reference.name);
        let controllers = self.controllers.iter();
        let up = controllers.filter(|one| !is_silent(one) && is_swept(one));
        let goes_beyond = up.clone().any(|one| !one.is_listed);
        let partitions_on_controllers = up.flat_map(|one| {
            let name = &one.reference.name;
            one.made.keys().map(move |id| (name.clone(), id.clone()))
        });
        let partitions_on_controllers = partitions_on_controllers.collect();
        if goes_beyond {
            self.cover(CoveragePoint::LeftBehind);
        }
        partitions_on_controllers
    }

    /// Determines the objects whose owners are gone, and the orphans.
    fn judge(&mut self, who: usize, found: &[RemotePartition]) -> Tasks {
        let ownerless: Vec<Ownerless> = self
            .api
            .list()
            .filter(|(key, stored)| {
                let job = &self.jobs[job_of(*key)];
                !job.is_foreign && !job.is_there() && !is_deleted(&stored.object)
            })
            .map(|(key, stored)| (key, stored.version))
            .collect();
        let objects = self.api.list();
        let held = sim_adapter::held(objects.map(|(_, stored)| stored.object.as_ref()));
        let now = Duration::from_millis(self.event_queue.now());
        let suspects = &self.replicas[who].suspects;
        let orphans =
            sim_adapter::find_orphans(found, &held, suspects, &self.settings.identity, now);
        self.replicas[who].suspects = orphans.suspects;
        let ownerless = match self.api_fault() {
            ApiFault::Nothing => Ok(ownerless),
            ApiFault::Before | ApiFault::After => {
                self.cover(CoveragePoint::SweepFailed);
                Err("the jobs cannot be listed")
            }
        };
        sim_adapter::course(ownerless, orphans.due)
    }

    fn perform(&mut self, task: Task<Ownerless>, tasks: &mut Tasks) -> Result<(), &'static str> {
        match task {
            Task::Delete(ownerless) => self.delete_ownerless(ownerless)?,
            Task::Count(partition) => {
                let users = self.count_users_of_orphan(&partition)?;
                tasks.counted(partition, users);
            }
            Task::Remove(partition) => self.remove_orphan(partition),
        }
        Ok(())
    }

    /// Deletes an object whose owner is gone, unless the object was changed meanwhile.
    fn delete_ownerless(&mut self, (key, version): Ownerless) -> Result<(), &'static str> {
        if self.undeletable.contains(&key) {
            self.cover(CoveragePoint::NotDeleted);
            return Err("a webhook is against it");
        }
        let api_fault = self.api_fault();
        let is_same = |stored: &Stored| stored.version == version;
        let is_there = self.jobs[job_of(key)].is_there();
        if api_fault != ApiFault::Before && !is_there && self.api.get(key).is_some_and(is_same) {
            self.cover(CoveragePoint::SweptObject);
            let now = Time(self.timestamp());
            self.api.delete(key, now);
        }
        if api_fault == ApiFault::Nothing {
            return Ok(());
        }
        self.cover(CoveragePoint::SweepFailed);
        Err("the API server is down")
    }

    /// Counts the Pods that use an orphan.
    fn count_users_of_orphan(&mut self, (_, id): &RemotePartition) -> Result<usize, &'static str> {
        if self.api_fault() != ApiFault::Nothing {
            self.cover(CoveragePoint::SweepFailed);
            return Err("the Pods cannot be listed");
        }
        let users = self.live_pods(id).len();
        if users > 0 {
            self.cover(CoveragePoint::UsedOrphan);
        }
        Ok(users)
    }

    fn remove_orphan(&mut self, (name, id): RemotePartition) {
        let objects = self.api.list().map(|(_, stored)| stored.object.as_ref());
        let is_held = sim_adapter::held(objects.chain(self.api.moved())).contains(&id);
        demand(!is_held, OWNERLESS_ONLY, || {
            format!("{id} on {name} is swept")
        });
        let mut known = self.controllers.iter();
        let Some(controller) = known.position(|one| one.reference.name == name) else {
            // The name that it had when it was listed does not answer any more.
            return;
        };
        self.cover(CoveragePoint::SweptOrphan);
        self.trace
            .say(self.event_queue.now(), || format!("swept {id} on {name}"));
        let way = if self.rng.permille(self.fault_rates.calls) {
            self.rng.between(1, 60_000)
        } else {
            self.latency()
        };
        let made = self.controllers[controller].made.get(&id);
        let force = made.is_some_and(|made| made.ready == ReadyState::Error);
        let call = Call {
            controller,
            verb: Verb::Remove { force },
            id,
            caller: None,
            is_late: way > 5_000,
            is_refused: false,
        };
        self.event_queue.add(way, Event::Arrive(call));
    }
}

fn grace() -> u64 {
    sim_adapter::GRACE
        .as_millis()
        .try_into()
        .expect("a grace is short")
}
