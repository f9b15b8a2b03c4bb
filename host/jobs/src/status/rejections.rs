//! Pure: records the Pods that their nodes rejected, and the back-off until they are created again.

use ipu_api::ipujob_status::PodRejections;
use ipu_runtime::clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::StatusInput;
use crate::facts::Member;
use crate::facts::pod::{Failure, PodState};

/// Delay after the first rejection. It doubles with each further one. A node often has free
/// resources again within seconds.
const FIRST_DELAY: SignedDuration = SignedDuration::from_secs(2);

/// Maximum delay, as for containers of a Pod.
const LONGEST_DELAY: SignedDuration = SignedDuration::from_mins(5);

/// Builds the record of the rejections. Pods that are rejected during the back-off belong to the
/// same attempt.
pub(super) fn rejections(input: &StatusInput<'_>, now: Timestamp) -> Option<PodRejections> {
    let old = input.facts.run.rejections.as_ref();
    let pods: Vec<String> = members(input)
        .filter(|member| is_unused(input, member))
        .map(|member| member.name.clone())
        .collect();
    let new = members(input).find_map(|member| match &member.state {
        PodState::Rejected(failure) if !input.facts.is_recorded_as_rejected(&member.name) => {
            Some(&**failure)
        }
        _ => None,
    });
    match (old, new) {
        _ if input.phase.is_finished() => None,
        (old, Some(failure)) => {
            let count = old.map_or(0, |old| old.count);
            let current = old.filter(|_| input.facts.deadlines.in_rejection_backoff);
            Some(PodRejections {
                count: current.map_or(count.saturating_add(1), |current| current.count),
                not_before: current.map_or_else(
                    || Time(clock::later(now, delay(count))),
                    |current| current.not_before.clone(),
                ),
                pods,
                message: message(failure),
            })
        }
        (Some(old), None) => {
            let is_recreated = !input.recreated.is_empty();
            let waits = is_recreated || !pods.is_empty() || members(input).any(is_pending);
            waits.then(|| PodRejections {
                pods,
                ..old.clone()
            })
        }
        (None, None) => None,
    }
}

fn members<'a>(input: &StatusInput<'a>) -> impl Iterator<Item = &'a Member> {
    let facts = input.facts;
    let workers = facts.all().flat_map(|instance| &instance.workers);
    workers.chain(std::iter::once(&facts.launcher))
}

/// Whether a Pod was rejected and is not created again yet.
fn is_unused(input: &StatusInput<'_>, member: &Member) -> bool {
    let is_earlier = || match &member.state {
        PodState::Absent | PodState::Stale | PodState::Terminating { started: false, .. } => {
            input.facts.is_recorded_as_rejected(&member.name)
        }
        _ => false,
    };
    let is_rejected = matches!(member.state, PodState::Rejected(_)) || is_earlier();
    is_rejected && !input.recreated.contains(&member.name)
}

fn is_pending(member: &Member) -> bool {
    matches!(member.state, PodState::Pending(_))
}

/// Returns the delay after this number of earlier attempts.
fn delay(earlier: i32) -> SignedDuration {
    let doubled = 2_i32.saturating_pow(earlier.try_into().unwrap_or(0));
    FIRST_DELAY.saturating_mul(doubled).min(LONGEST_DELAY)
}

fn message(failure: &Failure) -> String {
    let Failure {
        pod,
        reason,
        message,
        ..
    } = failure;
    let quoted = message
        .as_deref()
        .map_or_else(String::new, |text| format!(": {text}"));
    format!("the node rejected Pod {pod} ({reason}){quoted}; the operator creates it again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum() {
        let delays: Vec<i64> = (0..10).map(|earlier| delay(earlier).as_secs()).collect();
        assert_eq!(delays, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(delay(i32::MAX).as_secs(), 300);
    }
}
