//! Pure: what a job's Pods and partitions say, reduced to what decisions need.

pub mod disruption;
pub mod due;
pub mod partition;
pub mod pod;

use std::collections::{BTreeMap, BTreeSet};

use ipu_api::ipujob_status::{IPUJobStatus, InstanceEnd, RunStatus};
use ipu_api::ipupartition::{IPUPartition, IPUPartitionStatus};
use ipu_api::names;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde::Serialize;

use self::due::Due;
use self::partition::{Held, PartitionState};
use self::pod::{Aftermath, PodState};
use super::validate::ValidJob;
use super::{kept, report};

/// Everything that was read from the cluster for one job.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Pods that the job owns.
    pub pods: Vec<Pod>,
    /// Partitions that were asked for in the job's name.
    pub partitions: Vec<IPUPartition>,
    /// Nodes of Pods that should have ended and have not.
    pub nodes: Vec<Node>,
    /// Names of Pods that were to be made and were not, as far as this process knows.
    pub unmade: BTreeSet<String>,
    /// The status as it was.
    pub status: IPUJobStatus,
}

/// What decisions need to know of one job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Facts {
    /// The instances that are wanted, in order.
    pub instances: Vec<Instance>,
    /// Instances beyond the wanted number that stand in while others are replaced, in order.
    pub surge: Vec<Instance>,
    /// Instances beyond these that still have a Pod or a partition, in order.
    pub surplus: Vec<Instance>,
    /// The launcher Pod; `Absent` also in jobs that have none.
    pub launcher: Member,
    /// Since when the launcher's container runs, where it does.
    pub launcher_since: Option<Timestamp>,
    /// Whether the status says that the job ran: what became of a Pod that is gone depends on it.
    pub ran: bool,
    /// Whether the status says that the job ended because its time was over.
    pub timed_out: bool,
    /// The end that the status records.
    pub recorded: Option<Recorded>,
    /// What the status remembers of the run.
    pub run: RunStatus,
    /// What is due by the clock.
    pub due: Due,
}

/// One instance: a partition and the Pods that share it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Instance {
    /// Which one, from 0.
    pub index: u32,
    /// Its partition.
    pub partition: Owned<PartitionState>,
    /// Whether it may not start: a partition that it waits for is given up.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// Its worker Pods, in order of their GCD.
    pub workers: Vec<Member>,
    /// Live workers of it that were made from another template than the job has now.
    pub outdated: Vec<String>,
    /// The end that the status records; a Pod that is gone since does not come back.
    pub end: Option<InstanceEnd>,
    /// Whether Pods of it may have begun to use the partition: others use it only after a reset.
    pub spent: bool,
    /// Workers that never used the partition: their Pods could not be made so far.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub unmade: BTreeSet<String>,
    /// Resets that the V-IPU controller made by itself of the partition that it has now.
    pub automatic_resets: u32,
    /// Whether its partition, where it has one, is said to stay where it is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
}

/// One Pod that the job has or wants.
pub type Member = Owned<PodState>;

/// An object of the job by name, whether it exists or not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Owned<S> {
    /// Name of the object.
    pub name: String,
    /// Its UID; none where it does not exist.
    pub uid: Option<String>,
    /// Whether its deletion was asked for already, whatever else it says.
    pub leaving: bool,
    /// What becomes of a Pod after its main container.
    pub aftermath: Aftermath,
    /// What it says.
    pub state: S,
}

/// An end of the job that its status records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Recorded {
    /// It ended well.
    Completed,
    /// It ended badly.
    Failed,
}

/// Reduces what was read to what decisions need at `now`.
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
    let wanted = job.instances.saturating_add(surge);
    let surplus = existing_instances(observed).filter(|index| *index >= wanted);
    Facts {
        surge: (job.instances..wanted)
            .map(|index| reader.instance(index))
            .collect(),
        surplus: surplus.map(|index| reader.instance(index)).collect(),
        launcher_since: reader.launcher_since(),
        launcher: reader.member(names::launcher(&job.name), None),
        ran: report::says(&observed.status, report::RUNNING),
        timed_out: observed.status.conditions.iter().any(|condition| {
            condition.type_ == report::FAILED && condition.reason == report::DEADLINE_EXCEEDED
        }),
        recorded: report::recorded(&observed.status),
        due: due::due(job, &observed.status, now),
        run: reader.run,
        instances,
    }
}

impl Facts {
    /// Every instance that there is.
    pub fn all(&self) -> impl Iterator<Item = &Instance> {
        let beyond = self.surge.iter().chain(&self.surplus);
        self.instances.iter().chain(beyond)
    }

    /// The workers of every wanted instance.
    pub fn workers(&self) -> impl Iterator<Item = &Member> {
        self.instances.iter().flat_map(|found| &found.workers)
    }

    /// Live workers of wanted instances that were made from another template than the job has now.
    pub fn outdated(&self) -> Vec<&str> {
        let outdated = self.instances.iter().flat_map(|found| &found.outdated);
        outdated.map(String::as_str).collect()
    }
}

impl Instance {
    /// Whether all its Pods have run to their end, now or at an earlier look.
    pub fn ended(&self) -> bool {
        self.end.is_some() || self.workers.iter().all(|worker| worker.state.ended())
    }

    /// Whether a Pod of it exists that may still use the partition.
    pub fn live(&self) -> bool {
        self.workers.iter().any(Member::live)
    }

    /// Whether a Pod has to be made, or made again.
    pub fn incomplete(&self) -> bool {
        self.workers.iter().any(|worker| worker.state.missing())
    }

    /// Whether a Pod is gone that may have used the partition: the others start again with it.
    pub fn has_lost_a_pod(&self) -> bool {
        let mut missing = self.workers.iter().filter(|found| found.state.missing());
        missing.any(|found| found.uid.is_some() || !self.unmade.contains(&found.name))
    }

    /// Whether all its Pods are Ready and none is to be replaced.
    pub fn available(&self) -> bool {
        self.workers.iter().all(|worker| worker.state.ready())
    }

    /// Whether a live Pod of it was made from another template than the job has now.
    pub fn is_outdated(&self) -> bool {
        !self.outdated.is_empty()
    }

    /// How it ended, where all its Pods have: the first that failed counts.
    pub fn how_it_ended(&self) -> Option<InstanceEnd> {
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
    /// Whether there is a Pod that was made for the partition as it is now.
    fn uses_its_partition(&self) -> bool {
        self.uid.is_some() && self.state != PodState::Stale
    }

    /// Whether the Pod exists and may still use its partition.
    pub fn live(&self) -> bool {
        self.uid.is_some() && (self.aftermath != Aftermath::None || !self.state.ended())
    }
}

/// Finds what belongs to an instance among all that was read.
struct Reader<'a> {
    job: &'a ValidJob,
    pods: BTreeMap<&'a str, &'a Pod>,
    partitions: BTreeMap<u32, &'a IPUPartition>,
    unmade: &'a BTreeSet<String>,
    run: RunStatus,
}

impl<'a> Reader<'a> {
    fn new(job: &'a ValidJob, observed: &'a Observed) -> Self {
        let pods = observed.pods.iter();
        let partitions = observed.partitions.iter();
        Self {
            job,
            pods: pods
                .filter_map(|pod| Some((pod.metadata.name.as_deref()?, pod)))
                .collect(),
            partitions: partitions
                .map(|partition| (partition.spec.slot, partition))
                .collect(),
            unmade: &observed.unmade,
            run: observed.status.run.clone().unwrap_or_default(),
        }
    }

    fn instance(&self, index: u32) -> Instance {
        let job = self.job;
        let found = self.partitions.get(&index).copied();
        let state = partition::state(found, job.template.spec.node_selector.as_ref());
        let id = state.id().map(ToOwned::to_owned);
        let key = index.to_string();
        let workers: Vec<Member> = (0..job.size.workers)
            .map(|gcd| {
                let name = names::worker(&job.name, job.worker_index(index, gcd));
                self.member(name, id.as_deref())
            })
            .collect();
        let refusal = self.refusal(found, &state, &workers);
        let refused = refusal.is_some();
        let state = refusal.unwrap_or(state);
        let known = |held: &Held| self.run.used.get(&key) == Some(&held.use_key());
        // A Pod that is there uses it, whether it was written down or not.
        let in_use = || workers.iter().any(Member::uses_its_partition);
        Instance {
            index,
            refused,
            spent: state.held().is_some_and(|held| known(held) || in_use()),
            unmade: self.unmade_of(&workers),
            end: self.run.ended.get(&key).cloned(),
            outdated: self.outdated(&workers),
            automatic_resets: found
                .and_then(|found| found.status.as_ref()?.auto_resets.as_ref())
                .map_or(0, |resets| resets.count),
            pinned: found.is_some_and(|found| found.spec.options.pinned),
            partition: Owned {
                name: names::partition_object(&job.partition_owner(), index),
                uid: found.and_then(|partition| partition.metadata.uid.clone()),
                leaving: found.is_some_and(|found| found.metadata.deletion_timestamp.is_some()),
                aftermath: Aftermath::None,
                state,
            },
            workers,
        }
    }

    /// The state of the partition of an instance that may not start. To wait in the queue is no start yet; what
    /// has begun is carried on: instances under one launcher begin together.
    fn refusal(
        &self,
        found: Option<&IPUPartition>,
        state: &PartitionState,
        workers: &[Member],
    ) -> Option<PartitionState> {
        let error = self.job.start.refusal()?;
        let is_open = match state {
            PartitionState::Absent => true,
            PartitionState::Waiting(_) | PartitionState::Rejected(_) => {
                self.job.start.unreadable().is_none() && !found.is_some_and(holds)
            }
            _ => false,
        };
        let begun = if self.job.launcher.is_some() {
            self.partitions.values().any(|one| holds(one))
                || !self.pods.is_empty()
                || !self.run.used.is_empty()
        } else {
            workers.iter().any(Member::live) || self.has_used(found)
        };
        (is_open && !begun).then(|| PartitionState::Rejected(error.to_string()))
    }

    /// Whether Pods may have used what this IPUPartition had.
    fn has_used(&self, found: Option<&IPUPartition>) -> bool {
        found.is_some_and(|found| self.run.used.contains_key(&found.spec.slot.to_string()))
    }

    fn unmade_of(&self, workers: &[Member]) -> BTreeSet<String> {
        let names = workers.iter().map(|worker| &worker.name);
        let unmade = names.filter(|name| self.unmade.contains(*name));
        unmade.cloned().collect()
    }

    fn member(&self, name: String, partition: Option<&str>) -> Member {
        let pod = self.pods.get(name.as_str());
        Member {
            uid: pod.and_then(|pod| pod.metadata.uid.clone()),
            leaving: pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some()),
            aftermath: pod.map_or(Aftermath::None, |pod| pod::aftermath(pod)),
            state: pod.map_or(PodState::Absent, |pod| {
                pod::state(pod, partition, self.run.number)
            }),
            name,
        }
    }

    fn launcher_since(&self) -> Option<Timestamp> {
        let launcher = self.pods.get(names::launcher(&self.job.name).as_str())?;
        pod::running_since(launcher)
    }

    fn outdated(&self, workers: &[Member]) -> Vec<String> {
        if self.job.start.unreadable().is_some() {
            return Vec::new();
        }
        let other_template = |member: &&Member| {
            let pod = self.pods.get(member.name.as_str());
            let annotations = pod.and_then(|pod| pod.metadata.annotations.as_ref());
            annotations
                .and_then(|annotations| annotations.get(names::TEMPLATE_HASH_ANNOTATION))
                .is_some_and(|hash| *hash != self.job.template.hash)
        };
        workers
            .iter()
            .filter(|member| !member.state.missing() && !member.state.ended())
            .filter(other_template)
            .map(|member| member.name.clone())
            .collect()
    }
}

/// Whether it has something on a V-IPU controller, or may have.
fn holds(partition: &IPUPartition) -> bool {
    partition
        .status
        .as_ref()
        .is_some_and(IPUPartitionStatus::is_placed)
}

/// Which instances have a Pod or a partition, in order and each once.
fn existing_instances(observed: &Observed) -> impl Iterator<Item = u32> {
    let of_pods = observed.pods.iter().filter_map(kept::instance);
    let of_partitions = observed.partitions.iter().map(|found| found.spec.slot);
    of_pods
        .chain(of_partitions)
        .collect::<std::collections::BTreeSet<u32>>()
        .into_iter()
}

/// When deletion of something was asked for.
pub(crate) fn deletion_asked(
    metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> Option<Timestamp> {
    let due = metadata.deletion_timestamp.as_ref()?.0;
    let grace = metadata.deletion_grace_period_seconds.unwrap_or(0);
    Some(due - jiff::SignedDuration::from_secs(grace))
}
