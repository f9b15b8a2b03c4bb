//! Owners of partitions: IPUJobs, which the operator's own reconciler of jobs serves
//! (`job_controller`), and owners of a kind that the operator does not know, which are less
//! careful. And the Pods that use partitions.
//!
//! A Pod starts only on a partition that the API server offers at that moment: a program cannot
//! attach to any other.

use std::collections::BTreeMap;

use ipu_api::API_VERSION;
use ipu_api::ipupartition::{IPUPartition, IPUPartitionSpec, PartitionOptions, PartitionOwner};
use ipu_api::labels;
use ipu_api::naming;
use ipu_jobs::facts::partition::{self, PartitionState};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::api_server::{self, Key, SLOTS, Stored, key_of};
use super::controllers;
use super::coverage::CoveragePoint;
use super::event_queue::Event;
use super::world::World;

/// Time after a hang, in milliseconds, after which a program that does not hang any more may end by
/// itself.
const HANGS: u64 = 60_000;

/// An owner of partitions.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub name: String,
    pub uid: String,
    /// Whether its kind is unknown to the operator.
    pub is_foreign: bool,
    /// The size of its gang: the instances of an IPUJob with a launcher.
    pub gang: Option<u32>,
    pub ipus: u32,
    /// The number of slots that it requests.
    pub slots: usize,
    /// The controller on whose nodes alone its Pods may run, by its index.
    pub pinned_to: Option<usize>,
    /// Worker Pods of each slot of an IPUJob.
    pub workers: u32,
    pub stage: Stage,
    /// Whether it is created again under its name after its end.
    pub is_reborn: bool,
    /// Runs that fail before the one that completes it; none where it never ends by itself.
    pub runs: Option<u32>,
    /// Seconds after its end at which the operator deletes an IPUJob.
    pub ttl: Option<u32>,
    /// Whether its reconcile is scheduled.
    pub is_due: bool,
}

/// The state of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Not created yet, or gone.
    Away,
    There,
    /// It releases its partitions.
    Ending,
}

/// A Pod whose program uses a partition.
#[derive(Debug)]
pub(super) struct Pod {
    pub key: Key,
    /// The partition that it uses.
    pub id: String,
    pub is_ending: bool,
}

impl Job {
    /// Whether its object is in the API server.
    pub(super) fn is_there(&self) -> bool {
        self.stage != Stage::Away
    }

    pub(super) fn is_ending(&self) -> bool {
        self.stage == Stage::Ending
    }

    pub(crate) fn new(name: String, uid: String, ipus: u32, slots: usize) -> Self {
        Job {
            name,
            uid,
            is_foreign: false,
            gang: None,
            ipus,
            slots,
            pinned_to: None,
            workers: 1,
            stage: Stage::Away,
            is_reborn: false,
            runs: None,
            ttl: None,
            is_due: false,
        }
    }

    /// The node selector of its Pods.
    pub(super) fn node_selector(&self) -> BTreeMap<String, String> {
        let pinned_to = self.pinned_to.into_iter();
        pinned_to.map(controllers::node_label).collect()
    }

    pub(crate) fn object(&self, slot: usize) -> IPUPartition {
        let owner = PartitionOwner {
            api_version: if self.is_foreign {
                "example.com/v1".to_owned()
            } else {
                API_VERSION.to_owned()
            },
            kind: if self.is_foreign {
                "Notebook"
            } else {
                "IPUJob"
            }
            .to_owned(),
            namespace: "default".to_owned(),
            name: self.name.clone(),
            uid: self.uid.clone(),
        };
        let slot = u32::try_from(slot).expect("slots are few");
        let spec = IPUPartitionSpec {
            slot,
            ipus: self.ipus,
            gcds: 1,
            options: PartitionOptions {
                gang_size: self.gang,
                node_selector: self.node_selector(),
                ..PartitionOptions::default()
            },
            owner_metadata: Default::default(),
            reset_generation: 0,
            owner,
        };
        let name = naming::partition_object(&spec.owner, slot);
        let mut object = IPUPartition::new(&name, spec);
        if !self.is_foreign {
            object.metadata.finalizers = Some(vec![labels::PARTITION_FINALIZER.to_owned()]);
        }
        object
    }
}

impl World {
    /// Schedules a reconcile of an owner of an unknown kind.
    pub(super) fn schedule_tick(&mut self, job: usize, delay: u64) {
        let is_foreign = self.jobs[job].is_foreign;
        if is_foreign && !std::mem::replace(&mut self.jobs[job].is_due, true) {
            self.event_queue.add(delay, Event::Tick(job));
        }
    }

    /// The owner is reconciled after these milliseconds.
    pub(super) fn schedule_owner(&mut self, job: usize, delay: u64) {
        if self.jobs[job].is_foreign {
            self.event_queue.add(delay, Event::Tick(job));
        }
        for who in 0..self.replicas.len() {
            self.requeue_job(who, job, delay);
        }
    }

    /// An owner of an unknown kind reconciles its partitions: the next action for each.
    pub(super) fn tick(&mut self, job: usize) {
        self.jobs[job].is_due = false;
        if !self.jobs[job].is_there() {
            return;
        }
        for slot in 0..SLOTS {
            let is_wanted = slot < self.jobs[job].slots && !self.jobs[job].is_ending();
            if self.api.is_moved(key_of(job, slot)) {
                continue;
            }
            if is_wanted {
                self.tend(job, slot);
            } else {
                self.release_slot(job, slot);
            }
        }
        let is_empty = (0..SLOTS).all(|slot| {
            let key = key_of(job, slot);
            self.api.get(key).is_none() && !self.api.is_moved(key)
        });
        if self.jobs[job].is_ending() && is_empty {
            self.job_deleted(job);
        } else {
            let pause = self.rng.between(5_000, 20_000);
            self.schedule_tick(job, pause);
        }
    }

    /// The next action of an owner of an unknown kind for one requested partition and its Pods. It
    /// checks neither who used the partition before, nor whether a reset is requested.
    fn tend(&mut self, job: usize, slot: usize) {
        let key = key_of(job, slot);
        let Some(stored) = self.api.get(key) else {
            let object = self.jobs[job].object(slot);
            let now = Time(self.timestamp());
            self.api.create(key, object, now);
            return;
        };
        let offered = api_server::offered(&stored.object).map(str::to_owned);
        let state = partition::state(Some(&stored.object));
        let pods = self.pods_of(key);
        if let Some(id) = offered {
            if pods.is_empty() {
                self.start_foreign_pod(key, id);
            } else if !self.is_over && self.rng.permille(100) {
                self.ask_reset(key);
            }
            return;
        }
        let mut is_broken = false;
        if let PartitionState::Broken(broken) = &state {
            is_broken = self.is_over || self.rng.permille(150);
            if is_broken && pods.is_empty() && broken.resets.is_some() {
                self.ask_reset(key);
            }
        }
        for pod in pods {
            if is_broken || state.id() != Some(self.pods[&pod].id.as_str()) {
                self.end_pod(pod, 20_000);
            }
        }
    }

    /// Whether a gang job has all of its partitions.
    pub(super) fn is_whole(&self, job: usize) -> bool {
        let slots = 0..self.jobs[job].slots;
        let mut objects = slots.map(|slot| self.api.get(key_of(job, slot)));
        let is_offered = |stored: &Stored| api_server::offered(&stored.object).is_some();
        self.jobs[job].gang.is_none() || objects.all(|found| found.is_some_and(is_offered))
    }

    /// Releases a partition that is not requested any more, once its Pods have ended.
    fn release_slot(&mut self, job: usize, slot: usize) {
        let key = key_of(job, slot);
        let pods = self.pods_of(key);
        if pods.is_empty() {
            let now = Time(self.timestamp());
            let is_wanted = self
                .api
                .get(key)
                .is_some_and(|one| !api_server::is_deleted(&one.object));
            if is_wanted {
                self.api.delete(key, now);
            }
        }
        for pod in pods {
            self.end_pod(pod, 20_000);
        }
    }

    pub(super) fn ask_reset(&mut self, key: Key) {
        self.cover(CoveragePoint::AskedReset);
        self.api
            .update(key, |object| object.spec.reset_generation += 1);
    }

    fn start_foreign_pod(&mut self, key: Key, id: String) {
        self.numbers += 1;
        let pod = self.numbers;
        self.attach(pod, key, id);
        self.ends_by_itself(pod, key);
    }

    /// The program of a Pod begins to use a partition.
    pub(super) fn attach(&mut self, pod: u64, key: Key, id: String) {
        self.cover(CoveragePoint::PodsStarted);
        self.trace.say(self.event_queue.now(), || {
            format!("Pod {pod} of {} starts on {id}", self.name(key))
        });
        let is_ending = false;
        self.pods.insert(pod, Pod { key, id, is_ending });
        self.check_slot(key);
    }

    /// The program of a Pod ends by itself some time later, unless it runs for ever. One whose
    /// partition is lost does not.
    pub(super) fn ends_by_itself(&mut self, pod: u64, key: Key) {
        let id = self.pods.get(&pod).map(|pod| pod.id.as_str());
        let has = |id: &str| self.controllers.iter().any(|one| one.made.contains_key(id));
        let is_lost = id.is_some_and(|id| !has(id));
        if self.jobs[api_server::job_of(key)].runs.is_some() || !self.is_over || is_lost {
            let most = self.rng.pick(&[5_000, 40_000, 40_000, 400_000]);
            let most = most.min(self.longest_run);
            let time = self.rng.between(500, most);
            self.event_queue.add(time, Event::PodEnds(pod));
        }
    }

    /// Schedules the end of a Pod whose program runs.
    pub(super) fn end_pod(&mut self, pod: u64, within: u64) {
        let Some(found) = self.pods.get_mut(&pod) else {
            return;
        };
        if !std::mem::replace(&mut found.is_ending, true) {
            // The Pods of an unreachable node remain for long.
            let is_silent = self.rng.permille(200);
            let most = if is_silent { self.longest_run } else { within };
            let grace = self.rng.between(10, most);
            self.event_queue.add(grace, Event::PodEnds(pod));
        }
    }

    /// The program of a Pod ends.
    pub(super) fn pod_ends(&mut self, pod: u64) {
        let Some(ended) = self.pods.remove(&pod) else {
            return;
        };
        if !ended.is_ending && self.controllers.iter().any(|one| one.is_busy(&ended.id)) {
            self.cover(CoveragePoint::Hung);
            self.pods.insert(pod, ended);
            self.event_queue.add(HANGS, Event::PodEnds(pod));
            return;
        }
        self.cover(CoveragePoint::PodsEnded);
        let job = api_server::job_of(ended.key);
        self.trace.say(self.event_queue.now(), || {
            format!("Pod {pod} of {} ends", self.name(ended.key))
        });
        if !self.jobs[job].is_foreign {
            self.job_pod_ended(pod);
            return;
        }
        if !ended.is_ending {
            match self.jobs[job].runs {
                Some(0) => self.jobs[job].stage = Stage::Ending,
                Some(left) => self.jobs[job].runs = Some(left - 1),
                None => {}
            }
        }
        let lag = self.rng.between(1, 1_000);
        self.schedule_tick(job, lag);
    }

    /// The Pods of one slot whose programs run.
    pub(super) fn pods_of(&self, key: Key) -> Vec<u64> {
        let pods = self.pods.iter();
        pods.filter(|(_, pod)| pod.key == key)
            .map(|(number, _)| *number)
            .collect()
    }

    /// The Pods whose programs use a partition.
    pub(super) fn users(&self, id: &str) -> Vec<String> {
        let pods = self.pods.iter();
        pods.filter(|(_, pod)| pod.id == id)
            .map(|(number, _)| format!("default/pod-{number}"))
            .collect()
    }

    /// The live Pods with the id of a partition, whether their programs use it already or not.
    pub(super) fn live_pods(&self, id: &str) -> Vec<String> {
        let mut pods = self.users(id);
        pods.extend(self.server.unattached(id, &self.pods));
        pods
    }
}
