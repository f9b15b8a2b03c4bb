//! Pure: reduces a job's Pods and partitions to the facts that decisions need.

pub mod deadlines;
pub mod disruption;
mod hold;
mod instance;
pub mod partition;
pub mod pod;
pub mod problems;
pub mod projection;
pub mod readiness;
mod rejections;
mod starts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipu_api::ipujob::FailurePolicy;
use ipu_api::ipujob_status::{IPUJobStatus, RunStatus};
use ipu_api::naming;
use ipu_api::uid::Uid;
use ipu_runtime::pod_start::StartState;
use ipu_runtime::pod_start::node_report::NodeReport;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde::Serialize;

use self::deadlines::Deadlines;
pub use self::instance::Instance;
use self::partition::{PartitionState, PlacedPartition};
use self::pod::{PodState, SidecarState};
use self::projection::{ObservedPartition, ObservedPod, TemplateDigests};
use self::readiness::Readiness;
use super::job_conditions::{self, DEADLINE_EXCEEDED, FAILED, RUNNING, Recorded};
use super::pod_set;
use super::validate::ValidJob;

/// Key of the launcher in `status.run.starts`, beside the indexes of instances.
pub const LAUNCHER_START: &str = "launcher";

/// Everything that was read from the cluster for one job.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Pods that the job owns, by name.
    pub pods: Vec<Arc<ObservedPod>>,
    /// Partitions that the job owns, by name.
    pub partitions: Vec<Arc<ObservedPartition>>,
    /// Nodes of Pods whose grace period is over.
    pub nodes: Vec<Node>,
    /// By name: what only the events of a Pod show of its start.
    pub node_reports: BTreeMap<String, NodeReport>,
    /// Names of Pods that certainly have not run: they were not created, or were deleted before
    /// they had a node.
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
    /// Time of the reconcile.
    #[serde(skip)]
    pub now: Timestamp,
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
    /// Whether it is a launcher whose command is held back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_held: bool,
    /// Whether it is a launcher with the rights that the launchers of its namespace share.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shares_rights: bool,
    /// The sidecars of a Pod whose main container has ended.
    pub sidecars: SidecarState,
    /// The start of a Pod.
    #[serde(skip_serializing_if = "StartState::is_unhindered")]
    pub start: StartState,
    /// The container that waits while the main container of the Pod runs, with the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_container: Option<String>,
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
    let launcher = reader.launcher(&instances);
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
        now,
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

    /// The live workers of desired instances that were created from another template than the
    /// current one.
    pub fn outdated(&self) -> Vec<&str> {
        let outdated = self.instances.iter().flat_map(|found| &found.outdated);
        outdated.map(String::as_str).collect()
    }
}

impl Member {
    /// Whether a Pod exists that was created for the current partition.
    fn uses_its_partition(&self) -> bool {
        self.uid.is_some() && !matches!(self.state, PodState::Stale | PodState::Rejected(_))
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
    node_reports: &'a BTreeMap<String, NodeReport>,
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
            node_reports: &observed.node_reports,
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
            uncreated: names_of(&workers, |name| self.uncreated.contains(name)),
            rejected: names_of(&workers, |name| rejections::records(&self.run, name)),
            end: self.run.ended.get(&key).cloned(),
            fails_with_worker: job.launcher.is_none()
                && job.failure_policy == FailurePolicy::FailInstance,
            outdated: self.outdated(&workers),
            automatic_resets: found.map_or(0, |found| found.automatic_resets),
            times: found.map(|found| found.times).unwrap_or_default(),
            start: self.run.starts.get(&key).cloned().unwrap_or_default(),
            pinned: found.is_some_and(|found| found.is_pinned),
            partition: Owned {
                name: naming::partition_object(&job.partition_owner(), index),
                uid: found.map(|found| found.object.uid().to_owned()),
                is_terminating: found.is_some_and(|found| found.is_terminating),
                is_held: false,
                shares_rights: false,
                sidecars: SidecarState::None,
                start: StartState::Unhindered,
                waiting_container: None,
                state,
            },
            workers,
        }
    }

    /// Returns the state of the partition of an instance that must not start. Waiting in the queue
    /// is not a start; an instance that has started continues. Instances of one launcher start
    /// together.
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

    /// The launcher. One that is held back is stale if the first instance has another partition
    /// than when it was created: its environment names that partition. Any other has ended or ends
    /// with its workers.
    fn launcher(&self, instances: &[Instance]) -> Member {
        let name = naming::launcher(&self.job.name);
        let is_held = self.pods.get(name.as_str()).is_some_and(|pod| pod.is_held);
        let first = instances.first().filter(|_| is_held);
        let id = first.and_then(|first| first.partition.state.id());
        self.member(name, id.map(Uid::of))
    }

    fn member(&self, name: String, partition: Option<Uid>) -> Member {
        let pod = self.pods.get(name.as_str());
        let is_rejected = rejections::records(&self.run, &name);
        let member = Member {
            uid: pod.map(|pod| pod.object.uid().to_owned()),
            is_terminating: pod.is_some_and(|pod| pod.termination.is_some()),
            is_held: pod.is_some_and(|pod| pod.is_held),
            shares_rights: pod.is_some_and(|pod| pod.shares_rights),
            sidecars: pod.map_or(SidecarState::None, |pod| pod.sidecars),
            start: pod.map_or(StartState::Unhindered, |pod| pod.start),
            waiting_container: pod
                .and_then(|pod| Some(pod.waiting_container.as_deref()?.to_owned())),
            state: pod.map_or(PodState::Absent, |pod| {
                pod.state(partition, self.run.number, is_rejected)
            }),
            name,
        };
        match self.node_reports.get(&member.name) {
            Some(report) => member.with_report(report),
            None => member,
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

/// The names of the workers that `belongs` selects.
fn names_of(workers: &[Member], belongs: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let names = workers.iter().map(|worker| &worker.name);
    names.filter(|name| belongs(name)).cloned().collect()
}

/// The indexes of instances that have a Pod or a partition, sorted and unique.
fn existing_instances(observed: &Observed) -> impl Iterator<Item = u32> {
    let of_pods = observed.pods.iter().filter_map(|pod| pod.instance);
    let of_partitions = observed.partitions.iter().map(|found| found.slot);
    let all: BTreeSet<u32> = of_pods.chain(of_partitions).collect();
    all.into_iter()
}
