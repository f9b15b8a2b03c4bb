//! Pure: builds the part of the status that records a run, because deleted Pods do not show it any
//! more.

use std::collections::BTreeMap;

use ipu_api::ipujob_status::{InstanceEnd, JobState, RunStatus};
use ipu_runtime::clock;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Obstacle, StatusInput, rejections, starts};
use crate::facts::Facts;
use crate::facts::deadlines::{QUOTA_BACKOFF, REFUSAL_TIMEOUT};
use crate::phase::Phase;
use crate::restart::Next;

/// Builds the record of the run.
pub(super) fn run_status(input: &StatusInput<'_>, state: JobState, now: Timestamp) -> RunStatus {
    let facts = input.facts;
    let old = &facts.run;
    let rejections = rejections::rejections(input, now);
    let same_run = RunStatus {
        number: old.number,
        failures: old.failures,
        not_before: old.not_before.clone(),
        restarting: old.restarting.clone(),
        refused_since: refused_since(input, now),
        used: used(input),
        ended: ended(input),
        starts: starts::starts(input, rejections.is_some(), now),
        rejections,
    };
    match input.phase {
        Phase::Ended(
            _,
            Next::Retry {
                failures,
                not_before,
                reason,
            },
        ) => RunStatus {
            number: old.number.saturating_add(1),
            failures: *failures,
            not_before: Some(Time(*not_before)),
            restarting: Some(reason.clone()),
            ended: BTreeMap::new(),
            ..same_run
        },
        Phase::Restart(reason) => RunStatus {
            number: old.number.saturating_add(1),
            not_before: None,
            restarting: Some(reason.clone()),
            ..same_run
        },
        _ if state != JobState::Pending => RunStatus {
            not_before: None,
            restarting: None,
            ..same_run
        },
        _ => same_run,
    }
}

/// Returns the message while instances have no partition because the API server refused their Pods.
pub(super) fn quota_backoff_message(facts: &Facts) -> String {
    let since = facts.run.refused_since.as_ref();
    let end = since.map(|since| clock::later(since.0, REFUSAL_TIMEOUT + QUOTA_BACKOFF));
    let end = end.map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    format!(
        "the API server refused Pods of the job for {} minutes, so its partitions were released; \
         the job requests them again at {}",
        REFUSAL_TIMEOUT.as_mins(),
        end.unwrap_or_default()
    )
}

/// By instance: the partition that its Pods may have used. The status records it before the first
/// of them is created. The executor erases the record of a partition that is gone.
fn used(input: &StatusInput<'_>) -> BTreeMap<String, String> {
    let facts = input.facts;
    let mut used = facts.run.used.clone();
    let in_use = facts.all().filter(|instance| instance.used);
    // Even if an earlier version of the operator has not recorded it.
    used.extend(in_use.filter_map(|instance| {
        let placed = instance.partition.state.placed()?;
        Some((instance.index.to_string(), placed.use_key()))
    }));
    used.extend(input.new_uses.clone());
    used
}

/// The ends of desired instances while others run. With a launcher there are none, because its end
/// is the job's end.
fn ended(input: &StatusInput<'_>) -> BTreeMap<String, InstanceEnd> {
    if input.job.launcher.is_some() || input.phase.is_finished() {
        return BTreeMap::new();
    }
    let instances = input.facts.instances.iter();
    instances
        .filter_map(|instance| Some((instance.index.to_string(), instance.instance_end()?)))
        .collect()
}

/// Returns the time since which the API server refuses Pods. It remains during the back-off, and
/// restarts with the next request. A suspended job has no Pods to refuse.
fn refused_since(input: &StatusInput<'_>, now: Timestamp) -> Option<Time> {
    let since = input.facts.run.refused_since.clone();
    if *input.phase == Phase::Suspended {
        return None;
    }
    if input.facts.deadlines.in_quota_backoff {
        return since;
    }
    let refused = |obstacle: &Obstacle| matches!(obstacle, Obstacle::Refused { .. });
    if !input.obstacles.iter().any(refused) {
        return None;
    }
    since
        .filter(|since| clock::later(since.0, REFUSAL_TIMEOUT) > now)
        .or(Some(Time(now)))
}
