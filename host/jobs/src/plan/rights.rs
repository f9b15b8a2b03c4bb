//! Pure: the objects by which a launcher may execute commands in the workers of its job.

use super::Applicable;
use crate::build::access;
use crate::facts::partition::PartitionState;
use crate::facts::{Facts, Instance};
use crate::phase::Phase;
use crate::validate::{ValidJob, ValidLauncher};

/// The rights of a launcher that the plan of a job applies.
#[derive(Debug, Default)]
pub(super) struct Rights {
    /// The objects to apply before the launcher's Pod.
    pub(super) apply: Vec<Applicable>,
    /// The Role without any right, which replaces one that exists.
    pub(super) withdraw: Option<Applicable>,
}

/// Decides the rights of a launcher. Its Role names no worker before that Pod is the job's: a Pod of another owner may
/// have the name. For the same reason nothing is left in the Role once workers are gone.
///
/// A ServiceAccount exists before the first worker, since one of the user's with its name blocks the job. A running
/// launcher keeps its right to the workers that are left.
pub(super) fn rights(job: &ValidJob, facts: &Facts, phase: &Phase, creates_pods: bool) -> Rights {
    let Some(launcher) = &job.launcher else {
        return Rights::default();
    };
    let workers = || facts.workers().filter(|worker| worker.uid.is_some());
    let names: Vec<String> = workers().map(|worker| worker.name.clone()).collect();
    let is_complete = names.len() == facts.workers().count();
    let account = account(job, launcher);
    match phase {
        Phase::Waiting | Phase::Starting if is_complete => bound(job, launcher, &names),
        Phase::Running => bound(job, launcher, &names),
        Phase::Waiting | Phase::Starting => Rights {
            // Jobs in the queue have none yet.
            apply: account
                .filter(|_| creates_pods || partitions_form(facts))
                .into_iter()
                .collect(),
            withdraw: Some(Applicable::Role(access::role(job, &[]))),
        },
        Phase::Suspended | Phase::Reserving | Phase::Finished(_) if !is_complete => Rights {
            apply: Vec::new(),
            withdraw: Some(Applicable::Role(access::role(job, &[]))),
        },
        Phase::Ended(..)
        | Phase::Restart(_)
        | Phase::Suspended
        | Phase::Reserving
        | Phase::Finished(_) => Rights::default(),
    }
}

/// Whether the job has Pods, or its last partitions are being created.
fn partitions_form(facts: &Facts) -> bool {
    let forms = |one: &Instance| {
        let state = &one.partition.state;
        *state == PartitionState::Forming || state.usable().is_some()
    };
    facts.all().any(Instance::live) || facts.instances.iter().all(forms)
}

fn bound(job: &ValidJob, launcher: &ValidLauncher, workers: &[String]) -> Rights {
    let rights = [
        Applicable::Role(access::role(job, workers)),
        Applicable::RoleBinding(access::role_binding(job, launcher)),
    ];
    Rights {
        apply: account(job, launcher).into_iter().chain(rights).collect(),
        withdraw: None,
    }
}

/// A ServiceAccount of the user is not changed: the Role is bound to it.
fn account(job: &ValidJob, launcher: &ValidLauncher) -> Option<Applicable> {
    let has_own = launcher.service_account.is_none();
    has_own.then(|| Applicable::ServiceAccount(access::service_account(job)))
}
