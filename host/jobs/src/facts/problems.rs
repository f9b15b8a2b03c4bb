//! Pure: the problems of Pods, in words for users.

use ipu_api::ipujob_status::RunStatus;

use super::Facts;
use super::pod::PodState;
use crate::validate::ValidJob;

/// Returns the problems of Pods: the reasons of Kubernetes for which they do not start, or are
/// deleted. That of a rejection stays until the Pods start, so that it does not come and go with
/// each attempt.
pub fn pod_problems(facts: &Facts, run: &RunStatus) -> impl Iterator<Item = String> {
    let members = facts.workers().chain(std::iter::once(&facts.launcher));
    let rejection = run.rejections.as_ref();
    let problems = members.filter_map(|member| match &member.state {
        PodState::Pending(Some(reason)) => Some(format!("Pod {}: {reason}", member.name)),
        PodState::Terminating {
            reason: Some(reason),
            ..
        } => Some(format!("Pod {} is being deleted: {reason}", member.name)),
        PodState::Lost(failure) => Some(format!("lost {failure}")),
        _ => None,
    });
    problems.chain(rejection.map(|rejections| rejections.message.clone()))
}

/// Returns the containers that wait while the main container of their Pod runs. They stop neither
/// the program nor the launcher.
pub fn waiting_containers(facts: &Facts) -> impl Iterator<Item = String> {
    let members = facts.workers().chain(std::iter::once(&facts.launcher));
    let running = members.filter(|member| matches!(member.state, PodState::Running { .. }));
    running.filter_map(|member| {
        let reason = member.waiting_container.as_deref()?;
        let name = &member.name;
        Some(format!(
            "Pod {name} runs, and another container of it waits: {reason}"
        ))
    })
}

/// Returns what a launcher waits for that is held back or not created yet: main containers of
/// workers that run and are not Ready.
pub fn launcher_waits(job: &ValidJob, facts: &Facts) -> impl Iterator<Item = String> {
    let launcher = &facts.launcher;
    let is_absent = launcher.state == PodState::Absent;
    let waits = job.launcher.is_some() && (is_absent || launcher.is_held);
    let unready = facts
        .workers()
        .filter(move |worker| waits && worker.is_unready());
    unready.map(|worker| {
        let (name, container) = (&worker.name, &job.template.first.name);
        format!("Pod {name}: its container {container} runs and is not Ready, and the launcher waits for it")
    })
}
