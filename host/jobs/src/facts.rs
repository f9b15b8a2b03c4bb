//! Pure: reduces a job's Pods and partitions to the facts that decisions need.

pub mod deadlines;
pub mod disruption;
pub mod partition;
pub mod pod;
pub mod projection;
pub mod readiness;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipu_api::ipujob_status::{IPUJobStatus, InstanceEnd, RunStatus};
use ipu_api::naming;
use ipu_api::uid::Uid;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde::Serialize;

use self::deadlines::Deadlines;
use self::partition::{PartitionState, PartitionTimes, PlacedPartition};
use self::pod::{PodState, SidecarState};
use self::projection::{ObservedPartition, ObservedPod, TemplateDigests};
use self::readiness::Readiness;
use super::job_conditions::{self, DEADLINE_EXCEEDED, FAILED, RUNNING, Recorded};
use super::pod_set;
use super::validate::ValidJob;

/// Everything that was read from the cluster for one job.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Pods that the job owns, by name.
    pub pods: Vec<Arc<ObservedPod>>,
    /// Partitions that the job owns, by name.
    pub partitions: Vec<Arc<ObservedPartition>>,
    /// Nodes of Pods whose grace period is over.
    pub nodes: Vec<Node>,
    /// Names of Pods that this process certainly failed to create.
    pub uncreated: BTreeSet<String>,
    /// The status before the reconcile.
    pub status: IPUJobStatus,
}

/// The facts about one job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Facts {
    /// The desired instances, in order.
    pub instances: Vec<Instance>,
    /// Surge instances, which exist while others are replaced, in order.
    pub surge: Vec<Instance>,
    /// Other instances that still have a Pod or a partition, in order.
    pub surplus: Vec<Instance>,
    /// The launcher Pod; `Absent` also in jobs that have none.
    pub launcher: Member,
    /// Start time of the launcher's container, if it runs.
    pub launcher_started: Option<Timestamp>,
    /// Whether the status records that the job ran. It decides how a deleted Pod counts.
    pub has_run: bool,
    /// Whether the status records that the job exceeded its deadline.
    pub timed_out: bool,
    /// The end that the status records.
    pub recorded: Option<Recorded>,
    /// The state of the run that the status records.
    pub run: RunStatus,
    /// The deadlines that have passed.
    pub deadlines: Deadlines,
    /// Whether Pods of the run are Ready, or were.
    #[serde(skip)]
    pub readiness: Readiness,
}

/// One instance: a partition and the Pods that share it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Instance {
    /// Its index, from 0.
    pub index: u32,
    /// Its partition.
    pub partition: Owned<PartitionState>,
    /// Whether it must not start. A partition that it waits for is released.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// Times at which its partition was requested and became ready.
    #[serde(skip)]
    pub times: PartitionTimes,
    /// Its worker Pods, in the order of their GCDs.
    pub workers: Vec<Member>,
    /// Its live workers that were created from another template than the current one.
    pub outdated: Vec<String>,
    /// The end that the status records. A Pod that was deleted since is not recreated.
    pub end: Option<InstanceEnd>,
    /// Whether its Pods may have used the partition. Then other Pods can use it only after a reset.
    pub used: bool,
    /// Workers that never used the partition, because their Pods were never created.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub uncreated: BTreeSet<String>,
    /// Number of resets of the current partition that the V-IPU controller did by itself.
    pub automatic_resets: u32,
    /// Whether its partition is pinned to its IPUs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
}

/// One Pod that the job has or needs.
pub type Member = Owned<PodState>;

/// An object of the job by name, whether it exists or not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Owned<S> {
    /// Name of the object.
    pub name: String,
    /// Its UID; `None` if it does not exist.
    pub uid: Option<String>,
    /// Whether it has a deletion timestamp.
    pub is_terminating: bool,
    /// The sidecars of a Pod whose main container has ended.
    pub sidecars: SidecarState,
    /// Its state.
    pub state: S,
}

/// Computes the facts at the time `now`.
pub fn facts(job: &ValidJob, observed: &Observed, now: Timestamp) -> Facts {
    let reader = Reader::new(job, observed);
    let instances: Vec<Instance> = (0..job.instances)
        .map(|index| reader.instance(index))
        .collect();
    let outdated = instances.iter().filter(|found| found.is_outdated()).count();
    let surge = if job.launcher.is_some() {
        0
    } else {
        let outdated = u32::try_from(outdated).unwrap_or(u32::MAX);
        job.strategy.surge(job.instances).min(outdated)
    };
    let desired = job.instances.saturating_add(surge);
    let surplus = existing_instances(observed).filter(|index| *index >= desired);
    let beyond = job.instances..desired;
    let surge: Vec<Instance> = beyond.map(|index| reader.instance(index)).collect();
    let launcher = reader.member(naming::launcher(&job.name), None);
    Facts {
        surplus: surplus.map(|index| reader.instance(index)).collect(),
        launcher_started: reader.launcher_started(),
        has_run: job_conditions::is_condition_true(&observed.status, RUNNING),
        timed_out: observed
            .status
            .conditions
            .iter()
            .any(|condition| condition.type_ == FAILED && condition.reason == DEADLINE_EXCEEDED),
        recorded: job_conditions::recorded_end(&observed.status),
        deadlines: deadlines::deadlines(job, &observed.status, now),
        readiness: readiness::of_run(
            |name| Some(reader.pods.get(name)?.readiness),
            [&instances, &surge],
            &launcher,
        ),
        run: reader.run,
        instances,
        surge,
        launcher,
    }
}

impl Facts {
    /// All existing and desired instances.
    pub fn all(&self) -> impl Iterator<Item = &Instance> {
        let beyond = self.surge.iter().chain(&self.surplus);
        self.instances.iter().chain(beyond)
    }

    /// The workers of all desired instances.
    pub fn workers(&self) -> impl Iterator<Item = &Member> {
        self.instances.iter().flat_map(|found| &found.workers)
    }

    /// The live workers of desired instances that were created from another template than the current one.
    pub fn outdated(&self) -> Vec<&str> {
        let outdated = self.instances.iter().flat_map(|found| &found.outdated);
        outdated.map(String::as_str).collect()
    }
}

impl Instance {
    /// Whether all its Pods have ended, now or in an earlier reconcile.
    pub fn ended(&self) -> bool {
        self.end.is_some() || self.workers.iter().all(|worker| worker.state.ended())
    }

    /// Whether one of its Pods may still use the partition.
    pub fn live(&self) -> bool {
        self.workers.iter().any(Member::live)
    }

    /// Whether a Pod must be created or recreated.
    pub fn incomplete(&self) -> bool {
        self.workers.iter().any(|worker| worker.state.missing())
    }

    /// Whether a Pod is missing that may have used the partition. Then the other Pods restart with it.
    pub fn has_lost_pod(&self) -> bool {
        let mut missing = self.workers.iter().filter(|found| found.state.missing());
        missing.any(|found| found.uid.is_some() || !self.uncreated.contains(&found.name))
    }

    /// Whether all its Pods are Ready.
    pub fn available(&self) -> bool {
        self.workers.iter().all(|worker| worker.state.ready())
    }

    /// Whether one of its live Pods was created from another template than the current one.
    pub fn is_outdated(&self) -> bool {
        !self.outdated.is_empty()
    }

    /// Returns its end, if all its Pods have ended. The first failed Pod decides.
    pub fn instance_end(&self) -> Option<InstanceEnd> {
        if self.end.is_some() || !self.ended() {
            return self.end.clone();
        }
        let mut states = self.workers.iter().map(|worker| &worker.state);
        let failure = states.find_map(PodState::failure);
        Some(InstanceEnd {
            failure: failure.map(ToString::to_string),
            exit_code: failure.and_then(|failure| failure.exit_code),
        })
    }
}

impl Member {
    /// Whether a Pod exists that was created for the current partition.
    fn uses_its_partition(&self) -> bool {
        self.uid.is_some() && self.state != PodState::Stale
    }

    /// Whether the Pod exists and may still use its partition.
    pub fn live(&self) -> bool {
        self.uid.is_some() && (self.sidecars != SidecarState::None || !self.state.ended())
    }
}

/// Finds the objects of an instance among all objects of the job.
struct Reader<'a> {
    job: &'a ValidJob,
    pods: BTreeMap<&'a str, &'a ObservedPod>,
    partitions: BTreeMap<u32, &'a ObservedPartition>,
    uncreated: &'a BTreeSet<String>,
    /// Labels that the workers' nodes must have.
    node_selector: BTreeMap<String, String>,
    run: RunStatus,
}

impl<'a> Reader<'a> {
    fn new(job: &'a ValidJob, observed: &'a Observed) -> Self {
        let pods = observed.pods.iter();
        let partitions = observed.partitions.iter();
        Self {
            job,
            pods: pods.map(|pod| (pod.object.name(), &**pod)).collect(),
            partitions: partitions
                .map(|partition| (partition.slot, &**partition))
                .collect(),
            uncreated: &observed.uncreated,
            node_selector: pod_set::worker_node_selector(job),
            run: observed.status.run.clone().unwrap_or_default(),
        }
    }

    fn instance(&self, index: u32) -> Instance {
        let job = self.job;
        let found = self.partitions.get(&index).copied();
        let state = found.map_or(PartitionState::Absent, |found| {
            found.state(&self.node_selector)
        });
        let id = state.id().map(Uid::of);
        let key = index.to_string();
        let workers: Vec<Member> = (0..job.size.workers)
            .map(|gcd| {
                let name = naming::worker(&job.name, job.worker_index(index, gcd));
                self.member(name, id)
            })
            .collect();
        let refusal = self.refusal(found, &state, &workers);
        let refused = refusal.is_some();
        let state = refusal.unwrap_or(state);
        let is_recorded = |one: &PlacedPartition| self.run.used.get(&key) == Some(&one.use_key());
        // An existing Pod uses it, whether the status records that or not.
        let in_use = || workers.iter().any(Member::uses_its_partition);
        Instance {
            index,
            refused,
            used: state
                .placed()
                .is_some_and(|placed| is_recorded(placed) || in_use()),
            uncreated: self.unmade_of(&workers),
            end: self.run.ended.get(&key).cloned(),
            outdated: self.outdated(&workers),
            automatic_resets: found.map_or(0, |found| found.automatic_resets),
            times: found.map(|found| found.times).unwrap_or_default(),
            pinned: found.is_some_and(|found| found.is_pinned),
            partition: Owned {
                name: naming::partition_object(&job.partition_owner(), index),
                uid: found.map(|found| found.object.uid().to_owned()),
                is_terminating: found.is_some_and(|found| found.is_terminating),
                sidecars: SidecarState::None,
                state,
            },
            workers,
        }
    }

    /// Returns the state of the partition of an instance that must not start. Waiting in the queue is not a start; an
    /// instance that has started continues. Instances of one launcher start together.
    fn refusal(
        &self,
        found: Option<&ObservedPartition>,
        state: &PartitionState,
        workers: &[Member],
    ) -> Option<PartitionState> {
        let error = self.job.start.refusal()?;
        let has_not_started = match state {
            PartitionState::Absent => true,
            PartitionState::Waiting(_) | PartitionState::Rejected(_) => {
                self.job.start.unreadable().is_none() && !found.is_some_and(|found| found.is_placed)
            }
            _ => false,
        };
        let started = if self.job.launcher.is_some() {
            self.partitions.values().any(|one| one.is_placed)
                || !self.pods.is_empty()
                || !self.run.used.is_empty()
        } else {
            workers.iter().any(Member::live) || self.has_used(found)
        };
        (has_not_started && !started).then(|| PartitionState::Rejected(error.to_string()))
    }

    /// Whether Pods may have used this partition.
    fn has_used(&self, found: Option<&ObservedPartition>) -> bool {
        found.is_some_and(|found| self.run.used.contains_key(&found.slot.to_string()))
    }

    fn unmade_of(&self, workers: &[Member]) -> BTreeSet<String> {
        let names = workers.iter().map(|worker| &worker.name);
        let uncreated = names.filter(|name| self.uncreated.contains(*name));
        uncreated.cloned().collect()
    }

    fn member(&self, name: String, partition: Option<Uid>) -> Member {
        let pod = self.pods.get(name.as_str());
        Member {
            uid: pod.map(|pod| pod.object.uid().to_owned()),
            is_terminating: pod.is_some_and(|pod| pod.termination.is_some()),
            sidecars: pod.map_or(SidecarState::None, |pod| pod.sidecars),
            state: pod.map_or(PodState::Absent, |pod| {
                pod.state(partition, self.run.number)
            }),
            name,
        }
    }

    fn launcher_started(&self) -> Option<Timestamp> {
        let launcher = self.pods.get(naming::launcher(&self.job.name).as_str())?;
        launcher.running_since.as_deref().copied()
    }

    fn outdated(&self, workers: &[Member]) -> Vec<String> {
        if self.job.start.unreadable().is_some() {
            return Vec::new();
        }
        let template = &self.job.template;
        let template = TemplateDigests::of(Some(&template.hash), Some(&template.canonical_hash));
        let other_template = |member: &&Member| {
            let pod = self.pods.get(member.name.as_str());
            pod.is_some_and(|pod| pod.is_of_other_template(&template))
        };
        workers
            .iter()
            .filter(|member| !member.state.missing() && !member.state.ended())
            .filter(other_template)
            .map(|member| member.name.clone())
            .collect()
    }
}

/// The indexes of instances that have a Pod or a partition, sorted and unique.
fn existing_instances(observed: &Observed) -> impl Iterator<Item = u32> {
    let of_pods = observed.pods.iter().filter_map(|pod| pod.instance);
    let of_partitions = observed.partitions.iter().map(|found| found.slot);
    let all: BTreeSet<u32> = of_pods.chain(of_partitions).collect();
    all.into_iter()
}
