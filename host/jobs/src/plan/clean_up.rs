//! Pure: plans the clean-up of a job that has ended: its Pods, by `cleanPodPolicy`, then its
//! partitions.

use std::collections::BTreeSet;

use ipu_api::ipujob::CleanPodPolicy;

use super::{Plan, deletion};
use crate::facts::pod::SidecarState;
use crate::facts::{Facts, Instance};
use crate::validate::ValidJob;

/// The deletion of workers by the `cleanPodPolicy` of a job that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CleanUp {
    /// `Workers` or `All`.
    pub policy: CleanPodPolicy,
    /// The workers whose partition is released when they are gone. The event of the release reports
    /// their deletion.
    pub workers: BTreeSet<String>,
}

/// Deletes Pods according to `cleanPodPolicy`, and releases partitions that no Pod uses any more.
pub(super) fn clean_up(job: &ValidJob, facts: &Facts) -> Plan {
    let mut plan = Plan {
        delete_job: facts.deadlines.expired,
        clean_up: cleaned_up(job, facts),
        ..Plan::default()
    };
    for member in facts.all().flat_map(|instance| &instance.workers) {
        let delete = match job.clean_pod_policy {
            // A Pod whose main container has ended remains, with its logs.
            CleanPodPolicy::None => {
                member.live() && member.sidecars == SidecarState::None && !keeps_workers(job, facts)
            }
            CleanPodPolicy::Workers | CleanPodPolicy::All => true,
        };
        if delete {
            plan.remove(member);
        } else if member.sidecars == SidecarState::Running {
            plan.end_pods.extend(deletion(member));
        }
    }
    match (job.clean_pod_policy, facts.launcher.sidecars) {
        (CleanPodPolicy::All, _) => plan.remove(&facts.launcher),
        // Deleting the Pod would delete its logs.
        (_, SidecarState::Running) => plan.end_pods.extend(deletion(&facts.launcher)),
        (_, SidecarState::Terminating) => {}
        (_, SidecarState::None) if facts.launcher.live() => plan.remove(&facts.launcher),
        (_, SidecarState::None) => {}
    }
    if !facts.launcher.live() {
        for instance in facts.all() {
            plan.release(instance);
        }
    }
    plan
}

/// Returns the deletion of workers by the policy. `None`: it keeps them.
fn cleaned_up(job: &ValidJob, facts: &Facts) -> Option<CleanUp> {
    let policy = job.clean_pod_policy;
    let has_partition = |instance: &&Instance| deletion(&instance.partition).is_some();
    let workers = facts
        .all()
        .filter(has_partition)
        .flat_map(|instance| &instance.workers);
    (policy != CleanPodPolicy::None).then(|| CleanUp {
        policy,
        workers: workers.map(|worker| worker.name.clone()).collect(),
    })
}

/// Whether live workers remain after the end of their job. With `cleanPodPolicy: None` those of a
/// launcher remain, as in Graphcore's operator. They do not after a deadline of the user, whose
/// purpose is to release the IPUs.
pub(crate) fn keeps_workers(job: &ValidJob, facts: &Facts) -> bool {
    let command = job.launcher.as_ref();
    job.clean_pod_policy == CleanPodPolicy::None
        && command.is_some_and(|launcher| launcher.interactive_seconds.is_none())
        && !facts.timed_out
}
