//! Pure: decides the phase of a job, which every later step matches exhaustively.

use jiff::Timestamp;
use serde::Serialize;

use super::facts::partition::PartitionState;
use super::facts::pod::{Failure, PodState};
use super::facts::{Facts, Instance};
use super::job_conditions::{DEADLINE_EXCEEDED, Recorded};
use super::outcome::{Outcome, RunFailure};
use super::restart::Next;
use super::validate::{Suspension, ValidJob};

/// The phase of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Phase {
    /// It is suspended.
    Suspended,
    /// It is suspended, and its partitions are created for the time of its admission. It has no
    /// Pods.
    Reserving,
    /// An instance waits for its partition.
    Waiting,
    /// Every instance has its partition; Pods are being created or are not Ready yet.
    Starting,
    /// The job's program runs.
    Running,
    /// A job with a launcher must restart as a whole, for this reason, and has not failed.
    Restart(String),
    /// A run has ended with this outcome, and the restart rule has decided what follows. The status
    /// does not record it yet. Nothing is cleaned up before: a controller that is killed in between
    /// would find no Pods, and no reason.
    Ended(Outcome, Next),
    /// The job has finished, and the status records it.
    Finished(Recorded),
}

impl Phase {
    /// Whether the job has finished. The status may not record it yet.
    pub fn is_finished(&self) -> bool {
        matches!(self, Self::Ended(_, Next::Terminal(_)) | Self::Finished(_))
    }
}

/// The state of the run of an active job.
enum RunState {
    /// It has not ended, and this is the phase of the job.
    Active(Phase),
    /// It has ended.
    Ended(Outcome),
}

/// Decides the phase of a job at the time `now`, and after the end of a run whether and when the
/// job restarts.
pub fn phase(job: &ValidJob, facts: &Facts, now: Timestamp) -> Phase {
    if let Some(recorded) = facts.recorded {
        return Phase::Finished(recorded);
    }
    match job.suspension {
        Suspension::Active => {}
        Suspension::Suspended | Suspension::Unadmitted => return Phase::Suspended,
        Suspension::Reserving => return Phase::Reserving,
    }
    let run = match job.launcher {
        Some(_) => with_launcher(job, facts),
        None => without_launcher(facts),
    };
    let outcome = match run {
        RunState::Ended(outcome) => outcome,
        RunState::Active(_) if facts.deadlines.overdue => deadline_exceeded(job),
        RunState::Active(phase) => return phase,
    };
    let next = job.restart.next(&outcome, facts.run.failures, now);
    Phase::Ended(outcome, next)
}

fn deadline_exceeded(job: &ValidJob) -> Outcome {
    let seconds = job.active_deadline_seconds.unwrap_or_default();
    Outcome::Failed(RunFailure {
        message: format!(
            "the job was active for longer than spec.activeDeadlineSeconds: {seconds}"
        ),
        exit_code: None,
        reason: Some(DEADLINE_EXCEEDED),
        is_final: true,
    })
}

/// Decides the state of a run without a launcher: instances are independent, and it ends when all
/// of them have ended.
fn without_launcher(facts: &Facts) -> RunState {
    if !facts.instances.is_empty() && facts.instances.iter().all(Instance::ended) {
        let ends = facts.instances.iter().filter_map(Instance::instance_end);
        let mut failed = ends.filter_map(|end| Some((end.failure?, end.exit_code)));
        return RunState::Ended(match failed.next() {
            None => Outcome::Completed,
            Some((failure, code)) => Outcome::failed(format!("worker failed: {failure}"), code),
        });
    }
    let mut active = facts.instances.iter().filter(|found| !found.ended());
    if active.clone().any(lacks_partition) {
        return RunState::Active(Phase::Waiting);
    }
    RunState::Active(if active.any(Instance::incomplete) {
        Phase::Starting
    } else {
        Phase::Running
    })
}

/// Decides the state of a run with a launcher: its exit code decides, unless a worker was lost
/// before it ended.
fn with_launcher(job: &ValidJob, facts: &Facts) -> RunState {
    let launcher = &facts.launcher;
    match &launcher.state {
        PodState::Succeeded(at) => RunState::Ended(match lost_worker(facts, *at) {
            // Open MPI 5 ends with 0 when it loses a node.
            Some((lost, code)) => Outcome::failed(
                format!("{lost}, while the launcher ran (it ended with exit code 0)"),
                code,
            ),
            None => Outcome::Completed,
        }),
        PodState::Failed(failure) => RunState::Ended(launcher_failed(facts, failure)),
        PodState::Lost(failure) if failure.started => {
            RunState::Ended(Outcome::failed(format!("launcher lost: {failure}"), None))
        }
        PodState::Running { .. } => match lost_worker(facts, None) {
            Some((lost, code)) => RunState::Ended(Outcome::failed(
                format!("{lost}, while the launcher ran"),
                code,
            )),
            None => match broken_partition(facts) {
                Some(outcome) => RunState::Ended(outcome),
                None => RunState::Active(
                    template_changed(facts)
                        .or_else(|| controller_drained(job, facts))
                        .unwrap_or(Phase::Running),
                ),
            },
        },
        PodState::Absent
        | PodState::Terminating { .. }
        | PodState::Stale
        | PodState::Lost(_)
        | PodState::Rejected(_)
        | PodState::Pending(_) => {
            if facts.has_run || launcher.state.started() {
                return RunState::Ended(launcher_deleted(facts));
            }
            before_launcher(facts)
        }
    }
}

/// A launcher that is deleted while it runs has failed. If a worker was lost, that is the reason:
/// the kubelet may report late that the launcher runs, and until then the operator itself deletes
/// it after the loss of a worker.
fn launcher_deleted(facts: &Facts) -> Outcome {
    if let Some((lost, code)) = lost_worker(facts, None) {
        return Outcome::failed(format!("{lost}, while the launcher ran"), code);
    }
    let name = &facts.launcher.name;
    let reason = deletion_reason(&facts.launcher.state);
    let message = format!("launcher failed: Pod {name} was deleted while it ran{reason}");
    Outcome::failed(message, None)
}

fn launcher_failed(facts: &Facts, failure: &Failure) -> Outcome {
    // Workers may come and go before the command is released.
    let lost = lost_worker(facts, failure.at).filter(|_| !facts.launcher.is_held);
    match lost {
        Some((lost, code)) => Outcome::failed(
            format!("{lost}, while the launcher ran; launcher failed: {failure}"),
            code,
        ),
        None => Outcome::failed(format!("launcher failed: {failure}"), failure.exit_code),
    }
}

fn before_launcher(facts: &Facts) -> RunState {
    let ended = facts.workers().find(|worker| worker.state.ended());
    if let Some(worker) = ended {
        return RunState::Ended(match worker.state.failure() {
            Some(failure) => Outcome::failed(
                format!("worker failed before the launcher started: {failure}"),
                failure.exit_code,
            ),
            None => Outcome::failed(
                format!("worker {} ended before the launcher started", worker.name),
                None,
            ),
        });
    }
    if let Some(restart) = template_changed(facts) {
        return RunState::Active(restart);
    }
    if facts.instances.iter().any(lacks_partition) {
        return RunState::Active(Phase::Waiting);
    }
    RunState::Active(Phase::Starting)
}

/// A run whose partition breaks has failed, regardless of its program.
fn broken_partition(facts: &Facts) -> Option<Outcome> {
    facts.instances.iter().find_map(|instance| {
        let PartitionState::Broken(broken) = &instance.partition.state else {
            return None;
        };
        let message = format!(
            "instance {} lost its partition, while the launcher ran: {}",
            instance.index, broken.reason
        );
        Some(Outcome::failed(message, None))
    })
}

/// A change of the template restarts the run: workers of two templates cannot run together.
fn template_changed(facts: &Facts) -> Option<Phase> {
    let is_outdated = facts.instances.iter().any(Instance::is_outdated);
    is_outdated.then(|| Phase::Restart("spec.workers.template has changed".to_owned()))
}

/// A drain of a controller restarts the run elsewhere, if the restart policy allows that.
fn controller_drained(job: &ValidJob, facts: &Facts) -> Option<Phase> {
    if !job.restart.restarts_lost_runs() {
        return None;
    }
    facts
        .instances
        .iter()
        .find_map(|instance| match &instance.partition.state {
            PartitionState::Draining(_, reason) => Some(Phase::Restart(format!(
                "instance {} moves: {reason}",
                instance.index
            ))),
            _ => None,
        })
}

/// Describes the worker that was lost before `until`, the end of the launcher, and returns the exit
/// code of its program if that ended by itself. `None` for `until` means that the launcher has not
/// ended.
fn lost_worker(facts: &Facts, until: Option<jiff::Timestamp>) -> Option<(String, Option<i32>)> {
    let before = |at: Option<jiff::Timestamp>| match (at, until) {
        (Some(at), Some(until)) => at < until,
        _ => true,
    };
    facts.workers().find_map(|worker| {
        let name = &worker.name;
        match &worker.state {
            PodState::Absent => Some((format!("worker {name} is gone"), None)),
            PodState::Terminating { requested, .. } if before(*requested) => {
                let reason = deletion_reason(&worker.state);
                Some((format!("worker {name} was deleted{reason}"), None))
            }
            PodState::Stale => Some((format!("worker {name} lost its partition"), None)),
            PodState::Lost(failure) | PodState::Rejected(failure) if before(failure.at) => {
                Some((format!("worker lost: {failure}"), None))
            }
            PodState::Succeeded(at) if before(*at) => Some((format!("worker {name} ended"), None)),
            PodState::Failed(failure) if before(failure.at) => {
                Some((format!("worker failed: {failure}"), failure.exit_code))
            }
            PodState::Terminating { .. }
            | PodState::Lost(_)
            | PodState::Rejected(_)
            | PodState::Succeeded(_)
            | PodState::Failed(_)
            | PodState::Pending(_)
            | PodState::Running { .. } => None,
        }
    })
}

/// Describes a deletion by Kubernetes, such as a preemption or a drain.
fn deletion_reason(state: &PodState) -> String {
    match state {
        PodState::Terminating {
            reason: Some(reason),
            ..
        } => format!(" ({reason})"),
        _ => String::new(),
    }
}

fn lacks_partition(instance: &Instance) -> bool {
    instance.partition.state.placed().is_none()
}
