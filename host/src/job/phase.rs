//! Pure: where a job stands, as one value that every later step matches exhaustively.

use serde::Serialize;

use super::facts::pod::PodState;
use super::facts::{Facts, Instance, Member, Recorded};
use super::validate::ValidJob;

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Phase {
    /// An instance lacks its partition.
    Waiting,
    /// Every instance has its partition, and Pods are being made or get ready.
    Starting,
    /// The job's program runs.
    Running,
    /// The job has ended, and the status does not say so yet. Nothing is cleaned before it does: a
    /// controller that is killed in between would find the Pods gone and could not tell why.
    Ended(Outcome),
    /// The job has ended, and the status says so.
    Finished(Recorded),
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Outcome {
    /// All instances are done.
    Completed,
    /// It failed, and this is how.
    Failed(String),
}

/// Where the job stands.
pub fn phase(job: &ValidJob, facts: &Facts) -> Phase {
    if let Some(recorded) = facts.recorded {
        return Phase::Finished(recorded);
    }
    match job.launcher {
        Some(_) => with_launcher(facts),
        None => without_launcher(facts),
    }
}

/// Each instance runs for itself; the job has ended when all of them have.
fn without_launcher(facts: &Facts) -> Phase {
    if !facts.instances.is_empty() && facts.instances.iter().all(Instance::ended) {
        let failure = facts.instances.iter().find_map(Instance::failure);
        return Phase::Ended(match failure {
            None => Outcome::Completed,
            Some(failure) => Outcome::Failed(format!("worker failed: {failure}")),
        });
    }
    let mut going_on = facts.instances.iter().filter(|found| !found.ended());
    if going_on.clone().any(lacks_partition) {
        return Phase::Waiting;
    }
    if going_on.all(has_pods) {
        Phase::Running
    } else {
        Phase::Starting
    }
}

/// The launcher's command is the job: its exit code decides, unless a worker was lost before it.
fn with_launcher(facts: &Facts) -> Phase {
    let launcher = &facts.launcher;
    match &launcher.state {
        PodState::Succeeded(at) => Phase::Ended(match lost_worker(facts, *at) {
            // Open MPI 5 ends with 0 when it loses a node.
            Some(lost) => Outcome::Failed(format!(
                "{lost}, while the launcher ran (it ended with exit code 0)"
            )),
            None => Outcome::Completed,
        }),
        PodState::Failed(failure) => {
            Phase::Ended(Outcome::Failed(match lost_worker(facts, failure.at) {
                Some(lost) => format!("{lost}, while the launcher ran; launcher failed: {failure}"),
                None => format!("launcher failed: {failure}"),
            }))
        }
        PodState::Running { .. } => match lost_worker(facts, None) {
            Some(lost) => Phase::Ended(Outcome::Failed(format!("{lost}, while the launcher ran"))),
            None => Phase::Running,
        },
        PodState::Absent | PodState::Going { .. } | PodState::Stale | PodState::Pending(_) => {
            if facts.ran || launcher.state.started() {
                let name = &launcher.name;
                return Phase::Ended(Outcome::Failed(format!(
                    "launcher failed: Pod {name} was deleted while it ran"
                )));
            }
            before_the_launcher(facts)
        }
    }
}

fn before_the_launcher(facts: &Facts) -> Phase {
    let ended = workers(facts).find(|worker| worker.state.ended());
    if let Some(worker) = ended {
        return Phase::Ended(Outcome::Failed(match worker.state.failure() {
            Some(failure) => format!("worker failed before the launcher started: {failure}"),
            None => format!("worker {} ended before the launcher started", worker.name),
        }));
    }
    if facts.instances.iter().any(lacks_partition) {
        return Phase::Waiting;
    }
    Phase::Starting
}

fn workers(facts: &Facts) -> impl Iterator<Item = &Member> {
    facts.instances.iter().flat_map(|found| &found.workers)
}

/// Says which worker was lost before `until`, the end of the launcher where it has ended.
fn lost_worker(facts: &Facts, until: Option<jiff::Timestamp>) -> Option<String> {
    let before = |at: Option<jiff::Timestamp>| match (at, until) {
        (Some(at), Some(until)) => at < until,
        _ => true,
    };
    workers(facts).find_map(|worker| {
        let name = &worker.name;
        match &worker.state {
            PodState::Absent => Some(format!("worker {name} is gone")),
            PodState::Going { asked, .. } if before(*asked) => {
                Some(format!("worker {name} was deleted"))
            }
            PodState::Stale => Some(format!("worker {name} lost its partition")),
            PodState::Succeeded(at) if before(*at) => Some(format!("worker {name} ended")),
            PodState::Failed(failure) if before(failure.at) => {
                Some(format!("worker failed: {failure}"))
            }
            PodState::Going { .. }
            | PodState::Succeeded(_)
            | PodState::Failed(_)
            | PodState::Pending(_)
            | PodState::Running { .. } => None,
        }
    })
}

fn lacks_partition(instance: &Instance) -> bool {
    instance.partition.state.held().is_none()
}

fn has_pods(instance: &Instance) -> bool {
    instance.workers.iter().all(|worker| match worker.state {
        PodState::Absent | PodState::Going { .. } | PodState::Stale => false,
        PodState::Pending(_)
        | PodState::Running { .. }
        | PodState::Succeeded(_)
        | PodState::Failed(_) => true,
    })
}
