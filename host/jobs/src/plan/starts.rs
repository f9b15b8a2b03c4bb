//! Pure: finds the instances whose Pods cannot start for too long, so that others can use their
//! IPUs.

use std::collections::BTreeMap;
use std::time::Duration;

use ipu_api::ipujob_status::InstanceStart;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::Plan;
use crate::facts::problems::{launcher_waits, pod_problems};
use crate::facts::{Facts, Instance, LAUNCHER_START};
use crate::validate::ValidJob;

/// A partition that is released, because Pods could not start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GivenUp {
    /// The V-IPU controller whose nodes could not start them. `None` if the Pods of another
    /// instance could not start.
    pub avoid: Option<String>,
    /// The reason, for users.
    pub message: String,
}

/// Returns the instances whose partitions are released now. Those of a launcher go together: one is
/// useless without the others. None goes while an init container is at work.
pub(super) fn given_up(
    job: &ValidJob,
    facts: &Facts,
    timeout: Option<Duration>,
) -> BTreeMap<String, GivenUp> {
    let Some(timeout) = timeout else {
        return BTreeMap::new();
    };
    let has_launcher = job.launcher.is_some();
    let instances = facts.instances.iter().chain(&facts.surge);
    let placed = instances
        .filter(|instance| !instance.ended() && instance.partition.state.placed().is_some());
    let is_overdue = |instance: &&Instance| {
        is_overdue(&instance.start, facts.now, timeout) && instance.is_blocked(has_launcher)
    };
    let overdue: Vec<&Instance> = placed.clone().filter(is_overdue).collect();
    let message = |instance: &Instance| message(job, facts, instance, timeout);
    if !has_launcher {
        let released = overdue.into_iter().map(|instance| {
            let given_up = GivenUp {
                avoid: controller(instance),
                message: message(instance),
            };
            (instance.index.to_string(), given_up)
        });
        return released.collect();
    }
    let launcher = facts.run.starts.get(LAUNCHER_START);
    let launcher = launcher.is_some_and(|start| is_overdue_launcher(facts, start, timeout));
    if (overdue.is_empty() && !launcher) || facts.initializes() {
        return BTreeMap::new();
    }
    let released = placed.map(|instance| {
        // The launcher uses the nodes of the first instance.
        let is_cause = overdue.iter().any(|cause| cause.index == instance.index)
            || (launcher && overdue.is_empty() && instance.index == 0);
        let given_up = GivenUp {
            avoid: controller(instance).filter(|_| is_cause),
            message: message(instance),
        };
        (instance.index.to_string(), given_up)
    });
    released.collect()
}

impl Plan {
    /// Requests no partitions, because a trial shows that the API server refuses the Pods. After
    /// the timeout, a job that Kueue has admitted releases its quota, as it would with a partition.
    pub fn refuse(
        &mut self,
        job: &ValidJob,
        facts: &Facts,
        refusal: &str,
        timeout: Option<Duration>,
    ) {
        self.create_partitions.clear();
        let Some(timeout) = timeout.filter(|_| job.is_admitted) else {
            return;
        };
        let instances = facts.instances.iter();
        let overdue = instances.filter(|instance| is_overdue(&instance.start, facts.now, timeout));
        self.given_up.extend(overdue.map(|instance| {
            let message = format!(
                "Pods of the job could not be created for {} seconds, so the job releases its quota: {refusal}",
                timeout.as_secs()
            );
            let given_up = GivenUp {
                avoid: None,
                message,
            };
            (instance.index.to_string(), given_up)
        }));
    }
}

/// Returns the time until the next partition may be released.
pub(super) fn remaining(facts: &Facts, timeout: Duration) -> Option<Duration> {
    let since = facts.run.starts.values();
    let since = since.filter_map(|start| start.blocked_since.as_ref());
    let due = since.map(|since| deadline(since.0, timeout));
    let next = due.filter(|due| *due > facts.now).min()?;
    // The clock of the next reconcile may be read a moment early.
    Some(next.duration_since(facts.now).unsigned_abs() + Duration::from_millis(1))
}

impl Plan {
    /// Whether the partition of an instance is released because its Pods could not start.
    pub(super) fn releases_for_start(&self, instance: &Instance) -> bool {
        instance.start.releasing || self.given_up.contains_key(&instance.index.to_string())
    }
}

fn is_overdue_launcher(facts: &Facts, start: &InstanceStart, timeout: Duration) -> bool {
    facts.launcher.is_start_blocked() && is_overdue(start, facts.now, timeout)
}

fn is_overdue(start: &InstanceStart, now: Timestamp, timeout: Duration) -> bool {
    let since = start.blocked_since.as_ref();
    since.is_some_and(|since| deadline(since.0, timeout) <= now)
}

fn deadline(since: Timestamp, timeout: Duration) -> Timestamp {
    let timeout = SignedDuration::try_from(timeout).unwrap_or(SignedDuration::MAX);
    ipu_runtime::clock::later(since, timeout)
}

fn controller(instance: &Instance) -> Option<String> {
    let placed = instance.partition.state.placed()?;
    Some(placed.controller.name.clone())
}

fn message(job: &ValidJob, facts: &Facts, instance: &Instance, timeout: Duration) -> String {
    let mut problems = pod_problems(facts, &facts.run).chain(launcher_waits(job, facts));
    let problem = problems.next().unwrap_or_default();
    let controller = controller(instance).unwrap_or_default();
    format!(
        "Pods of the job could not start for {} seconds, so the partition of instance {} on \
         {controller} was released, and the job requests another one: {problem}",
        timeout.as_secs(),
        instance.index
    )
}
