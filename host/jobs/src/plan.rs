//! Pure: plans the next writes for a job.

mod clean_up;
mod instance;
mod launcher;
mod rights;
mod starts;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipu_api::ipupartition::IPUPartition;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use serde::Serialize;

use super::build::{PodSettings, partitions};
use super::facts::partition::PartitionState;
use super::facts::{Facts, Instance, Owned};
use super::job_object::NameAndUid;
use super::phase::Phase;
use super::pod_set;
use super::rolling_update::Strategy;
use super::validate::ValidJob;
pub use clean_up::CleanUp;
pub(crate) use clean_up::keeps_workers;
pub use starts::GivenUp;

/// Requeue delay after a successful reconcile.
const RESYNC: Duration = Duration::from_mins(5);

/// The planned writes, in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Plan {
    /// Pods to delete.
    pub delete_pods: Vec<Deletion>,
    /// The deletion of workers because the job has ended.
    #[serde(skip)]
    pub clean_up: Option<CleanUp>,
    /// Pods whose sidecars are to end, because the main container has ended.
    pub end_pods: Vec<Deletion>,
    /// Partitions to reset, which no Pod uses.
    pub reset_partitions: Vec<Reset>,
    /// Partitions to pin or unpin.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pin_updates: Vec<PinUpdate>,
    /// Partitions to request.
    pub create_partitions: Vec<IPUPartition>,
    /// Objects to apply before the Pods, which use them.
    pub apply: Vec<Applicable>,
    /// The rights that the launchers of the namespace share, to apply likewise. They belong to no
    /// job.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<Applicable>,
    /// The launcher's Role without any right, if it exists: workers that it names are gone, and a
    /// Pod of another owner could get such a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withdraw: Option<Applicable>,
    /// By instance: the partition that the first new Pods will use. The status records it before
    /// they are created, or a reset could be missed after their deletion.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub new_uses: BTreeMap<String, String>,
    /// Variables of the Pods to create, where Pods refer to them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub create_config_maps: Vec<ConfigMap>,
    /// Rejected Pods that are created again. From then on they may use their partition, and the
    /// status records that before they are created.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub recreated: BTreeSet<String>,
    /// By instance: partitions that are released from now on, because Pods could not start. The
    /// status records it before the Pods are deleted, or they would be created again on the same
    /// partition.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub given_up: BTreeMap<String, GivenUp>,
    /// Pods to create, the launcher last.
    pub create_pods: Vec<Pod>,
    /// The form of that launcher if the API server refuses the one above.
    #[serde(skip)]
    pub launcher_otherwise: Option<Box<Pod>>,
    /// The launcher whose command may start, because all workers are Ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_launcher: Option<Release>,
    /// Partitions to release.
    pub delete_partitions: Vec<Deletion>,
    /// Whether to delete the job, because its TTL has expired.
    pub delete_job: bool,
    /// Requeue delay.
    pub requeue: Option<Duration>,
}

impl Plan {
    /// Whether the status is written before the plan is applied: afterwards nothing else shows what
    /// it records.
    pub fn is_recorded_first(&self) -> bool {
        !self.new_uses.is_empty() || !self.recreated.is_empty() || !self.given_up.is_empty()
    }
}

/// An object to delete, identified by its UID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Deletion {
    /// Name of the object.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl Deletion {
    /// Creates the deletion of an object.
    pub fn of(object: &NameAndUid) -> Self {
        Self {
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
        }
    }
}

/// A partition to reset before other Pods use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reset {
    /// Name of the IPUPartition.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Index of the job's instance.
    pub instance: u32,
    /// The new `spec.resetGeneration`.
    pub generation: i64,
}

/// The release of a launcher's command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Release {
    /// Name of the launcher Pod.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Time of the release (RFC 3339).
    pub at: String,
}

/// A change of `spec.options.pinned`, after a change of the job's restart policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PinUpdate {
    /// Name of the IPUPartition.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The new `spec.options.pinned`.
    pub pinned: bool,
}

/// An object to apply.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Applicable {
    /// The launcher's ServiceAccount.
    ServiceAccount(ServiceAccount),
    /// The launcher's Role.
    Role(Role),
    /// The binding of the two.
    RoleBinding(RoleBinding),
}

/// The kind of an applied object, which the job's Pods depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DependentKind {
    /// A ServiceAccount.
    ServiceAccount,
    /// A Role.
    Role,
    /// A RoleBinding.
    RoleBinding,
}

impl DependentKind {
    /// All kinds, by index.
    pub const ALL: [Self; 3] = [Self::ServiceAccount, Self::Role, Self::RoleBinding];

    /// Number of kinds.
    pub const COUNT: usize = Self::ALL.len();

    /// Returns its index among all kinds.
    pub fn index(self) -> usize {
        self as usize
    }
}

impl Applicable {
    /// Returns its kind.
    pub fn kind(&self) -> DependentKind {
        match self {
            Self::ServiceAccount(_) => DependentKind::ServiceAccount,
            Self::Role(_) => DependentKind::Role,
            Self::RoleBinding(_) => DependentKind::RoleBinding,
        }
    }
}

/// Plans the next writes for a job that is not being deleted.
pub fn plan(job: &ValidJob, facts: &Facts, phase: &Phase, settings: &PodSettings) -> Plan {
    let mut plan = match phase {
        Phase::Waiting | Phase::Starting | Phase::Running if job.start.unreadable().is_some() => {
            // The existing Pods run to their end.
            return Plan {
                requeue: Some(requeue_delay(facts, None)),
                ..Plan::default()
            };
        }
        Phase::Waiting | Phase::Starting => run(job, facts, settings),
        Phase::Running => match job.launcher {
            // A worker that is lost from now on ends the run; none comes back.
            Some(_) => Plan::default(),
            None => run(job, facts, settings),
        },
        Phase::Ended(..) | Phase::Restart(_) => Plan::default(),
        Phase::Suspended => suspend(facts),
        Phase::Reserving => reserve(job, facts),
        Phase::Finished(_) => clean_up::clean_up(job, facts),
    };
    let creates_pods = !plan.create_pods.is_empty();
    let rights = rights::rights(job, facts, phase, settings, creates_pods);
    plan.apply = rights.apply;
    plan.shared = rights.shared;
    plan.withdraw = rights.withdraw;
    if !matches!(phase, Phase::Finished(_)) && job.start.unreadable().is_none() {
        plan.pin_updates = pin_updates(job, facts);
    }
    plan.requeue = Some(requeue_delay(facts, settings.start_timeout));
    plan
}

/// Returns the requeue delay.
fn requeue_delay(facts: &Facts, start_timeout: Option<Duration>) -> Duration {
    let start = start_timeout.and_then(|timeout| starts::remaining(facts, timeout));
    let next = [facts.deadlines.next, start].into_iter().flatten().min();
    next.map_or(RESYNC, |next| next.min(RESYNC))
}

/// Returns the partitions that were requested under another restart policy.
fn pin_updates(job: &ValidJob, facts: &Facts) -> Vec<PinUpdate> {
    let pinned = partitions::is_pinned(job);
    let found = facts.all().map(|instance| (&instance.partition, instance));
    let others =
        found.filter(|(owned, instance)| instance.pinned != pinned && !owned.is_terminating);
    let updates = others.filter_map(|(owned, _)| {
        Some(PinUpdate {
            name: owned.name.clone(),
            uid: owned.uid.clone()?,
            pinned,
        })
    });
    updates.collect()
}

/// Plans the next step of every desired instance, and releases the surplus.
fn run(job: &ValidJob, facts: &Facts, settings: &PodSettings) -> Plan {
    let mut plan = Plan::default();
    let to_replace = match job.launcher {
        Some(_) => Vec::new(),
        None => instances_to_replace(job.strategy, facts),
    };
    plan.given_up = starts::given_up(job, facts, settings.start_timeout);
    for instance in facts.instances.iter().chain(&facts.surge) {
        let lacks_pods = instance.incomplete() || job.launcher.is_some();
        let is_refused = facts.deadlines.in_quota_backoff && lacks_pods;
        if instance.ended() {
            plan.finish_instance(instance);
        } else if is_refused || plan.releases_for_start(instance) {
            plan.release_instance(instance);
        } else if to_replace.iter().any(|found| found.index == instance.index) {
            plan.delete_all(instance);
        } else {
            plan.reconcile_instance(job, facts, instance, settings);
        }
    }
    for instance in facts.surplus.iter().rev() {
        plan.release_instance(instance);
    }
    let releases = facts
        .instances
        .iter()
        .any(|instance| plan.releases_for_start(instance));
    if (facts.deadlines.in_quota_backoff || releases) && job.launcher.is_some() {
        plan.remove(&facts.launcher);
    } else {
        plan.launch(job, facts, settings);
    }
    plan
}

/// Returns the outdated instances to replace now: all unavailable ones, and as many available ones
/// as the strategy allows.
fn instances_to_replace(strategy: Strategy, facts: &Facts) -> Vec<&Instance> {
    let desired = u32::try_from(facts.instances.len()).unwrap_or(u32::MAX);
    let outdated = || facts.instances.iter().filter(|found| found.is_outdated());
    let all = facts.instances.iter().chain(&facts.surge);
    let available = all.filter(|found| found.available()).count();
    let least = desired.saturating_sub(strategy.unavailable(desired));
    let surplus = available.saturating_sub(usize::try_from(least).unwrap_or(usize::MAX));
    let unavailable = outdated().filter(|found| !found.available());
    let available_ones = outdated().filter(|found| found.available());
    unavailable.chain(available_ones.take(surplus)).collect()
}

/// Deletes the Pods and partitions of every instance that has not ended.
fn suspend(facts: &Facts) -> Plan {
    let mut plan = Plan::default();
    plan.remove(&facts.launcher);
    for instance in facts.all() {
        if instance.ended() {
            plan.finish_instance(instance);
        } else {
            plan.delete_all(instance);
            if !facts.launcher.live() {
                plan.release(instance);
            }
        }
    }
    plan
}

/// Requests the partitions of a suspended job, and deletes Pods of an earlier run.
fn reserve(job: &ValidJob, facts: &Facts) -> Plan {
    let mut plan = Plan::default();
    plan.remove(&facts.launcher);
    for instance in &facts.instances {
        plan.delete_all(instance);
        match instance.partition.state {
            _ if instance.ended() => plan.finish_instance(instance),
            _ if instance.refused => plan.release(instance),
            PartitionState::Absent if pod_set::exceeds_admission(job, instance.index) => {}
            PartitionState::Absent => {
                let avoided = &instance.start.avoided_controllers;
                let partition = partitions::partition(job, instance.index, avoided);
                plan.create_partitions.push(partition);
            }
            // Another one is requested when it is gone.
            PartitionState::Broken(_) => plan.release(instance),
            PartitionState::Waiting(_)
            | PartitionState::Forming
            | PartitionState::Rejected(_)
            | PartitionState::Ready(_)
            | PartitionState::Unusable(..)
            | PartitionState::Draining(..)
            | PartitionState::Terminating(_) => {}
        }
    }
    for instance in facts.surge.iter().chain(&facts.surplus) {
        plan.release_instance(instance);
    }
    plan
}

/// Returns the deletion of an object that exists and is not terminating.
fn deletion<S>(owned: &Owned<S>) -> Option<Deletion> {
    if owned.is_terminating {
        return None;
    }
    Some(Deletion {
        name: owned.name.clone(),
        uid: owned.uid.clone()?,
    })
}
