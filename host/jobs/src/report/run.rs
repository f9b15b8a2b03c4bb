//! Pure: what is remembered of a run, because the cluster cannot show it any more once a Pod is gone.

use std::collections::BTreeMap;

use ipu_api::ipujob_status::{InstanceEnd, JobState, RunStatus};
use ipu_runtime::clock;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Obstacle, Standing};
use crate::facts::Facts;
use crate::facts::due::{REFUSED_HOLDS, REFUSED_RESTS};
use crate::facts::partition::PartitionState;
use crate::phase::Phase;
use crate::restart::Next;

/// What is remembered after this look at the job.
pub(super) fn remembered(standing: &Standing<'_>, state: JobState, now: Timestamp) -> RunStatus {
    let facts = standing.facts;
    let old = &facts.run;
    let same_run = RunStatus {
        number: old.number,
        failures: old.failures,
        not_before: old.not_before.clone(),
        restarting: old.restarting.clone(),
        refused_since: refused_since(standing, now),
        used: used(standing),
        ended: ended(standing),
    };
    match (standing.phase, &standing.next) {
        (
            _,
            Some(Next::Again {
                failures,
                not_before,
                why,
            }),
        ) => RunStatus {
            number: old.number.saturating_add(1),
            failures: *failures,
            not_before: Some(Time(*not_before)),
            restarting: Some(why.clone()),
            ended: BTreeMap::new(),
            ..same_run
        },
        (Phase::Replaced(why), _) => RunStatus {
            number: old.number.saturating_add(1),
            not_before: None,
            restarting: Some(why.clone()),
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

/// What a user reads while instances do without a partition because their Pods are refused.
pub(super) fn yielding(facts: &Facts) -> String {
    let since = facts.run.refused_since.as_ref();
    let again = since.map(|since| clock::later(since.0, REFUSED_HOLDS + REFUSED_RESTS));
    let again = again.map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    format!(
        "the API server refused Pods of the job for {} minutes, so its partitions were released; \
         the job requests them again at {}",
        REFUSED_HOLDS.as_mins(),
        again.unwrap_or_default()
    )
}

/// Which partitions the Pods of each instance may have begun to use: written before the first of them
/// is made.
fn used(standing: &Standing<'_>) -> BTreeMap<String, String> {
    let facts = standing.facts;
    let mut used = BTreeMap::new();
    for instance in facts.all() {
        let key = instance.index.to_string();
        let partition = &instance.partition.state;
        let known = facts.run.used.get(&key).cloned();
        let now = match partition.held() {
            _ if standing.begins.contains_key(&key) => standing.begins.get(&key).cloned(),
            // Also where an earlier version of the operator has not written it down.
            Some(held) if instance.spent => Some(held.use_key()),
            _ => known.filter(|_| *partition != PartitionState::Absent),
        };
        used.extend(now.map(|now| (key, now)));
    }
    used
}

/// Which wanted instances have ended while others go on. With a launcher, its end is the job's.
fn ended(standing: &Standing<'_>) -> BTreeMap<String, InstanceEnd> {
    if standing.job.launcher.is_some() || standing.is_over() {
        return BTreeMap::new();
    }
    let instances = standing.facts.instances.iter();
    instances
        .filter_map(|instance| Some((instance.index.to_string(), instance.how_it_ended()?)))
        .collect()
}

/// Since when Pods are refused: kept while the instances rest, begun anew when they ask again.
fn refused_since(standing: &Standing<'_>, now: Timestamp) -> Option<Time> {
    let since = standing.facts.run.refused_since.clone();
    if standing.facts.due.yielding {
        return since;
    }
    let refused = |obstacle: &Obstacle| matches!(obstacle, Obstacle::Refused { .. });
    if !standing.obstacles.iter().any(refused) {
        return None;
    }
    since
        .filter(|since| clock::later(since.0, REFUSED_HOLDS) > now)
        .or(Some(Time(now)))
}
