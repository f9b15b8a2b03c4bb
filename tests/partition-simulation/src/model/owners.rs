//! The owners of partitions in the model: jobs of one slot, by the rules of `ipu_jobs`, and their
//! Pods.
//!
//! Some bounds have careless owners of a kind that the operator does not know.
//!
//! A Pod starts only on a partition that the API server offers at that moment, and may end at any
//! time: its program has ended, or it is deleted.

use ipu_api::ipupartition::IPUPartition;
use ipu_jobs::facts::partition::{self, PartitionState, PlacedPartition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Small;
use super::faults::Fault;
use super::replica::check_slot;
use super::state::{Life, State, Version};
use crate::simulation::api_server::{self, Key};
use crate::simulation::owners::Job;

/// An action of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// It requests a partition.
    Ask,
    /// Its Pod starts.
    Start,
    /// Its Pod ends.
    End,
    /// It requests a reset of a used partition, to use it again.
    UseAgain,
    /// It requests a reset of a broken partition.
    Repair,
    /// It releases its partition.
    GiveBack,
}

impl Small {
    pub(super) fn job(&self, key: Key) -> Job {
        let (name, uid) = (format!("job-{key}"), format!("job-uid-{key}"));
        let mut job = Job::new(name, uid, self.bound.wanted[key], 1);
        job.is_foreign = self.bound.careless;
        job
    }

    /// The actions that are enabled.
    pub(super) fn deeds(&self, state: &State, key: Key) -> Vec<Deed> {
        let owner = &state.owners[key];
        let object = state.api.get(&key).map(|one| one.object.as_ref());
        let mut deeds = Vec::new();
        if owner.pod.is_some() {
            deeds.push(Deed::End);
        }
        match owner.life {
            Life::Away => {}
            Life::Ending => {
                let is_wanted = object.is_some_and(|one| !api_server::is_deleted(one));
                if owner.pod.is_none() && is_wanted {
                    deeds.push(Deed::GiveBack);
                }
            }
            Life::There => deeds.extend(self.tends(state, key, object)),
        }
        deeds
    }

    fn tends(&self, state: &State, key: Key, object: Option<&IPUPartition>) -> Option<Deed> {
        let owner = &state.owners[key];
        let is_offered = object.is_some_and(|one| api_server::offered(one).is_some());
        if self.bound.careless && is_offered {
            // It checks neither who used the partition before, nor whether a reset is requested.
            if owner.pod.is_none() {
                return (owner.starts > 0).then_some(Deed::Start);
            }
            return state.faults.may(Fault::UsedAgain).then_some(Deed::UseAgain);
        }
        match partition::state(object) {
            PartitionState::Absent => Some(Deed::Ask),
            PartitionState::Ready(held) if owner.pod.is_none() => {
                if owner.used.as_ref() != Some(&held.use_key()) {
                    return Some(Deed::Start);
                }
                state.faults.may(Fault::UsedAgain).then_some(Deed::UseAgain)
            }
            PartitionState::Broken(broken) if owner.pod.is_none() && broken.resets.is_some() => {
                Some(Deed::Repair)
            }
            _ => None,
        }
    }

    pub(super) fn deed(&self, state: &mut State, key: Key, deed: Deed) {
        let now = Time(self.time(state.clock));
        match deed {
            Deed::Ask => {
                let owner = &mut state.owners[key];
                owner.used = None;
                owner.made += 1;
                let mut object = self.job(key).object(0);
                object.metadata.uid = Some(format!("uid-{key}-{}", owner.made));
                object.metadata.creation_timestamp = Some(now);
                state.changed(key, Some(Version::of(object)));
            }
            Deed::Start => self.start(state, key),
            Deed::End => {
                state.owners[key].pod = None;
                state.owners[key].attached = false;
            }
            Deed::UseAgain | Deed::Repair => {
                if deed == Deed::UseAgain {
                    state.faults.spend(Fault::UsedAgain);
                }
                update(state, key, |object| object.spec.reset_generation += 1);
            }
            Deed::GiveBack => delete(state, key, now),
        }
    }

    fn start(&self, state: &mut State, key: Key) {
        let Some(object) = state.api.get(&key).map(|one| one.object.clone()) else {
            return;
        };
        let use_key = partition::state(Some(&object))
            .placed()
            .map(PlacedPartition::use_key);
        if let Some(id) = api_server::offered(&object) {
            let attached = state.exists(id);
            let owner = &mut state.owners[key];
            owner.attached = attached;
            owner.starts = owner.starts.saturating_sub(1);
            // A careless owner does not record that.
            owner.used = use_key.filter(|_| !self.bound.careless);
            owner.pod = Some(id.to_owned());
            check_slot(state, key);
        }
    }
}

/// Requests an object's deletion: it remains as long as it has the finalizer.
pub(super) fn delete(state: &mut State, key: Key, now: Time) {
    update(state, key, |object| {
        object.metadata.deletion_timestamp.get_or_insert(now);
    });
}

pub(super) fn update(state: &mut State, key: Key, change: impl FnOnce(&mut IPUPartition)) {
    let Some(found) = state.api.get(&key) else {
        return;
    };
    let mut object = IPUPartition::clone(&found.object);
    change(&mut object);
    let is_gone = api_server::is_deleted(&object) && !api_server::is_held_by_finalizer(&object);
    state.changed(key, (!is_gone).then(|| Version::of(object)));
}
