//! Pure: what is to be done for a job, as a value that a small executor carries out.

mod staff;

use std::collections::BTreeMap;
use std::time::Duration;

use ipu_api::ipujob::CleanPodPolicy;
use ipu_api::ipupartition::IPUPartition;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use super::build::{PodSettings, access, partitions};
use super::facts::partition::PartitionState;
use super::facts::pod::Aftermath;
use super::facts::{Facts, Instance, Owned};
use super::phase::Phase;
use super::validate::ValidJob;

/// How long after a reconcile that went well the job is looked at again, whatever happens.
const RESYNC: Duration = Duration::from_mins(5);

/// What is to be done for a job, in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Plan {
    /// Pods to delete.
    pub delete_pods: Vec<Deletion>,
    /// Pods whose main container has ended, and whose other containers are to end too.
    pub end_pods: Vec<Deletion>,
    /// Partitions to have reset, now that no Pod uses them.
    pub reset_partitions: Vec<Reset>,
    /// Partitions that may leave their controllers from now on, or may no more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bind_partitions: Vec<Binding>,
    /// Partitions to ask for.
    pub create_partitions: Vec<IPUPartition>,
    /// Objects to bring to this state; Pods mount and use them, so they come first.
    pub apply: Vec<Applicable>,
    /// By instance: the partition that the first Pods to make begin to use. The status says so before
    /// they are made, or a reset could be missed once they are gone.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub begins: BTreeMap<String, String>,
    /// Pods to make.
    pub create_pods: Vec<Pod>,
    /// Partitions to give back.
    pub delete_partitions: Vec<Deletion>,
    /// Whether the job itself is to be deleted, because its time after its end is over.
    pub delete_job: bool,
    /// When to look again though nothing has changed.
    pub requeue: Option<Duration>,
}

/// An object to delete: this one, and no other of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Deletion {
    /// Name of the object.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl Deletion {
    /// The deletion of an object that exists.
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        Some(Self {
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
        })
    }
}

/// A partition that is to be reset before other Pods use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reset {
    /// Name of the IPUPartition.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Which instance of the job it belongs to.
    pub instance: u32,
    /// The `spec.resetGeneration` that asks for it.
    pub generation: i64,
}

/// A partition whose owner may now be moved, or may no more, since its restart policy has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Binding {
    /// Name of the IPUPartition.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The `spec.options.pinned` that it is to have.
    pub pinned: bool,
}

/// An object that is brought to a state, whatever state it was in.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Applicable {
    /// Who the launcher is.
    ServiceAccount(ServiceAccount),
    /// What the launcher may do.
    Role(Role),
    /// Gives the one to the other.
    RoleBinding(RoleBinding),
}

/// A kind of object that a job's Pods mount or use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// A ServiceAccount.
    ServiceAccount,
    /// A Role.
    Role,
    /// A RoleBinding.
    RoleBinding,
}

impl File {
    /// How many kinds there are.
    pub const COUNT: usize = 3;

    /// Its place among all kinds.
    pub fn place(self) -> usize {
        self as usize
    }
}

impl Applicable {
    /// Its kind.
    pub fn file(&self) -> File {
        match self {
            Self::ServiceAccount(_) => File::ServiceAccount,
            Self::Role(_) => File::Role,
            Self::RoleBinding(_) => File::RoleBinding,
        }
    }
}

/// What is to be done for a job that is not being deleted.
pub fn plan(job: &ValidJob, facts: &Facts, phase: &Phase, settings: &PodSettings) -> Plan {
    let mut plan = match phase {
        Phase::Waiting | Phase::Starting | Phase::Running if job.start.unreadable().is_some() => {
            // What there is goes on to its end.
            return Plan {
                requeue: Some(wake(facts)),
                ..Plan::default()
            };
        }
        Phase::Waiting | Phase::Starting => run(job, facts, settings),
        Phase::Running => match job.launcher {
            // A worker that is lost from now on ends the run; none comes back.
            Some(_) => Plan::default(),
            None => run(job, facts, settings),
        },
        Phase::Ended(_) | Phase::Replaced(_) => Plan::default(),
        Phase::Suspended => rest(facts),
        Phase::Finished(_) => clean(job, facts),
    };
    let in_use = match phase {
        // While the last partitions form: those who wait for room have no objects yet, and nobody waits for these.
        Phase::Waiting | Phase::Starting => {
            let state = |one: &Instance| one.partition.state.clone();
            let is_coming =
                |one| state(one) == PartitionState::Forming || state(one).usable().is_some();
            facts.all().any(Instance::live) || facts.instances.iter().all(is_coming)
        }
        Phase::Running => true,
        Phase::Ended(_) | Phase::Replaced(_) | Phase::Suspended | Phase::Finished(_) => false,
    };
    if job.launcher.is_some() && (in_use || !plan.create_pods.is_empty()) {
        plan.apply = vec![
            Applicable::ServiceAccount(access::service_account(job)),
            Applicable::Role(access::role(job)),
            Applicable::RoleBinding(access::role_binding(job)),
        ];
    }
    if !matches!(phase, Phase::Finished(_)) && job.start.unreadable().is_none() {
        plan.bind_partitions = bindings(job, facts);
    }
    plan.requeue = Some(wake(facts));
    plan
}

/// How soon to look again though nothing has changed.
fn wake(facts: &Facts) -> Duration {
    facts.due.wake.map_or(RESYNC, |wake| wake.min(RESYNC))
}

/// The partitions that were asked for under another restart policy.
fn bindings(job: &ValidJob, facts: &Facts) -> Vec<Binding> {
    let pinned = partitions::is_pinned(job);
    let found = facts.all().map(|instance| (&instance.partition, instance));
    let others = found.filter(|(owned, instance)| instance.pinned != pinned && !owned.leaving);
    let bindings = others.filter_map(|(owned, _)| {
        Some(Binding {
            name: owned.name.clone(),
            uid: owned.uid.clone()?,
            pinned,
        })
    });
    bindings.collect()
}

/// Brings every wanted instance forward by whatever step it needs, and takes the surplus away.
fn run(job: &ValidJob, facts: &Facts, settings: &PodSettings) -> Plan {
    let mut plan = Plan::default();
    let replaced = match job.launcher {
        Some(_) => Vec::new(),
        None => job.strategy.replaced(facts),
    };
    for instance in facts.instances.iter().chain(&facts.surge) {
        if instance.ended() {
            plan.finish(instance);
        } else if facts.due.yielding && (instance.incomplete() || job.launcher.is_some()) {
            plan.give_up(instance);
        } else if replaced.iter().any(|found| found.index == instance.index) {
            plan.delete_all(instance);
        } else {
            plan.staff(job, facts, instance, settings);
        }
    }
    for instance in facts.surplus.iter().rev() {
        plan.give_up(instance);
    }
    if facts.due.yielding && job.launcher.is_some() {
        plan.remove(&facts.launcher);
    } else {
        plan.launch(job, facts, settings);
    }
    plan
}

/// Takes the Pods and partitions of every instance that has not ended.
fn rest(facts: &Facts) -> Plan {
    let mut plan = Plan::default();
    plan.remove(&facts.launcher);
    for instance in facts.all() {
        if instance.ended() {
            plan.finish(instance);
        } else {
            plan.delete_all(instance);
            if !facts.launcher.live() {
                plan.release(instance);
            }
        }
    }
    plan
}

/// Deletes what the policy names, then whatever partition no Pod uses any more.
fn clean(job: &ValidJob, facts: &Facts) -> Plan {
    let mut plan = Plan {
        delete_job: facts.due.expired,
        ..Plan::default()
    };
    for member in facts.all().flat_map(|instance| &instance.workers) {
        let unwanted = match job.clean_pod_policy {
            // A Pod whose main container has ended keeps its logs.
            CleanPodPolicy::None => {
                member.live() && member.aftermath == Aftermath::None && !keeps_workers(job, facts)
            }
            CleanPodPolicy::Workers | CleanPodPolicy::All => true,
        };
        if unwanted {
            plan.remove(member);
        } else if member.aftermath == Aftermath::Sidecars {
            plan.end_pods.extend(deletion(member));
        }
    }
    if job.clean_pod_policy == CleanPodPolicy::All || facts.launcher.live() {
        plan.remove(&facts.launcher);
    }
    if !facts.launcher.live() {
        for instance in facts.all() {
            plan.release(instance);
        }
    }
    plan
}

/// Whether live workers outlive their job. With `cleanPodPolicy: None` those of a launcher do, as in
/// the original; not so after a time that the user has set, which is there to free the IPUs.
fn keeps_workers(job: &ValidJob, facts: &Facts) -> bool {
    let command = job.launcher.as_ref();
    command.is_some_and(|launcher| launcher.session.is_none()) && !facts.timed_out
}

/// The deletion of an object that exists and is not being deleted yet.
fn deletion<S>(owned: &Owned<S>) -> Option<Deletion> {
    if owned.leaving {
        return None;
    }
    Some(Deletion {
        name: owned.name.clone(),
        uid: owned.uid.clone()?,
    })
}
