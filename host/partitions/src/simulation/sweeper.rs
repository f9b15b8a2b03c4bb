//! The sweep, in the order of `sweep.rs`: list the controllers, then the API server, then act, with
//! anything in between.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use vipu_client::model::ReadyState;

use super::agenda::Event;
use super::api_server::{Key, Stored, is_deleted, job_of};
use super::controllers::{Call, Controller, Verb};
use super::coverage::Sight;
use super::driver;
use super::invariants::{OWNERLESS_ONLY, demand};
use super::world::World;
use crate::orphans::Place;

/// Between two sweeps that find nothing, in milliseconds.
pub(super) const PERIOD: u64 = 120_000;

/// How far a sweep is.
#[derive(Debug)]
pub(super) enum Stage {
    /// Nothing is read yet.
    List,
    /// The controllers were listed.
    Judge(Vec<Place>),
    /// These are to be removed, one after the other, once nobody uses them.
    Count(Vec<Place>),
    /// Nobody used the first of these a moment ago.
    Remove(Vec<Place>),
}

impl World {
    pub(super) fn schedule_sweep(&mut self, who: usize, delay: u64) {
        let life = self.replicas[who].life;
        let stage = Stage::List;
        self.agenda.add(delay, Event::Sweep { who, life, stage });
    }

    /// A replica gets on with its sweep.
    pub(super) fn sweep(&mut self, who: usize, life: u64, stage: Stage) {
        if self.replicas[who].life != life || self.is_dead(who) {
            return;
        }
        let next = match stage {
            // The next leader sweeps when it takes over.
            Stage::List if !self.replicas[who].acts => return,
            Stage::List => Some(Stage::Judge(self.places())),
            Stage::Judge(_) if self.is_api_down() => None,
            Stage::Judge(found) => Some(Stage::Count(self.judge(who, &found))),
            Stage::Count(mut due) => loop {
                let Some((_, id)) = due.last() else {
                    break None;
                };
                if self.users(id).is_empty() {
                    break Some(Stage::Remove(due));
                }
                self.saw(Sight::SparedOrphan);
                due.pop();
            },
            Stage::Remove(mut due) => {
                if let Some(place) = due.pop() {
                    self.remove_orphan(place);
                }
                Some(Stage::Count(due))
            }
        };
        let Some(stage) = next else {
            let has_suspects = !self.replicas[who].suspects.is_empty();
            let pause = if has_suspects { grace() } else { PERIOD };
            self.schedule_sweep(who, pause);
            return;
        };
        let pause = self.latency();
        self.agenda.add(pause, Event::Sweep { who, life, stage });
    }

    /// Every partition on every controller that answers.
    fn places(&self) -> Vec<Place> {
        let is_silent = |one: &&Controller| one.is_down || one.is_blank || one.denies;
        let up = self.controllers.iter().filter(|one| !is_silent(one));
        up.flat_map(|one| {
            let name = &one.reference.name;
            one.made.keys().map(move |id| (name.clone(), id.clone()))
        })
        .collect()
    }

    /// Deletes objects whose owner is gone, and tells which partitions are nobody's.
    fn judge(&mut self, who: usize, found: &[Place]) -> Vec<Place> {
        let listed: Vec<(Key, Stored)> = self
            .api
            .list()
            .map(|(key, stored)| (key, stored.clone()))
            .collect();
        for (key, stored) in &listed {
            let job = &self.jobs[job_of(*key)];
            if job.is_stranger || job.is_there() || is_deleted(&stored.object) {
                continue;
            }
            self.saw(Sight::SweptObject);
            let now = Time(self.timestamp());
            self.api.delete(*key, now);
        }
        let held = driver::held(listed.iter().map(|(_, stored)| stored.object.as_ref()));
        let now = self.timestamp();
        let suspects = &self.replicas[who].suspects;
        let told = driver::orphans(found, &held, suspects, &self.settings.identity, now);
        self.replicas[who].suspects = told.suspects;
        told.due
    }

    fn remove_orphan(&mut self, (name, id): Place) {
        let objects = self.api.list().map(|(_, stored)| stored.object.as_ref());
        let is_held = driver::held(objects.chain(self.api.moved())).contains(&id);
        demand(!is_held, OWNERLESS_ONLY, || {
            format!("{id} on {name} is swept")
        });
        self.saw(Sight::SweptOrphan);
        self.trace
            .say(self.agenda.now(), || format!("swept {id} on {name}"));
        let mut known = self.controllers.iter();
        let controller = known
            .position(|one| one.reference.name == name)
            .expect("it was listed");
        let way = if self.chance.permille(self.weather.calls) {
            self.chance.between(1, 60_000)
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
        self.agenda.add(way, Event::Arrive(call));
    }
}

fn grace() -> u64 {
    let grace: SignedDuration = driver::GRACE;
    grace.as_millis().try_into().expect("a grace is short")
}
