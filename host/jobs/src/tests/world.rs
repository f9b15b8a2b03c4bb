//! A cluster in values: plays API server, kubelet and V-IPU proxy for the pure part of a reconcile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipu_api::ipujob_status::{IPUJobStatus, JobCondition};
use ipu_api::ipupartition::{
    ControllerRef, IPUPartition, IPUPartitionStatus, PartitionPhase, WaitingReason,
};
use ipu_api::labels;
use ipu_runtime::pod_start::node_report::NodeReport;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::fixtures::settings;
use crate::build::PodSettings;
use crate::facts::projection::{ObservedPartition, ObservedPod, SharedFields};
use crate::facts::{Facts, Observed, facts};
use crate::phase::{Phase, phase};
use crate::plan::{Plan, plan};
use crate::status::{self, Obstacle};
use crate::validate::ValidJob;

/// The objects of one job in the cluster, and the time.
pub(crate) struct World {
    pub(crate) observed: Objects,
    pub(crate) settings: PodSettings,
    pub(crate) now: Timestamp,
    /// Partitions with a requested reset, in order.
    pub(crate) resets: Vec<String>,
}

/// The objects of one job, as the API server has them, and what the controller knows beside them.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) pods: Vec<Pod>,
    pub(crate) partitions: Vec<IPUPartition>,
    pub(crate) uncreated: BTreeSet<String>,
    pub(crate) node_reports: BTreeMap<String, NodeReport>,
    pub(crate) status: IPUJobStatus,
}

impl Objects {
    /// The objects, as the controller reads them.
    pub(crate) fn read(&self) -> Observed {
        let pods = self.pods.iter().filter_map(ObservedPod::of);
        let mut controllers = SharedFields::default();
        let partitions = self.partitions.iter();
        let partitions = partitions.filter_map(|one| ObservedPartition::of(one, &mut controllers));
        Observed {
            pods: pods.map(Arc::new).collect(),
            partitions: partitions.map(Arc::new).collect(),
            nodes: Vec::new(),
            node_reports: self.node_reports.clone(),
            uncreated: self.uncreated.clone(),
            status: self.status.clone(),
        }
    }
}

/// Moment at which a process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrashPoint {
    /// It is not.
    Never,
    /// After the first status was written, and before anything is made or deleted.
    BeforePods,
    /// Before the last status is written.
    BeforeReport,
}

/// Decision of one reconcile.
pub(crate) struct Step {
    pub(crate) phase: Phase,
    pub(crate) plan: Plan,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            observed: Objects::default(),
            settings: settings(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            resets: Vec::new(),
        }
    }

    /// One reconcile, a second after the last, with its plan carried out.
    pub(crate) fn step(&mut self, job: &ValidJob) -> Step {
        self.step_with(job, &[])
    }

    /// One reconcile whose writes meet obstacles: the Pods that these name are not made.
    pub(crate) fn step_with(&mut self, job: &ValidJob, obstacles: &[Obstacle]) -> Step {
        let step = self.step_killed(job, obstacles, CrashPoint::Never);
        self.observed.uncreated.extend(
            obstacles
                .iter()
                .filter(|obstacle| obstacle.is_not_created())
                .filter_map(|obstacle| obstacle.object().strip_prefix("Pod "))
                .map(ToOwned::to_owned),
        );
        step
    }

    /// One reconcile of a process that is killed during it, and that another process replaces.
    pub(crate) fn step_killed(
        &mut self,
        job: &ValidJob,
        obstacles: &[Obstacle],
        killed: CrashPoint,
    ) -> Step {
        self.now += SignedDuration::from_secs(1);
        let (mut facts, now) = (self.facts(job), self.now);
        // As the executor does.
        let slots: Vec<String> = self.slots().iter().map(u32::to_string).collect();
        facts.run.used.retain(|index, _| slots.contains(index));
        let phase = phase(job, &facts, now);
        let mut plan = plan(job, &facts, &phase, &self.settings);
        self.refuse(job, &facts, obstacles, &mut plan);
        let write = |obstacles: &[Obstacle], old: &mut IPUJobStatus| {
            let status = status::build(job, &facts, &phase, (&plan, obstacles), old, now);
            if let Some(status) = status::changed(old, status, now) {
                *old = status;
            }
        };
        if killed != CrashPoint::Never {
            self.observed.uncreated.clear();
        }
        if plan.is_recorded_first() {
            write(&[], &mut self.observed.status);
        }
        if killed != CrashPoint::BeforePods {
            self.carry_out(&plan, obstacles);
        }
        if killed == CrashPoint::Never {
            write(obstacles, &mut self.observed.status);
        }
        Step { phase, plan }
    }

    /// Reconciles until nothing more is planned; answers every step.
    pub(crate) fn settle(&mut self, job: &ValidJob) -> Vec<Step> {
        let mut steps = Vec::new();
        loop {
            let before = self.observed.status.clone();
            let step = self.step(job);
            // The dependents of a running launcher are checked at every step.
            let mut rest = step.plan.clone();
            (rest.requeue, rest.apply, rest.withdraw) = (None, Vec::new(), None);
            rest.clean_up = None;
            rest.shared = Vec::new();
            let idle = rest == Plan::default();
            steps.push(step);
            if idle && before == self.observed.status {
                return steps;
            }
            assert!(steps.len() < 20, "a job that never settles");
        }
    }

    pub(crate) fn facts(&self, job: &ValidJob) -> Facts {
        facts(job, &self.observed.read(), self.now)
    }

    pub(crate) fn status(&self) -> &IPUJobStatus {
        &self.observed.status
    }

    /// STATUS, CURRENT, DESIRED and LASTMESSAGE as `kubectl get` shows them.
    pub(crate) fn row(&self) -> String {
        let status = self.status();
        format!(
            "{:?} {} {} {}",
            status.launcher_status,
            status.current_replicas.unwrap_or_default(),
            status.desired_replicas,
            status.last_message
        )
    }

    /// Names of the Pods that there are, in order.
    pub(crate) fn pods(&self) -> Vec<&str> {
        self.observed
            .pods
            .iter()
            .filter_map(|pod| pod.metadata.name.as_deref())
            .collect()
    }

    /// Slots of the partitions that there are, in order.
    pub(crate) fn slots(&self) -> Vec<u32> {
        let partitions = self.observed.partitions.iter();
        partitions.map(|partition| partition.spec.slot).collect()
    }

    /// The proxy: the partitions of these slots are there, on `pod1`.
    pub(crate) fn ready(&mut self, slots: impl IntoIterator<Item = u32>) {
        for slot in slots {
            self.partition_status(
                slot,
                IPUPartitionStatus {
                    phase: PartitionPhase::Ready,
                    controller: Some(controller()),
                    partition_id: Some(format!("p-sample-{slot}")),
                    generation: 1,
                    ..IPUPartitionStatus::default()
                },
            );
        }
    }

    /// The proxy: every requested reset is done.
    pub(crate) fn reset_partitions(&mut self) {
        for partition in &mut self.observed.partitions {
            let status = partition.status.get_or_insert_default();
            status.observed_reset_generation = partition.spec.reset_generation;
        }
    }

    /// The proxy: the partition of a slot has to wait.
    pub(crate) fn waits(&mut self, slot: u32, reason: &str) {
        self.partition_status(
            slot,
            IPUPartitionStatus {
                waiting: vec![WaitingReason {
                    controller: "pod1:8090".to_owned(),
                    reason: reason.to_owned(),
                }],
                ..IPUPartitionStatus::default()
            },
        );
    }

    pub(crate) fn partition_status(&mut self, slot: u32, status: IPUPartitionStatus) {
        let mut partitions = self.observed.partitions.iter_mut();
        let partition = partitions
            .find(|partition| partition.spec.slot == slot)
            .unwrap_or_else(|| panic!("no partition of slot {slot}"));
        partition.status = Some(status);
    }

    /// A condition of the status.
    pub(crate) fn condition(&self, type_: &str) -> &JobCondition {
        let mut conditions = self.status().conditions.iter();
        conditions
            .find(|condition| condition.type_ == type_)
            .unwrap_or_else(|| panic!("no condition {type_} in {:?}", self.status().conditions))
    }

    /// Slots of the partitions that the proxy has not looked at yet.
    pub(crate) fn slots_without_status(&self) -> Vec<u32> {
        let partitions = self.observed.partitions.iter();
        let new = partitions.filter(|partition| partition.status.is_none());
        new.map(|partition| partition.spec.slot).collect()
    }

    /// Time passes.
    pub(crate) fn wait(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// A user deletes a Pod, and it is gone.
    pub(crate) fn lose(&mut self, pod: &str) {
        self.pod(pod);
        self.observed
            .pods
            .retain(|found| found.metadata.name.as_deref() != Some(pod));
    }

    pub(crate) fn pod(&mut self, name: &str) -> &mut Pod {
        self.observed
            .pods
            .iter_mut()
            .find(|pod| pod.metadata.name.as_deref() == Some(name))
            .unwrap_or_else(|| panic!("no Pod {name}"))
    }

    fn carry_out(&mut self, plan: &Plan, obstacles: &[Obstacle]) {
        for deletion in &plan.delete_pods {
            self.lose(&deletion.name);
        }
        for pod in &plan.end_pods {
            let status = self.pod(&pod.name).status.get_or_insert_default();
            status.phase = Some("Failed".to_owned());
            status.reason = Some("DeadlineExceeded".to_owned());
        }
        for reset in &plan.reset_partitions {
            let mut partitions = self.observed.partitions.iter_mut();
            let partition =
                partitions.find(|found| found.metadata.uid.as_ref() == Some(&reset.uid));
            partition.expect("it was seen").spec.reset_generation = reset.generation;
            self.resets.push(reset.name.clone());
        }
        for update in &plan.pin_updates {
            let mut partitions = self.observed.partitions.iter_mut();
            let partition =
                partitions.find(|found| found.metadata.uid.as_ref() == Some(&update.uid));
            partition.expect("it was seen").spec.options.pinned = update.pinned;
        }
        for partition in &plan.create_partitions {
            let mut partition = partition.clone();
            partition.metadata.uid = partition.metadata.name.clone();
            self.observed.partitions.push(partition);
        }
        let hindered = |name: &str| {
            let mut obstacles = obstacles.iter();
            obstacles.any(|obstacle| obstacle.object() == format!("Pod {name}"))
        };
        for pod in &plan.create_pods {
            let mut pod = pod.clone();
            let name = pod.metadata.name.clone().unwrap();
            if hindered(&name) {
                continue;
            }
            self.observed.uncreated.remove(&name);
            pod.metadata.uid = Some(name);
            self.observed.pods.push(pod);
        }
        if let Some(release) = &plan.release_launcher {
            let annotations = self.pod(&release.name).metadata.annotations.as_mut();
            annotations
                .unwrap()
                .insert(labels::START_ANNOTATION.to_owned(), release.at.clone());
        }
        for deletion in &plan.delete_partitions {
            self.observed
                .partitions
                .retain(|found| found.metadata.uid.as_ref() != Some(&deletion.uid));
        }
        self.observed
            .partitions
            .sort_by_key(|found| found.spec.slot);
    }
}

/// A time as Kubernetes writes it.
pub(crate) fn time(at: Timestamp) -> Time {
    Time(at)
}

/// The V-IPU controller of every partition here.
pub(crate) fn controller() -> ControllerRef {
    ControllerRef {
        name: "pod1:8090".to_owned(),
        host: "pod1".to_owned(),
        port: 8090,
        label_key: "ipunode".to_owned(),
        label_value: "pod1".to_owned(),
    }
}

/// The environment of a container by name, with the text of plain values.
pub(crate) fn environment(pod: &Pod, container: usize) -> BTreeMap<String, String> {
    pod.spec.as_ref().unwrap().containers[container]
        .env
        .iter()
        .flatten()
        .map(|variable| {
            (
                variable.name.clone(),
                variable.value.clone().unwrap_or_default(),
            )
        })
        .collect()
}
