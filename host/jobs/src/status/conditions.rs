//! Pure: builds the conditions of a job: those of Graphcore's operator, and those with reasons.

use std::fmt::Write as _;

use ipu_api::ipujob_status::{JobCondition, JobState, RunStatus};
use jiff::Timestamp;

use super::StatusInput;
use crate::facts::partition::PartitionState;
use crate::facts::problems::{launcher_waits, pod_problems, waiting_containers};
use crate::facts::{Facts, Instance, Owned};
use crate::job_conditions::{
    CONTAINERS_WAITING, FAILED, PARTITIONS_READY, PARTITIONS_RELEASED, PENDING, PODS_READY,
    PODS_STARTING, READY, RESTARTING, RUNNING, STALLED, SUCCEEDED, SUSPENDED, TEMPLATE_CURRENT,
    WORKER_FAILED,
};
use crate::outcome::Outcome;
use crate::phase::Phase;
use crate::plan;
use crate::restart::Next;
use crate::validate::ValidJob;

/// Reason of a job that waits for a partition because of a problem.
pub(super) const WAITING: &str = "WaitingForPartition";

/// Maximum number of reasons in a message. It contains the number of the others.
const REASONS_MAX: usize = 5;

/// Builder of a job's conditions, oldest first.
pub struct Conditions {
    list: Vec<JobCondition>,
    now: Timestamp,
}

impl Conditions {
    /// Starts with the conditions of the current status.
    pub fn new(old: &[JobCondition], now: Timestamp) -> Self {
        Self {
            list: old.to_vec(),
            now,
        }
    }

    /// Returns the conditions, oldest first.
    pub fn into_vec(self) -> Vec<JobCondition> {
        self.list
    }

    /// Sets a condition. Keeps its times if nothing else changes.
    pub fn set(&mut self, type_: &str, status: bool, reason: &str, message: &str) {
        let status = if status { "True" } else { "False" };
        JobCondition::set(&mut self.list, type_, (status, reason, message), self.now);
    }

    /// Sets a condition to `False`, if it exists. Its message and times remain, as in Graphcore's
    /// operator.
    pub fn set_false(&mut self, type_: &str) {
        if let Some(old) = self.list.iter_mut().find(|old| old.type_ == type_) {
            "False".clone_into(&mut old.status);
        }
    }

    /// Sets a condition to `False` because of a problem, or removes it if there is no problem.
    fn set_problem(&mut self, type_: &str, problem: Option<(&str, String)>) {
        match problem {
            Some((reason, message)) => self.set(type_, false, reason, &message),
            None => self.list.retain(|old| old.type_ != type_),
        }
    }

    /// Sets all conditions of the job in this state and run.
    pub(super) fn describe(&mut self, input: &StatusInput<'_>, state: JobState, run: &RunStatus) {
        let StatusInput {
            job, facts, phase, ..
        } = input;
        let name = format!("IPUJob {}/{}", job.namespace, job.name);
        if state != JobState::Failed {
            // The job was invalid, and is corrected.
            self.list.retain(|old| old.type_ != FAILED);
        }
        self.describe_progress(&name, state, run.restarting.as_deref());
        match phase {
            Phase::Ended(Outcome::Completed, Next::Terminal(_)) => {
                let message = format!("{name} successfully completed.");
                self.set(SUCCEEDED, true, "IPUJobSucceeded", &message);
                // Otherwise it would take a write of its own.
                if plan::keeps_workers(job, facts) && facts.workers().any(Owned::live) {
                    self.describe_release(facts);
                }
            }
            Phase::Ended(Outcome::Failed(failure), Next::Terminal(reason)) => {
                let message = format!("{name} has failed: {}", failure.message);
                self.set(FAILED, true, reason.unwrap_or("IPUJobFailed"), &message);
            }
            Phase::Waiting if state == JobState::Failed => {
                let rejection = super::rejection(facts).unwrap_or_default();
                let (reason, cannot) = match job.start.refusal() {
                    Some(refusal) => (refusal.reason(), "is not started"),
                    None => ("IPUJobUnplaceable", "can never start"),
                };
                let message = format!("{name} {cannot}: {rejection}");
                self.set(FAILED, true, reason, &message);
            }
            Phase::Finished(_) => self.describe_release(facts),
            Phase::Suspended
            | Phase::Reserving
            | Phase::Waiting
            | Phase::Starting
            | Phase::Running
            | Phase::Restart(_)
            | Phase::Ended(_, Next::Retry { .. }) => {}
        }
        match phase {
            Phase::Ended(..) | Phase::Finished(_) | Phase::Suspended => {}
            _ => self.describe_resources(input, run),
        }
        if **phase == Phase::Suspended {
            self.list.retain(|old| old.type_ != PARTITIONS_READY);
            self.set_problem(PODS_READY, None);
        }
        self.describe_template(job, facts);
        self.describe_for_tools(state);
    }

    fn describe_progress(&mut self, name: &str, state: JobState, restarting: Option<&str>) {
        match state {
            JobState::Pending => {
                let message = format!("{name} is waiting for resources to be ready.");
                self.set(PENDING, true, "IPUJobPending", &message);
                self.set_false(RUNNING);
            }
            JobState::Running => {
                self.set_false(PENDING);
                let message = format!("{name} is running.");
                self.set(RUNNING, true, "IPUJobRunning", &message);
            }
            JobState::Completed | JobState::Failed | JobState::Suspended => {
                self.set_false(PENDING);
                self.set_false(RUNNING);
            }
        }
        match restarting {
            Some(reason) => {
                let message = format!("{name} is restarting: {reason}");
                self.set(RESTARTING, true, "IPUJobRestarting", &message);
            }
            None => self.set_false(RESTARTING),
        }
        if state == JobState::Suspended {
            let message = format!("{name} is suspended.");
            self.set(SUSPENDED, true, "JobSuspended", &message);
        } else if self.has(SUSPENDED) {
            let message = format!("{name} was resumed.");
            self.set(SUSPENDED, false, "JobResumed", &message);
        }
    }

    /// Sets the conditions that kstatus reads, and with it Flux and Argo.
    pub(super) fn describe_for_tools(&mut self, state: JobState) {
        let (ready, reason, message) = match state {
            JobState::Pending => (false, "Pending", "waiting for partitions or Pods"),
            JobState::Running => (true, "Running", "the job runs"),
            JobState::Completed => (true, "Completed", "the job has completed"),
            JobState::Failed => (false, "Failed", "the job has failed"),
            JobState::Suspended => (false, "Suspended", "spec.suspend is true"),
        };
        self.set(READY, ready, reason, message);
        if state == JobState::Failed {
            self.set(STALLED, true, reason, message);
        } else {
            self.list.retain(|old| old.type_ != STALLED);
        }
    }

    fn has(&self, type_: &str) -> bool {
        self.list.iter().any(|old| old.type_ == type_)
    }

    fn describe_resources(&mut self, input: &StatusInput<'_>, run: &RunStatus) {
        self.describe_partitions(input.facts);
        self.set_problem(PODS_READY, problem_of_pods(input, run));
    }

    fn describe_partitions(&mut self, facts: &Facts) {
        let (waiting, reasons): (Vec<_>, Vec<_>) = facts
            .instances
            .iter()
            .chain(&facts.surge)
            .filter(|instance| !instance.ended())
            .filter_map(|instance| {
                let state = &instance.partition.state;
                let reason = state.unusable_reason()?;
                Some((state, format!("instance {}: {reason}", instance.index)))
            })
            .unzip();
        if waiting.is_empty() {
            let all = "every instance has its partition";
            self.set(PARTITIONS_READY, true, "PartitionsReady", all);
        } else {
            let forming = waiting.into_iter().all(PartitionState::is_forming);
            let reason = if forming {
                "PartitionsForming"
            } else {
                WAITING
            };
            self.set(PARTITIONS_READY, false, reason, &join_reasons(&reasons));
        }
    }

    fn describe_template(&mut self, job: &ValidJob, facts: &Facts) {
        let outdated: Vec<String> = facts.outdated().into_iter().map(str::to_owned).collect();
        let problem = (!outdated.is_empty()).then(|| {
            let message = format!(
                "Pods of an older template, to be replaced (current hash {}): {}",
                job.template.hash,
                join_reasons(&outdated)
            );
            ("RollingOut", message)
        });
        self.set_problem(TEMPLATE_CURRENT, problem);
    }

    /// Sets the reasons for which a finished job still has partitions. Reports their release only
    /// after such a reason: usually it takes a moment, and would cost one more write for each job.
    fn describe_release(&mut self, facts: &Facts) {
        self.set_problem(PODS_READY, None);
        self.list.retain(|old| old.type_ != PARTITIONS_READY);
        let reasons: Vec<String> = facts
            .all()
            .filter(|instance| instance.partition.uid.is_some())
            .map(|instance| retention_reason(facts, instance))
            .collect();
        if reasons.is_empty() {
            if self.has(PARTITIONS_RELEASED) {
                let all = "every partition of the job was released";
                self.set(PARTITIONS_RELEASED, true, "PartitionsReleased", all);
            }
        } else {
            self.set(
                PARTITIONS_RELEASED,
                false,
                "PartitionsInUse",
                &join_reasons(&reasons),
            );
        }
    }
}

/// Returns the reason and the message of the first kind of problem that Pods have.
fn problem_of_pods(input: &StatusInput<'_>, run: &RunStatus) -> Option<(&'static str, String)> {
    let facts = input.facts;
    let pods: Vec<String> = input
        .obstacles
        .iter()
        .map(ToString::to_string)
        .chain(pod_problems(facts, run))
        .chain(launcher_waits(input.job, facts))
        .collect();
    let failures: Vec<String> = worker_failures(facts).collect();
    if !failures.is_empty() {
        return Some((WORKER_FAILED, join_reasons(&failures)));
    }
    if facts.deadlines.in_quota_backoff {
        return Some(("PodsRefused", super::run::quota_backoff_message(facts)));
    }
    if !pods.is_empty() {
        return Some(("PodsWaiting", join_reasons(&pods)));
    }
    if let Some(message) = super::starts::release_message(facts, run) {
        return Some(("PodsNotStarted", message.to_owned()));
    }
    if is_starting_in_queue(input) {
        let message = "Pods of the job have not started yet".to_owned();
        return Some((PODS_STARTING, message));
    }
    let containers: Vec<String> = waiting_containers(facts).collect();
    (!containers.is_empty()).then(|| (CONTAINERS_WAITING, join_reasons(&containers)))
}

/// Whether Pods of an admitted job have not started. A job without a launcher runs in its status
/// from the creation of its Pods, as in Graphcore's operator, but Kueue's `waitForPodsReady` must
/// know better. For other jobs it would be a write without a reader.
fn is_starting_in_queue(input: &StatusInput<'_>) -> bool {
    let instances = input.facts.instances.iter();
    let mut workers = instances
        .filter(|instance| !instance.ended() && instance.partition.state.placed().is_some())
        .flat_map(|instance| &instance.workers);
    input.job.is_admitted
        && input.job.launcher.is_none()
        && workers.any(|worker| !worker.state.started())
}

/// Returns the failures of workers while others of the job run. Those of a job that has ended are
/// its end.
pub(super) fn worker_failures(facts: &Facts) -> impl Iterator<Item = String> {
    let instances = facts.instances.iter();
    let failures = instances.flat_map(|instance| match instance.instance_end() {
        Some(end) => end.failure.into_iter().collect(),
        None => instance
            .failures()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
    });
    failures.map(|failure| format!("worker failed, and others run: {failure}"))
}

/// Returns the reason for which a finished job still has a partition.
fn retention_reason(facts: &Facts, instance: &Instance) -> String {
    let partition = instance
        .partition
        .state
        .id()
        .unwrap_or(&instance.partition.name);
    match instance
        .workers
        .iter()
        .chain(std::iter::once(&facts.launcher))
        .find(|member| member.live())
    {
        Some(user) => format!(
            "partition {partition} is kept as long as Pod {} lives (spec.cleanPodPolicy: Workers or \
             All deletes it at the end of a job)",
            user.name
        ),
        None => instance
            .partition
            .state
            .unusable_reason()
            .unwrap_or_else(|| format!("partition {partition} is being released")),
    }
}

fn join_reasons(reasons: &[String]) -> String {
    let mut text = reasons
        .iter()
        .take(REASONS_MAX)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join("; ");
    if reasons.len() > REASONS_MAX {
        // Writing to a String cannot fail.
        let _ = write!(text, "; and {} more", reasons.len() - REASONS_MAX);
    }
    text
}
