//! Pure: where a job stands, as one value that every later step matches exhaustively.

use serde::Serialize;

use super::facts::partition::PartitionState;
use super::facts::pod::{Failure, PodState};
use super::facts::{Facts, Instance, Recorded};
use super::report::DEADLINE_EXCEEDED;
use super::validate::ValidJob;

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Phase {
    /// The user wants it to rest.
    Suspended,
    /// An instance lacks its partition.
    Waiting,
    /// Every instance has its partition, and Pods are being made or get ready.
    Starting,
    /// The job's program runs.
    Running,
    /// A job with a launcher has to start again as a whole, for this reason, and has not failed.
    Replaced(String),
    /// A run has ended, and the status does not say so yet. Nothing is cleaned before it does: a
    /// controller that is killed in between would find the Pods gone and could not tell why.
    Ended(Outcome),
    /// The job has ended for good, and the status says so.
    Finished(Recorded),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Outcome {
    /// All instances are done.
    Completed,
    /// It failed, and this is how.
    Failed(RunFailure),
}

/// How a run failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunFailure {
    /// In words, with the names of Pod and container.
    pub how: String,
    /// Exit code of the container that decided; none where it was not a program that failed.
    pub exit_code: Option<i32>,
    /// A word for programs, where it is not the plain failure of a Pod.
    pub reason: Option<&'static str>,
    /// Whether no restart policy helps.
    pub is_final: bool,
}

impl Outcome {
    fn failed(how: String, exit_code: Option<i32>) -> Self {
        Self::Failed(RunFailure {
            how,
            exit_code,
            ..RunFailure::default()
        })
    }
}

/// Where the job stands.
pub fn phase(job: &ValidJob, facts: &Facts) -> Phase {
    if let Some(recorded) = facts.recorded {
        return Phase::Finished(recorded);
    }
    if job.suspend {
        return Phase::Suspended;
    }
    let phase = match job.launcher {
        Some(_) => with_launcher(job, facts),
        None => without_launcher(facts),
    };
    match phase {
        Phase::Ended(_) => phase,
        _ if facts.due.overdue => Phase::Ended(overdue(job)),
        phase => phase,
    }
}

fn overdue(job: &ValidJob) -> Outcome {
    let seconds = job.active_deadline_seconds.unwrap_or_default();
    Outcome::Failed(RunFailure {
        how: format!("the job was active for longer than spec.activeDeadlineSeconds: {seconds}"),
        exit_code: None,
        reason: Some(DEADLINE_EXCEEDED),
        is_final: true,
    })
}

/// Each instance runs for itself; the job has ended when all of them have.
fn without_launcher(facts: &Facts) -> Phase {
    if !facts.instances.is_empty() && facts.instances.iter().all(Instance::ended) {
        let ends = facts.instances.iter().filter_map(Instance::how_it_ended);
        let mut failed = ends.filter_map(|end| Some((end.failure?, end.exit_code)));
        return Phase::Ended(match failed.next() {
            None => Outcome::Completed,
            Some((how, code)) => Outcome::failed(format!("worker failed: {how}"), code),
        });
    }
    let mut going_on = facts.instances.iter().filter(|found| !found.ended());
    if going_on.clone().any(lacks_partition) {
        return Phase::Waiting;
    }
    if going_on.any(Instance::incomplete) {
        Phase::Starting
    } else {
        Phase::Running
    }
}

/// The launcher's command is the job: its exit code decides, unless a worker was lost before it.
fn with_launcher(job: &ValidJob, facts: &Facts) -> Phase {
    let launcher = &facts.launcher;
    match &launcher.state {
        PodState::Succeeded(at) => Phase::Ended(match lost_worker(facts, *at) {
            // Open MPI 5 ends with 0 when it loses a node.
            Some((lost, code)) => Outcome::failed(
                format!("{lost}, while the launcher ran (it ended with exit code 0)"),
                code,
            ),
            None => Outcome::Completed,
        }),
        PodState::Failed(failure) => Phase::Ended(launcher_failed(facts, failure)),
        PodState::Lost(failure) if failure.started => {
            Phase::Ended(Outcome::failed(format!("launcher lost: {failure}"), None))
        }
        PodState::Running { .. } => match lost_worker(facts, None) {
            Some((lost, code)) => Phase::Ended(Outcome::failed(
                format!("{lost}, while the launcher ran"),
                code,
            )),
            None => broken(facts)
                .or_else(|| replaced(facts))
                .or_else(|| moved(job, facts))
                .unwrap_or(Phase::Running),
        },
        PodState::Absent
        | PodState::Going { .. }
        | PodState::Stale
        | PodState::Lost(_)
        | PodState::Pending(_) => {
            if facts.ran || launcher.state.started() {
                return Phase::Ended(launcher_gone(facts));
            }
            before_the_launcher(facts)
        }
    }
}

/// A launcher that is deleted while it runs has failed; where a worker was lost, that is why: the kubelet
/// may tell late that the launcher runs, and until it does the operator itself deletes it then.
fn launcher_gone(facts: &Facts) -> Outcome {
    if let Some((lost, code)) = lost_worker(facts, None) {
        return Outcome::failed(format!("{lost}, while the launcher ran"), code);
    }
    let name = &facts.launcher.name;
    let why = deleted_because(&facts.launcher.state);
    let how = format!("launcher failed: Pod {name} was deleted while it ran{why}");
    Outcome::failed(how, None)
}

fn launcher_failed(facts: &Facts, failure: &Failure) -> Outcome {
    match lost_worker(facts, failure.at) {
        Some((lost, code)) => Outcome::failed(
            format!("{lost}, while the launcher ran; launcher failed: {failure}"),
            code,
        ),
        None => Outcome::failed(format!("launcher failed: {failure}"), failure.exit_code),
    }
}

fn before_the_launcher(facts: &Facts) -> Phase {
    let ended = facts.workers().find(|worker| worker.state.ended());
    if let Some(worker) = ended {
        return Phase::Ended(match worker.state.failure() {
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
    if let Some(replaced) = replaced(facts) {
        return replaced;
    }
    if facts.instances.iter().any(lacks_partition) {
        return Phase::Waiting;
    }
    Phase::Starting
}

/// The run under a partition that broke has failed, whatever its program makes of it.
fn broken(facts: &Facts) -> Option<Phase> {
    facts.instances.iter().find_map(|instance| {
        let PartitionState::Broken(broken) = &instance.partition.state else {
            return None;
        };
        let how = format!(
            "instance {} lost its partition, while the launcher ran: {}",
            instance.index, broken.reason
        );
        Some(Phase::Ended(Outcome::failed(how, None)))
    })
}

/// Workers of another template than the job has now cannot run beside the others.
fn replaced(facts: &Facts) -> Option<Phase> {
    let is_outdated = facts.instances.iter().any(Instance::is_outdated);
    is_outdated.then(|| Phase::Replaced("spec.workers.template has changed".to_owned()))
}

/// The run moves off a controller that is drained, where its restart policy lets another run follow.
fn moved(job: &ValidJob, facts: &Facts) -> Option<Phase> {
    if !job.restart.replaces_a_lost_run() {
        return None;
    }
    facts
        .instances
        .iter()
        .find_map(|instance| match &instance.partition.state {
            PartitionState::Leaving(_, why) => Some(Phase::Replaced(format!(
                "instance {} moves: {why}",
                instance.index
            ))),
            _ => None,
        })
}

/// Says which worker was lost before `until`, the end of the launcher where it has ended, and the
/// exit code of its program where that ended by itself.
fn lost_worker(facts: &Facts, until: Option<jiff::Timestamp>) -> Option<(String, Option<i32>)> {
    let before = |at: Option<jiff::Timestamp>| match (at, until) {
        (Some(at), Some(until)) => at < until,
        _ => true,
    };
    facts.workers().find_map(|worker| {
        let name = &worker.name;
        match &worker.state {
            PodState::Absent => Some((format!("worker {name} is gone"), None)),
            PodState::Going { asked, .. } if before(*asked) => {
                let why = deleted_because(&worker.state);
                Some((format!("worker {name} was deleted{why}"), None))
            }
            PodState::Stale => Some((format!("worker {name} lost its partition"), None)),
            PodState::Lost(failure) if before(failure.at) => {
                Some((format!("worker lost: {failure}"), None))
            }
            PodState::Succeeded(at) if before(*at) => Some((format!("worker {name} ended"), None)),
            PodState::Failed(failure) if before(failure.at) => {
                Some((format!("worker failed: {failure}"), failure.exit_code))
            }
            PodState::Going { .. }
            | PodState::Lost(_)
            | PodState::Succeeded(_)
            | PodState::Failed(_)
            | PodState::Pending(_)
            | PodState::Running { .. } => None,
        }
    })
}

/// Who deleted a Pod, where Kubernetes says so: the scheduler for a Pod of higher priority, a drain.
fn deleted_because(state: &PodState) -> String {
    match state {
        PodState::Going { why: Some(why), .. } => format!(" ({why})"),
        _ => String::new(),
    }
}

fn lacks_partition(instance: &Instance) -> bool {
    instance.partition.state.held().is_none()
}
