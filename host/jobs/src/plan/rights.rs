//! Pure: the objects by which a launcher may execute commands in the workers of its job.

use super::Applicable;
use crate::build::{self, PodSettings, access, shared_rights};
use crate::facts::partition::PartitionState;
use crate::facts::{Facts, Instance};
use crate::phase::Phase;
use crate::validate::{ValidJob, ValidLauncher};

/// The rights of a launcher that the plan of a job applies.
#[derive(Debug, Default)]
pub(super) struct Rights {
    /// The objects to apply before the launcher's Pod.
    pub(super) apply: Vec<Applicable>,
    /// The objects of the namespace that the launcher uses in their place.
    pub(super) shared: Vec<Applicable>,
    /// The Role without any right, which replaces one that exists.
    pub(super) withdraw: Option<Applicable>,
}

/// Decides the rights of a launcher. A Role of its own names a Pod only while that exists and is
/// the job's, because a Pod of another owner can have the name at any other time.
///
/// The ServiceAccount exists before the first worker: an account of the user with the same name
/// blocks the job. A running launcher keeps its right to the remaining workers.
pub(super) fn rights(
    job: &ValidJob,
    facts: &Facts,
    phase: &Phase,
    settings: &PodSettings,
    creates_pods: bool,
) -> Rights {
    let Some(launcher) = &job.launcher else {
        return Rights::default();
    };
    let workers = facts.workers().filter(|worker| worker.uid.is_some());
    let names: Vec<String> = workers.map(|worker| worker.name.clone()).collect();
    let is_complete = names.len() == facts.workers().count();
    // It is created together with the workers, and one write names them all.
    let is_held = build::launcher::is_held(job);
    let follows_own_pod = is_held && facts.launcher.uid.is_some();
    let awaits_launcher = is_held && !follows_own_pod;
    // Jobs in the queue have none yet.
    let is_due = is_complete || creates_pods || partitions_form(facts);
    match (phase, is_complete) {
        (Phase::Waiting | Phase::Starting | Phase::Running, _)
            if shares_rights(job, facts, settings) =>
        {
            Rights {
                apply: Vec::new(),
                shared: shared(job, settings, is_due),
                withdraw: Some(empty_role(job)),
            }
        }
        (Phase::Waiting | Phase::Starting, true) if !awaits_launcher => Rights {
            apply: bound(job, launcher, &names, follows_own_pod),
            ..Rights::default()
        },
        (Phase::Running, _) => Rights {
            apply: bound(job, launcher, &names, follows_own_pod),
            ..Rights::default()
        },
        (Phase::Waiting | Phase::Starting, _) => {
            let account = account(job, launcher).filter(|_| is_due);
            Rights {
                apply: account.into_iter().collect(),
                withdraw: Some(empty_role(job)),
                ..Rights::default()
            }
        }
        (Phase::Suspended | Phase::Reserving | Phase::Finished(_), false) => Rights {
            withdraw: Some(empty_role(job)),
            ..Rights::default()
        },
        (Phase::Suspended | Phase::Reserving | Phase::Finished(_), true)
        | (Phase::Ended(..) | Phase::Restart(_), _) => Rights::default(),
    }
}

/// Whether the launcher uses shared rights. A Pod keeps its ServiceAccount when the admin changes
/// the setting.
fn shares_rights(job: &ValidJob, facts: &Facts, settings: &PodSettings) -> bool {
    match facts.launcher.uid {
        Some(_) => facts.launcher.shares_rights,
        None => access::shares_rights(job, settings),
    }
}

/// The objects of the namespace. Without the policy of the setting they stay as they are: a
/// launcher of an earlier setting uses them until its end.
fn shared(job: &ValidJob, settings: &PodSettings, is_due: bool) -> Vec<Applicable> {
    if settings.launcher_policy.is_none() || !is_due {
        return Vec::new();
    }
    vec![
        Applicable::ServiceAccount(shared_rights::service_account(&job.namespace)),
        Applicable::Role(shared_rights::role(&job.namespace)),
        Applicable::RoleBinding(shared_rights::role_binding(&job.namespace)),
    ]
}

/// Whether the job has Pods, or its last partitions are being created.
fn partitions_form(facts: &Facts) -> bool {
    let forms = |one: &Instance| {
        let state = &one.partition.state;
        *state == PartitionState::Forming || state.usable().is_some()
    };
    facts.all().any(Instance::live) || facts.instances.iter().all(forms)
}

fn empty_role(job: &ValidJob) -> Applicable {
    Applicable::Role(access::role(job, &[], false))
}

/// The account, its right to exec into these workers, and its right to follow its own Pod.
fn bound(
    job: &ValidJob,
    launcher: &ValidLauncher,
    workers: &[String],
    follows_own_pod: bool,
) -> Vec<Applicable> {
    let rights = [
        Applicable::Role(access::role(job, workers, follows_own_pod)),
        Applicable::RoleBinding(access::role_binding(job, launcher)),
    ];
    account(job, launcher).into_iter().chain(rights).collect()
}

/// A ServiceAccount of the user is not changed: the Role is bound to it.
fn account(job: &ValidJob, launcher: &ValidLauncher) -> Option<Applicable> {
    let has_own = launcher.service_account.is_none();
    has_own.then(|| Applicable::ServiceAccount(access::service_account(job)))
}
