//! Pure: the problems of Pods, in words for users.

use ipu_api::ipujob_status::RunStatus;

use super::Facts;
use super::pod::PodState;

/// Returns the problems of Pods: the reasons of Kubernetes for which they do not start, or are deleted. That of a
/// rejection stays until the Pods start, so that it does not come and go with each attempt.
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
