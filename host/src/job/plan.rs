//! Pure: what is to be done for a job, as a value that a small executor carries out.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use serde::Serialize;

use super::build::{self, PodSettings, access, config, partitions, workers};
use super::facts::partition::PartitionState;
use super::facts::pod::PodState;
use super::facts::{Facts, Instance, Member, Owned};
use super::phase::Phase;
use super::validate::ValidJob;
use crate::api::ipujob::CleanPodPolicy;
use crate::api::ipupartition::IPUPartition;

/// How long after a reconcile that went well the job is looked at again, whatever happens.
const RESYNC: Duration = Duration::from_mins(5);

/// What is to be done for a job, in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Plan {
    /// Pods to delete.
    pub delete_pods: Vec<Deletion>,
    /// Partitions to ask for.
    pub create_partitions: Vec<IPUPartition>,
    /// Objects to bring to this state; Pods mount and use them, so they come first.
    pub apply: Vec<Applicable>,
    /// Pods to make.
    pub create_pods: Vec<Pod>,
    /// Partitions to give back.
    pub delete_partitions: Vec<Deletion>,
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

/// An object that is brought to a state, whatever state it was in.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Applicable {
    /// `kubeexec.sh` and `hostfile`.
    ConfigMap(ConfigMap),
    /// Who the launcher is.
    ServiceAccount(ServiceAccount),
    /// What the launcher may do.
    Role(Role),
    /// Gives the one to the other.
    RoleBinding(RoleBinding),
}

/// What is to be done for a job that is not being deleted.
pub fn plan(job: &ValidJob, facts: &Facts, phase: &Phase, settings: &PodSettings) -> Plan {
    let mut plan = match phase {
        Phase::Waiting | Phase::Starting => run(job, facts, settings),
        Phase::Running => match job.launcher {
            // A worker that is lost from now on ends the job; none comes back.
            Some(_) => Plan::default(),
            None => run(job, facts, settings),
        },
        Phase::Ended(_) => Plan::default(),
        Phase::Finished(_) => clean(job, facts),
    };
    plan.requeue = Some(RESYNC);
    plan
}

/// Brings every wanted instance forward by whatever step it needs, and takes the surplus away.
fn run(job: &ValidJob, facts: &Facts, settings: &PodSettings) -> Plan {
    let mut plan = Plan::default();
    for instance in &facts.instances {
        if instance.ended() {
            plan.release(instance);
            continue;
        }
        if instance.partition.state == PartitionState::Absent {
            plan.create_partitions
                .push(partitions::partition(job, instance.index));
        }
        plan.staff(job, instance, settings);
    }
    for instance in facts.surplus.iter().rev() {
        plan.delete_pods
            .extend(instance.workers.iter().filter_map(deletion));
        plan.release(instance);
    }
    plan.launch(job, facts, settings);
    if job.launcher.is_some() && !plan.create_pods.is_empty() {
        plan.apply = vec![
            Applicable::ConfigMap(config::config_map(job)),
            Applicable::ServiceAccount(access::service_account(job)),
            Applicable::Role(access::role(job)),
            Applicable::RoleBinding(access::role_binding(job)),
        ];
    }
    plan
}

/// Deletes what the policy names, then whatever partition no Pod uses any more.
fn clean(job: &ValidJob, facts: &Facts) -> Plan {
    let mut plan = Plan::default();
    let instances = || facts.instances.iter().chain(&facts.surplus);
    let workers = instances().flat_map(|instance| &instance.workers);
    plan.delete_pods = match job.clean_pod_policy {
        CleanPodPolicy::None => Vec::new(),
        CleanPodPolicy::Workers => workers.filter_map(deletion).collect(),
        CleanPodPolicy::All => std::iter::once(&facts.launcher)
            .chain(workers)
            .filter_map(deletion)
            .collect(),
    };
    if !uses_a_partition(&facts.launcher) {
        for instance in instances() {
            plan.release(instance);
        }
    }
    plan
}

impl Plan {
    /// Makes the Pods of an instance whose partition can be used, and deletes those that use one
    /// which is no longer current.
    fn staff(&mut self, job: &ValidJob, instance: &Instance, settings: &PodSettings) {
        for (gcd, worker) in (0..).zip(&instance.workers) {
            match (&worker.state, instance.partition.state.usable()) {
                (PodState::Stale, _) => self.delete_pods.extend(deletion(worker)),
                (PodState::Absent, Some(held)) => {
                    self.create_pods.push(workers::worker(
                        job,
                        settings,
                        instance.index,
                        gcd,
                        held,
                    ));
                }
                (
                    PodState::Absent
                    | PodState::Going { .. }
                    | PodState::Pending(_)
                    | PodState::Running { .. }
                    | PodState::Succeeded(_)
                    | PodState::Failed(_),
                    _,
                ) => {}
            }
        }
    }

    /// Gives a partition back once no Pod uses it.
    fn release(&mut self, instance: &Instance) {
        if !instance.live() {
            self.delete_partitions.extend(deletion(&instance.partition));
        }
    }

    /// Makes the launcher once all workers are Ready.
    fn launch(&mut self, job: &ValidJob, facts: &Facts, settings: &PodSettings) {
        let Some(command) = &job.launcher else { return };
        if facts.launcher.state == PodState::Stale {
            self.delete_pods.extend(deletion(&facts.launcher));
        }
        let mut workers = facts.instances.iter().flat_map(|found| &found.workers);
        let ready = workers.all(|worker| worker.state.ready());
        let held = facts
            .instances
            .first()
            .and_then(|first| first.partition.state.held());
        if let (true, PodState::Absent, Some(held)) = (ready, &facts.launcher.state, held) {
            self.create_pods
                .push(build::launcher::launcher(job, command, settings, held));
        }
    }
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

fn uses_a_partition(launcher: &Member) -> bool {
    launcher.uid.is_some() && !launcher.state.ended()
}
