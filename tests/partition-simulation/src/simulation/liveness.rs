//! Liveness: what must be reached after the last fault, and its deadlines.

use std::collections::{BTreeMap, BTreeSet};

use ipu_api::ipupartition::{IPUPartition, PartitionPhase};
use ipu_api::uid::Uid;
use ipu_placement::queue::{self, QueueEntry};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::api_server::{self, Key, SLOTS, Stored, job_of, key_of};
use super::event_queue::{Event, Fate};
use super::invariants::{GANG_COMPLETE, LIVENESS, OURS_ONLY, demand};
use super::sim_adapter;
use super::world::World;

/// Deadline, in milliseconds, until everything is settled. A call takes at most a minute and
/// arrives at most two minutes late, forming takes at most five minutes, and delays grow to one
/// minute.
const PATIENCE: u64 = 30 * 60_000;

/// Deadline, in milliseconds, until each job has finished that ends by itself: it has four runs at
/// most. The program of each takes at most seven minutes, and a Pod on a silent node ends at most
/// that late.
const RUNS: u64 = 4 * 15 * 60_000;

/// Deadline, in milliseconds, until no orphans are left. A call takes at most a minute and arrives
/// at most two minutes late. A sweep, the grace period and a removal that fails follow.
const SWEPT_WITHIN: u64 = 8 * 60_000;

/// Deadline, in milliseconds, until an incomplete gang has released its partitions: calls as above,
/// then its timeout of two minutes, which starts again where a member was lost again, and the time
/// by which the clock was set back.
const RELEASED_WITHIN: u64 = 11 * 60_000;

/// Interval between two checks, in milliseconds.
const CHECK_INTERVAL: u64 = 15_000;

/// Interval between two checks of a short scenario, in milliseconds.
const SHORT_CHECK_INTERVAL: u64 = 1_000;

impl World {
    /// No fault occurs from now on: every request is served where there is capacity, and no
    /// partition with an owner is swept.
    pub(super) fn settle(&mut self) {
        self.is_over = true;
        self.fault_rates = super::faults::FaultRates::default();
        self.one_leads();
        for controller in &mut self.controllers {
            controller.largest = u32::MAX;
            controller.refuses_removals = false;
            for made in controller.made.values_mut() {
                made.is_odd = false;
            }
        }
        let mut since = BTreeMap::new();
        self.wait_until((PATIENCE, CHECK_INTERVAL), "no orphans are left", |world| {
            world.swept_in_time(&mut since)
        });
        let mut since = BTreeMap::new();
        self.wait_until(
            (PATIENCE, CHECK_INTERVAL),
            "what is wanted is served, and nothing else is there",
            |world| {
                world.gangs_release_in_time(&mut since);
                world
                    .unserved()
                    .or_else(|| world.ownerless().into_iter().next())
            },
        );
        self.wait_until(
            (PATIENCE + RUNS, CHECK_INTERVAL),
            "each job is as it must be",
            |world| {
                world.gangs_release_in_time(&mut since);
                world
                    .unserved()
                    .or_else(|| world.job_complaint())
                    .or_else(|| world.ownerless().into_iter().next())
            },
        );
        self.stays_steady();
    }

    /// Two active replicas are a fault, too: they may reserve the same capacity for as long as both
    /// are active. One of them loses the leadership here.
    fn one_leads(&mut self) {
        if self.replicas.iter().all(|replica| replica.acts) {
            let former = usize::from(!self.is_dead(0));
            self.replicas[former].acts = false;
        }
        self.has_lease = true;
    }

    /// All owners release their partitions, and nothing is left.
    pub(super) fn end(&mut self) {
        for job in 0..self.jobs.len() {
            self.event_queue.add(0, Event::Fate(job, Fate::Delete));
        }
        self.wait_until((PATIENCE, CHECK_INTERVAL), "nothing is left", |world| {
            // Clients delete the objects that they created for an unknown owner.
            for key in world.left_by_foreign_owners() {
                let now = Time(world.timestamp());
                world.api.delete(key, now);
            }
            world.first_remaining()
        });
        for (controller, id) in &self.foreign {
            let is_there = self.controllers[*controller].made.contains_key(id);
            demand(is_there, OURS_ONLY, || format!("{id} is gone"));
        }
    }

    /// Runs until this condition holds. It must hold before the deadline.
    pub(super) fn wait(&mut self, time: u64, what: &str, is_so: impl Fn(&World) -> bool) {
        self.wait_until((time, SHORT_CHECK_INTERVAL), what, |world| {
            let statuses = || world.api.list().map(|(_, one)| &one.object.status);
            (!is_so(world)).then(|| format!("{:?}", statuses().collect::<Vec<_>>()))
        });
    }

    fn wait_until(
        &mut self,
        (time, period): (u64, u64),
        what: &str,
        mut complaint: impl FnMut(&mut World) -> Option<String>,
    ) {
        let end = self.event_queue.now() + time;
        while let Some(complaint) = complaint(self) {
            demand(self.event_queue.now() < end, LIVENESS, || {
                format!("{what}: {complaint}")
            });
            let next = self.event_queue.now() + period;
            self.run_until(next);
        }
    }

    /// A partition that is requested, for which there is capacity, and which is not served.
    fn unserved(&self) -> Option<String> {
        for (key, stored) in self.api.list() {
            if let Some(complaint) = self.complaint(key, stored) {
                return Some(format!("{}: {complaint}", self.name(key)));
            }
        }
        None
    }

    fn complaint(&self, key: Key, stored: &Stored) -> Option<String> {
        let object = stored.object.as_ref();
        let job = &self.jobs[job_of(key)];
        if !job.is_there() {
            // No controller manages the objects of an unknown owner that has ended.
            return (!job.is_foreign).then(|| "its owner is gone".to_owned());
        }
        if api_server::is_deleted(object) {
            return Some(format!("it goes: {:?}", object.status));
        }
        let can_be_served = object.spec.ipus.is_power_of_two() && self.could_hold(object);
        let is_fine = match api_server::phase(object) {
            PartitionPhase::Ready => self.serves(object) && !self.is_held_in_vain(job_of(key)),
            PartitionPhase::Rejected => !can_be_served,
            PartitionPhase::Pending => !self.has_capacity(object) || self.is_kept_from(object),
            PartitionPhase::Creating
            | PartitionPhase::Resetting
            | PartitionPhase::Error
            | PartitionPhase::Releasing => false,
        };
        (!is_fine).then(|| format!("{:?}", object.status))
    }

    /// Whether Pods can use the partition that it offers.
    fn serves(&self, object: &IPUPartition) -> bool {
        let id = object
            .status
            .as_ref()
            .and_then(|status| status.partition_id.as_deref());
        id.is_some_and(|id| self.controllers.iter().any(|one| one.is_usable(id)))
    }

    /// An incomplete gang releases its partitions in time.
    pub(super) fn gangs_release_in_time(&self, since: &mut BTreeMap<usize, u64>) {
        let now = self.event_queue.now();
        for job in 0..self.jobs.len() {
            if !self.is_held_in_vain(job) {
                since.remove(&job);
                continue;
            }
            let first = *since.entry(job).or_insert(now);
            demand(now < first + RELEASED_WITHIN, GANG_COMPLETE, || {
                format!("{} since {first}", self.jobs[job].uid)
            });
        }
    }

    /// Whether a job holds a part of its gang although all members could be placed, and Pods use
    /// none of them.
    fn is_held_in_vain(&self, job: usize) -> bool {
        let objects = (0..SLOTS).filter_map(|slot| self.api.get(key_of(job, slot)));
        let offers: Vec<(&IPUPartition, &str)> = objects
            .filter_map(|one| Some((one.object.as_ref(), api_server::offered(&one.object)?)))
            .collect();
        let is_idle =
            |(object, id): &(&IPUPartition, &str)| self.serves(object) && self.users(id).is_empty();
        self.holds_a_part(job) && !offers.is_empty() && offers.iter().all(is_idle)
    }

    /// Whether a request has a partition, usable or not.
    pub(super) fn has_partition(&self, key: Key) -> bool {
        let object = self.api.get(key).map(|stored| stored.object.as_ref());
        let status = object.and_then(|object| object.status.as_ref());
        status.is_some_and(|status| status.partition_id.is_some())
    }

    /// Whether a requested gang has some of its partitions, and not all.
    pub(super) fn holds_a_part(&self, job: usize) -> bool {
        let Some(gang) = self.jobs[job].gang.filter(|_| self.jobs[job].is_there()) else {
            return false;
        };
        let Some(first) = self.api.get(key_of(job, 0)) else {
            return false;
        };
        let objects = self.api.list().map(|(_, stored)| stored.object.as_ref());
        let held = sim_adapter::held_by_owner(&first.object, objects);
        held > 0 && held < gang && !self.jobs[job].is_ending()
    }

    /// Whether the controllers, empty, have the capacity for its whole gang.
    fn could_hold(&self, object: &IPUPartition) -> bool {
        let places = self.controllers.iter().map(|one| one.total);
        count(object, places) >= object.spec.options.gang_size.unwrap_or(1)
    }

    /// Whether there is free capacity for it and the missing members of its gang.
    fn has_capacity(&self, object: &IPUPartition) -> bool {
        let gang = object.spec.options.gang_size.unwrap_or(1);
        let others = self.api.list().map(|(_, stored)| stored.object.as_ref());
        let held = sim_adapter::held_by_owner(object, others);
        let controllers = self.controllers.iter();
        let missing = gang.saturating_sub(held).max(1);
        if missing > 1 {
            // Free IPUs of one controller may be in pieces.
            let places = controllers.map(|one| one.view(false).1.places(object.spec.ipus));
            return places.sum::<u32>() >= missing;
        }
        let mut largest = controllers.map(|one| one.inventory().largest_free());
        largest.any(|free| free >= object.spec.ipus)
    }

    /// Whether some members of its gang are not requested any more, or an earlier request has
    /// waited for its limit, has no capacity, and could be given some.
    fn is_kept_from(&self, object: &IPUPartition) -> bool {
        let (now, limit) = (self.timestamp(), self.settings.backfill_limit);
        let objects = self.api.list().map(|(_, stored)| stored.object.as_ref());
        let entries = queue::entries(objects.clone(), now);
        let me = queue::own_entry(object, &entries, now);
        let limit = limit.try_into().unwrap_or_default();
        let waits_long = |one: &QueueEntry| now.duration_since(one.since) >= limit;
        let earlier_entries = entries
            .iter()
            .filter(|one| one.position <= me.position && one.waits_for_capacity());
        let mut earlier_entries = earlier_entries.filter(|one| one.owner != me.owner);
        let lacks_capacity = |uid: Uid| {
            let mut objects = objects.clone();
            let one = objects.find(|one| super::queue::uid(one) == uid);
            one.is_some_and(|one| self.could_hold(one) && !self.has_capacity(one))
        };
        me.missing_members > 0
            || earlier_entries.any(|one| waits_long(one) && lacks_capacity(one.uid))
    }

    /// An orphan. Each must be removed before the deadline, counted from when it was first seen:
    /// two active replicas may leave another one while the first is swept.
    fn swept_in_time(&self, since: &mut BTreeMap<String, u64>) -> Option<String> {
        let now = self.event_queue.now();
        let ownerless = self.ownerless();
        since.retain(|one, _| ownerless.contains(one));
        for one in &ownerless {
            let first = *since.entry(one.clone()).or_insert(now);
            demand(now < first + SWEPT_WITHIN, LIVENESS, || one.clone());
        }
        ownerless.into_iter().next()
    }

    /// The orphans of a release.
    fn ownerless(&self) -> Vec<String> {
        let objects = self.api.list().map(|(_, stored)| stored.object.as_ref());
        let held: BTreeSet<String> = sim_adapter::held(objects.chain(self.api.moved()));
        let ours = self.ours().into_iter();
        let ours = ours.filter(|(_, id)| self.history.is_of_this_cluster(id));
        ours.filter(|(controller, id)| !held.contains(*id) && !self.is_removing(*controller, id))
            .filter(|(_, id)| self.live_pods(id).is_empty())
            .map(|(controller, id)| format!("{id} on {controller} is an orphan"))
            .collect()
    }

    fn left_by_foreign_owners(&self) -> Vec<Key> {
        let all = self.api.list();
        let left = all.filter(|(key, stored)| {
            let job = &self.jobs[job_of(*key)];
            job.is_foreign && !job.is_there() && !api_server::is_deleted(&stored.object)
        });
        left.map(|(key, _)| key).collect()
    }

    fn first_remaining(&self) -> Option<String> {
        if let Some((key, stored)) = self.api.list().next() {
            return Some(format!("{}: {:?}", self.name(key), stored.object.status));
        }
        let mut ours = self.ours().into_iter();
        let is_swept = |id: &str| self.history.is_of_this_cluster(id);
        if let Some((controller, id)) = ours.find(|(_, id)| is_swept(id)) {
            return Some(format!("{id} on {controller}"));
        }
        if self.event_queue.calls().next().is_some() {
            return Some("a call is on its way".to_owned());
        }
        let job = self.jobs.iter().find(|job| job.is_there());
        job.map(|job| format!("job {} is there", job.name))
    }
}

/// Returns the number of partitions of this size that fit on the controllers, each with this number
/// of IPUs.
fn count(object: &IPUPartition, ipus: impl Iterator<Item = u32>) -> u32 {
    ipus.map(|ipus| ipus.checked_div(object.spec.ipus).unwrap_or(0))
        .sum()
}
