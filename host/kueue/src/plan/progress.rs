//! Pure: the progress of an admitted job's Pods in its Workload.

use ipu_api::queueing::WORKERS;

use super::{ObservedJob, Step};
use crate::job::QueuedJob;
use crate::objects::{ADMITTED, PODS_READY, ReclaimablePods, Workload};

/// Workers that need no quota any more: the instance has ended or is not desired any more, and its
/// partition is gone.
pub(super) fn reclaimable(seen: &ObservedJob, workload: &Workload) -> Vec<ReclaimablePods> {
    let job = &seen.job;
    let sets = &workload.spec.pod_sets;
    let Some(workers) = sets.iter().find(|one| one.name == WORKERS) else {
        return Vec::new();
    };
    let admitted = workers.count.checked_div(job.workers).unwrap_or(0);
    let holds = |instance: u32| seen.partitions.iter().any(|one| one.instance == instance);
    let is_over = |instance: &u32| *instance >= job.instances || job.ended.contains(instance);
    let over = (0..admitted)
        .filter(is_over)
        .filter(|one| !holds(*one))
        .count();
    let count = u32::try_from(over)
        .unwrap_or(u32::MAX)
        .saturating_mul(job.workers);
    let known = workload
        .status
        .iter()
        .flat_map(|status| &status.reclaimable_pods);
    // Kueue accepts no smaller number while quota is reserved.
    let least = known
        .filter(|one| one.name == WORKERS)
        .map(|one| one.count)
        .max();
    let count = count.max(least.unwrap_or(0));
    let reclaimable = ReclaimablePods {
        name: WORKERS.to_owned(),
        count,
    };
    (count > 0).then_some(reclaimable).into_iter().collect()
}

/// The change of the condition `PodsReady`, with the reasons of Kueue's own jobs, or the eviction
/// after Pods could not start.
pub(super) fn pods_ready(job: &QueuedJob, workload: &Workload) -> Option<Step> {
    if let (true, Some(reason)) = (workload.is(ADMITTED), &job.start_failure) {
        return Some(Step::Evict(reason.clone()));
    }
    let is_ready = workload.is(PODS_READY);
    let step = |is_ready, reason| Some(Step::SetPodsReady { is_ready, reason });
    match (workload.is(ADMITTED), job.is_running && !job.is_suspended()) {
        (false, _) if is_ready => step(false, "WaitForStart"),
        (true, false) if is_ready => step(false, "WaitForRecovery"),
        (true, true) if !is_ready => {
            let before = workload.condition(PODS_READY, "False");
            let has_recovered = before.is_some_and(|one| one.reason == "WaitForRecovery");
            step(
                true,
                if has_recovered {
                    "Recovered"
                } else {
                    "Started"
                },
            )
        }
        _ => None,
    }
}
