//! Pure: records since when Pods of a job cannot start, and where they could not.

use std::collections::BTreeMap;

use ipu_api::ipujob_status::{InstanceStart, RunStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Obstacle, StatusInput};
use crate::facts::deadlines::REFUSAL_TIMEOUT;
use crate::facts::{Facts, Instance, LAUNCHER_START};
use crate::phase::Phase;

/// Maximum number of V-IPU controllers that an instance avoids: that of the IPUPartition.
const AVOIDED_MAX: usize = 16;

/// How far Pods have come with their start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// They cannot start.
    Blocked,
    /// They could not start, and an image is being pulled again. If that fails too, they could not
    /// start all the time.
    PullsAgain,
    /// Nothing is known to stand in their way.
    Starts,
    /// They have started.
    Started,
}

/// Builds the record of the starts. `is_rejected` means that nodes have rejected Pods of the job:
/// between two attempts these seem to start.
pub(super) fn starts(
    input: &StatusInput<'_>,
    is_rejected: bool,
    now: Timestamp,
) -> BTreeMap<String, InstanceStart> {
    if input.phase.is_finished() {
        return BTreeMap::new();
    }
    let facts = input.facts;
    let blocked_since = |old: &InstanceStart, progress: Progress| {
        let since = old.blocked_since.clone();
        match progress {
            Progress::Blocked => since.or(Some(Time(now))),
            Progress::PullsAgain => since,
            Progress::Starts => since.filter(|_| is_rejected),
            Progress::Started => None,
        }
    };
    let instances = facts.all().map(|instance| {
        let start = of_instance(input, instance, blocked_since);
        (instance.index.to_string(), start)
    });
    let old = facts.run.starts.get(LAUNCHER_START);
    let old = old.cloned().unwrap_or_default();
    let may_block = !is_suspended(input);
    let progress = match &facts.launcher {
        launcher if launcher.is_start_blocked() && may_block => Progress::Blocked,
        launcher if launcher.pulls_again() && may_block => Progress::PullsAgain,
        launcher if launcher.state.started() => Progress::Started,
        _ => Progress::Starts,
    };
    let launcher = InstanceStart {
        blocked_since: blocked_since(&old, progress),
        ..InstanceStart::default()
    };
    let all = instances.chain([(LAUNCHER_START.to_owned(), launcher)]);
    all.filter(|(_, start)| *start != InstanceStart::default())
        .collect()
}

fn of_instance(
    input: &StatusInput<'_>,
    instance: &Instance,
    blocked_since: impl Fn(&InstanceStart, Progress) -> Option<Time>,
) -> InstanceStart {
    let old = &instance.start;
    if let Some(given_up) = input.given_up.get(&instance.index.to_string()) {
        return InstanceStart {
            blocked_since: None,
            releasing: true,
            avoided_controllers: avoided(&old.avoided_controllers, given_up.avoid.as_deref()),
            message: given_up.message.clone(),
        };
    }
    if releases_quota(input, instance) {
        return InstanceStart {
            blocked_since: None,
            releasing: true,
            message: quota_release_message(),
            ..old.clone()
        };
    }
    // Kueue takes the quota of an admitted job back first, and suspends the job.
    let is_released = instance.partition.uid.is_none() && !input.job.is_admitted;
    let releasing = old.releasing && !is_released && *input.phase != Phase::Suspended;
    let has_launcher = input.job.launcher.is_some();
    let has_started = if has_launcher {
        input.facts.launcher.state.started()
    } else {
        instance.workers.iter().all(|worker| worker.state.started())
    };
    // Workers may change as they like once the program runs.
    let may_block = !is_suspended(input) && !has_started;
    let cannot_start = may_block && instance.is_blocked(has_launcher);
    let progress = if cannot_start || is_refused(input) {
        Progress::Blocked
    } else if may_block && instance.pulls_again() {
        Progress::PullsAgain
    } else if has_started {
        Progress::Started
    } else {
        Progress::Starts
    };
    // Without quota, nothing of a refusal is left. The V-IPU controllers of earlier attempts are
    // avoided further.
    let is_refusal = old.avoided_controllers.is_empty() && *input.phase == Phase::Suspended;
    let is_over = has_started || instance.ended() || is_refusal;
    InstanceStart {
        blocked_since: blocked_since(old, progress).filter(|_| !releasing),
        releasing,
        ..if is_over {
            InstanceStart::default()
        } else {
            old.clone()
        }
    }
}

/// Whether a trial has shown that the API server refuses the Pods of a job that has quota of Kueue.
/// It has no partition.
fn is_refused(input: &StatusInput<'_>) -> bool {
    let is_trial = |obstacle: &Obstacle| matches!(obstacle, Obstacle::TrialRefused { .. });
    input.job.is_admitted && input.obstacles.iter().any(is_trial)
}

/// Whether the quota of an instance goes with its partition, which was released because the API
/// server refused Pods. Kueue can take back only all of it, so it stays while another instance
/// works.
fn releases_quota(input: &StatusInput<'_>, instance: &Instance) -> bool {
    let facts = input.facts;
    let is_active = matches!(input.phase, Phase::Waiting | Phase::Starting);
    let lacks_pods = instance.incomplete() && !instance.ended();
    let has_quota = input.job.is_admitted && facts.deadlines.in_quota_backoff;
    has_quota && is_active && lacks_pods && !facts.all().any(Instance::live)
}

/// Returns the message of a job that releases its quota because the API server refused its Pods.
fn quota_release_message() -> String {
    format!(
        "the API server refused Pods of the job for {} minutes, so its partitions were released, and the job \
         releases its quota",
        REFUSAL_TIMEOUT.as_mins()
    )
}

/// Returns why the job waits for another partition after its Pods could not start.
pub(super) fn release_message<'a>(facts: &Facts, run: &'a RunStatus) -> Option<&'a str> {
    let mut instances = facts.instances.iter().filter(|instance| !instance.ended());
    instances.find_map(|instance| {
        let start = run.starts.get(&instance.index.to_string())?;
        let waits = start.releasing || instance.partition.state.usable().is_none();
        (waits && !start.message.is_empty()).then_some(&*start.message)
    })
}

fn is_suspended(input: &StatusInput<'_>) -> bool {
    matches!(input.phase, Phase::Suspended | Phase::Reserving)
}

/// Adds a V-IPU controller to those that are avoided. The last ones count.
fn avoided(old: &[String], controller: Option<&str>) -> Vec<String> {
    let kept = old.iter().filter(|name| Some(&***name) != controller);
    let mut all: Vec<String> = kept.cloned().chain(controller.map(str::to_owned)).collect();
    let surplus = all.len().saturating_sub(AVOIDED_MAX);
    all.drain(..surplus);
    all
}
