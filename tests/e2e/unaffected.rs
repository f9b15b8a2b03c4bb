//! The state of running jobs that must not change, regardless of the operator.

use std::collections::{BTreeMap, BTreeSet};

use ipu_api::ipupartition::PartitionPhase;
use ipu_api::labels;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use libtest_mimic::Failed;

use crate::fixture::Fixture;

/// The state of everything that runs for the jobs of the default namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Live {
    /// Pods, by name.
    pub(crate) pods: BTreeMap<String, PodFact>,
    /// IPUPartitions, by name.
    pub(crate) partitions: BTreeMap<String, PartitionFact>,
    /// The jobs that have a partition.
    jobs: BTreeSet<String>,
    /// Events that report a problem, by UID: the name of the object, and the message.
    warnings: BTreeMap<String, (String, String)>,
}

/// The fields of a Pod that show a replacement or a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodFact {
    uid: String,
    restarts: i32,
    phase: String,
    is_leaving: bool,
}

/// The fields of a partition that show a replacement or a reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionFact {
    uid: String,
    owner: String,
    /// The id on its V-IPU controller.
    pub(crate) id: Option<String>,
    phase: PartitionPhase,
    resets: i64,
    is_leaving: bool,
}

impl Live {
    /// Reads the current state.
    pub(crate) async fn now(fixture: &Fixture) -> Result<Self, Failed> {
        let pods: Api<Pod> = Api::default_namespaced(fixture.operated.client.clone());
        let of_jobs = ListParams::default().labels(labels::JOB_UID_LABEL);
        let pods = pods.list(&of_jobs).await?.items.into_iter();
        let events: Api<Event> = Api::default_namespaced(fixture.operated.client.clone());
        let warnings = ListParams::default().fields("type=Warning");
        let events = events.list(&warnings).await?.items.into_iter();
        let found = fixture.partitions().await?;
        let owners = found.iter().map(|found| found.spec.owner.name.clone());
        let jobs = owners.collect();
        let partitions = found.into_iter().map(|found| {
            let (name, uid) = (found.name_any(), found.uid());
            let status = found.status.unwrap_or_default();
            let fact = PartitionFact {
                uid: uid.unwrap_or_default(),
                owner: found.spec.owner.name,
                id: status.partition_id,
                phase: status.phase,
                resets: status.observed_reset_generation,
                is_leaving: found.metadata.deletion_timestamp.is_some(),
            };
            (name, fact)
        });
        Ok(Self {
            pods: pods.map(|pod| (pod.name_any(), fact(&pod))).collect(),
            partitions: partitions.collect(),
            jobs,
            warnings: events
                .map(|event| (event.uid().unwrap_or_default(), name_and_message(event)))
                .collect(),
        })
    }

    /// Compares it with the current state. The error names the change and the activity.
    pub(crate) async fn is_undisturbed_by(
        &self,
        fixture: &Fixture,
        what: &str,
    ) -> Result<(), Failed> {
        let now = Self::now(fixture).await?;
        let mut changed = differences(&self.pods, &now.pods);
        changed.extend(differences(&self.partitions, &now.partitions));
        let warnings = now.warnings.iter();
        let new = warnings.filter(|(uid, _)| !self.warnings.contains_key(*uid));
        let of_these = new.filter(|(_, (about, _))| self.has(about));
        changed.extend(of_these.map(|(_, (about, said))| format!("{about}: {said}")));
        if changed.is_empty() {
            return Ok(());
        }
        Err(format!("{what} disturbed jobs: {}", changed.join("; ")).into())
    }

    /// Returns the number of running Pods.
    pub(crate) fn running(&self) -> usize {
        let pods = self.pods.values();
        pods.filter(|pod| pod.phase == "Running").count()
    }

    /// Returns the part of one job.
    pub(crate) fn of_job(&self, job: &str) -> Self {
        let mut of_job = self.clone();
        let prefix = format!("{job}-");
        of_job.pods.retain(|name, _| name.starts_with(&prefix));
        of_job.partitions.retain(|_, fact| fact.owner == job);
        of_job.jobs.retain(|name| name == job);
        of_job
    }

    fn has(&self, name: &str) -> bool {
        self.pods.contains_key(name)
            || self.partitions.contains_key(name)
            || self.jobs.contains(name)
    }
}

fn fact(pod: &Pod) -> PodFact {
    let status = pod.status.clone().unwrap_or_default();
    let containers = status.container_statuses.into_iter().flatten();
    PodFact {
        uid: pod.uid().unwrap_or_default(),
        restarts: containers.map(|container| container.restart_count).sum(),
        phase: status.phase.unwrap_or_default(),
        is_leaving: pod.metadata.deletion_timestamp.is_some(),
    }
}

fn name_and_message(event: Event) -> (String, String) {
    let about = event.involved_object.name.unwrap_or_default();
    let (reason, message) = (event.reason.unwrap_or_default(), event.message);
    (about, format!("{reason}: {}", message.unwrap_or_default()))
}

/// Returns the missing and the changed entries. New ones do not count, because jobs can be created
/// meanwhile.
fn differences<T: PartialEq + std::fmt::Debug>(
    before: &BTreeMap<String, T>,
    now: &BTreeMap<String, T>,
) -> Vec<String> {
    before
        .iter()
        .filter(|(name, was)| now.get(*name) != Some(*was))
        .map(|(name, was)| format!("{name} was {was:?} and is {:?}", now.get(name)))
        .collect()
}
