//! Pure: what a job's Pods and partitions say, reduced to what decisions need.

pub mod partition;
pub mod pod;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;

use self::partition::PartitionState;
use self::pod::{Failure, PodState};
use super::validate::ValidJob;
use crate::api::ipujob_status::IPUJobStatus;
use crate::api::ipupartition::IPUPartition;
use crate::names;

/// Everything that was read from the cluster for one job.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Pods that the job owns.
    pub pods: Vec<Pod>,
    /// Partitions that were asked for in the job's name.
    pub partitions: Vec<IPUPartition>,
    /// The status as it was.
    pub status: IPUJobStatus,
}

/// What decisions need to know of one job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Facts {
    /// The instances that are wanted, in order.
    pub instances: Vec<Instance>,
    /// Instances beyond the wanted number that still have a Pod or a partition, in order.
    pub surplus: Vec<Instance>,
    /// The launcher Pod; `Absent` also in jobs that have none.
    pub launcher: Member,
    /// Whether the status says that the job ran: what became of a Pod that is gone depends on it.
    pub ran: bool,
    /// The end that the status records.
    pub recorded: Option<Recorded>,
    /// Live workers that were made from another template than the job has now.
    pub outdated: Vec<String>,
}

/// One instance: a partition and the Pods that share it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Instance {
    /// Which one, from 0.
    pub index: u32,
    /// Its partition.
    pub partition: Owned<PartitionState>,
    /// Its worker Pods, in order of their GCD.
    pub workers: Vec<Member>,
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

/// Reduces what was read to what decisions need.
pub fn facts(job: &ValidJob, observed: &Observed) -> Facts {
    let pods: BTreeMap<&str, &Pod> = observed
        .pods
        .iter()
        .filter_map(|pod| Some((pod.metadata.name.as_deref()?, pod)))
        .collect();
    let partitions: BTreeMap<u32, &IPUPartition> = observed
        .partitions
        .iter()
        .map(|partition| (partition.spec.slot, partition))
        .collect();
    let surplus = existing_instances(observed)
        .filter(|index| *index >= job.instances)
        .map(|index| instance(job, index, &pods, &partitions))
        .collect();
    let launcher = names::launcher(&job.name);
    Facts {
        instances: (0..job.instances)
            .map(|index| instance(job, index, &pods, &partitions))
            .collect(),
        surplus,
        launcher: member(launcher, &pods, None),
        ran: observed.status.conditions.iter().any(|condition| {
            condition.type_ == super::report::RUNNING && condition.status == "True"
        }),
        recorded: super::report::recorded(&observed.status),
        outdated: outdated(job, observed),
    }
}

impl Instance {
    /// Whether all its Pods have run to their end.
    pub fn ended(&self) -> bool {
        self.workers.iter().all(|worker| worker.state.ended())
    }

    /// Whether a Pod of it exists that has not ended.
    pub fn live(&self) -> bool {
        self.workers
            .iter()
            .any(|worker| worker.uid.is_some() && !worker.state.ended())
    }

    /// The first of its Pods that failed.
    pub fn failure(&self) -> Option<&Failure> {
        self.workers
            .iter()
            .find_map(|worker| worker.state.failure())
    }
}

fn outdated(job: &ValidJob, observed: &Observed) -> Vec<String> {
    let made_from = |pod: &Pod| {
        let annotations = pod.metadata.annotations.as_ref()?;
        annotations.get(names::TEMPLATE_HASH_ANNOTATION).cloned()
    };
    let mut outdated: Vec<String> = observed
        .pods
        .iter()
        .filter(|pod| !pod::state(pod, None).ended())
        .filter(|pod| made_from(pod).is_some_and(|hash| hash != job.template.hash))
        .filter_map(|pod| pod.metadata.name.clone())
        .collect();
    outdated.sort();
    outdated
}

/// Which instances have a Pod or a partition, in order and each once.
fn existing_instances(observed: &Observed) -> impl Iterator<Item = u32> {
    let of_pods = observed.pods.iter().filter_map(|pod| {
        let labels = pod.metadata.labels.as_ref()?;
        labels.get(names::INSTANCE_LABEL)?.parse().ok()
    });
    let of_partitions = observed.partitions.iter().map(|found| found.spec.slot);
    of_pods
        .chain(of_partitions)
        .collect::<std::collections::BTreeSet<u32>>()
        .into_iter()
}

fn instance(
    job: &ValidJob,
    index: u32,
    pods: &BTreeMap<&str, &Pod>,
    partitions: &BTreeMap<u32, &IPUPartition>,
) -> Instance {
    let found = partitions.get(&index).copied();
    let state = partition::state(found, job.template.spec.node_selector.as_ref());
    let id = state.id().map(ToOwned::to_owned);
    Instance {
        index,
        partition: Owned {
            name: names::partition_object(&job.partition_owner(), index),
            uid: found.and_then(|partition| partition.metadata.uid.clone()),
            leaving: found.is_some_and(|found| found.metadata.deletion_timestamp.is_some()),
            state,
        },
        workers: (0..job.size.workers)
            .map(|gcd| {
                let name = names::worker(&job.name, job.worker_index(index, gcd));
                member(name, pods, id.as_deref())
            })
            .collect(),
    }
}

fn member(name: String, pods: &BTreeMap<&str, &Pod>, partition: Option<&str>) -> Member {
    let pod = pods.get(name.as_str());
    Member {
        uid: pod.and_then(|pod| pod.metadata.uid.clone()),
        leaving: pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some()),
        state: pod.map_or(PodState::Absent, |pod| pod::state(pod, partition)),
        name,
    }
}

/// When deletion of something was asked for.
pub(crate) fn deletion_asked(
    metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> Option<Timestamp> {
    let due = metadata.deletion_timestamp.as_ref()?.0;
    let grace = metadata.deletion_grace_period_seconds.unwrap_or(0);
    Some(due - jiff::SignedDuration::from_secs(grace))
}
