//! Pure: the conditions of a job: those that users of the original know, and those that say why.

use std::fmt::Write as _;

use ipu_api::ipujob_status::{JobCondition, JobState};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    FAILED, Obstacle, PARTITIONS_READY, PARTITIONS_RELEASED, PENDING, PODS_READY, READY,
    RESTARTING, RUNNING, STALLED, SUCCEEDED, SUSPENDED, Standing, TEMPLATE_CURRENT,
};
use crate::facts::partition::PartitionState;
use crate::facts::pod::PodState;
use crate::facts::{Facts, Instance};
use crate::phase::{Outcome, Phase};
use crate::restart::Next;
use crate::validate::ValidJob;

/// Reason of a job that waits for a partition which something keeps from being made.
pub(super) const WAITING: &str = "WaitingForPartition";

/// Reasons beyond this many are counted, not listed.
const LISTED: usize = 5;

/// The conditions of a job while they are being written, oldest first.
pub struct Conditions {
    list: Vec<JobCondition>,
    now: Time,
}

impl Conditions {
    /// Starts from what the status says already.
    pub fn new(old: &[JobCondition], now: Timestamp) -> Self {
        Self {
            list: old.to_vec(),
            now: Time(now),
        }
    }

    /// The conditions, oldest first.
    pub fn into_vec(self) -> Vec<JobCondition> {
        self.list
    }

    /// Sets a condition. Nothing moves, not even a time, where it says the same already.
    pub fn set(&mut self, type_: &str, status: bool, reason: &str, message: &str) {
        let status = if status { "True" } else { "False" };
        let new = JobCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_update_time: Some(self.now.clone()),
            last_transition_time: Some(self.now.clone()),
        };
        let Some(old) = self.list.iter_mut().find(|old| old.type_ == type_) else {
            self.list.push(new);
            return;
        };
        let same =
            old.status == new.status && old.reason == new.reason && old.message == new.message;
        if same {
            return;
        }
        let transition = if old.status == new.status {
            old.last_transition_time.clone()
        } else {
            new.last_transition_time.clone()
        };
        *old = JobCondition {
            last_transition_time: transition,
            ..new
        };
    }

    /// Turns a condition of the contract to False; it keeps its words and times, as users know it.
    pub fn over(&mut self, type_: &str) {
        if let Some(old) = self.list.iter_mut().find(|old| old.type_ == type_) {
            "False".clone_into(&mut old.status);
        }
    }

    /// A condition that says that something is wrong, where it is; taken out where it is not.
    fn complain(&mut self, type_: &str, complaint: Option<(&str, String)>) {
        match complaint {
            Some((reason, message)) => self.set(type_, false, reason, &message),
            None => self.list.retain(|old| old.type_ != type_),
        }
    }

    /// Writes everything that there is to say of the job. `restarting` says why it starts again,
    /// while it does.
    pub(super) fn describe(
        &mut self,
        standing: &Standing<'_>,
        state: JobState,
        restarting: Option<&str>,
    ) {
        let Standing {
            job, facts, phase, ..
        } = standing;
        let name = format!("IPUJob {}/{}", job.namespace, job.name);
        if state != JobState::Failed {
            // A job that could not be carried out, and now can.
            self.list.retain(|old| old.type_ != FAILED);
        }
        self.describe_progress(&name, state, restarting);
        match phase {
            Phase::Ended(Outcome::Completed) if standing.is_over() => {
                let message = format!("{name} successfully completed.");
                self.set(SUCCEEDED, true, "IPUJobSucceeded", &message);
            }
            Phase::Ended(Outcome::Failed(failure)) if standing.is_over() => {
                let message = format!("{name} has failed: {}", failure.how);
                let reason = match standing.next {
                    Some(Next::Final(Some(reason))) => reason,
                    _ => "IPUJobFailed",
                };
                self.set(FAILED, true, reason, &message);
            }
            Phase::Waiting if state == JobState::Failed => {
                let why = super::rejection(facts).unwrap_or_default();
                let (reason, cannot) = match job.start.refusal() {
                    Some(refusal) => (refusal.reason(), "is not started"),
                    None => ("IPUJobUnplaceable", "can never start"),
                };
                let message = format!("{name} {cannot}: {why}");
                self.set(FAILED, true, reason, &message);
            }
            Phase::Finished(_) => self.describe_release(facts),
            Phase::Suspended
            | Phase::Waiting
            | Phase::Starting
            | Phase::Running
            | Phase::Replaced(_)
            | Phase::Ended(_) => {}
        }
        match phase {
            Phase::Ended(_) | Phase::Finished(_) | Phase::Suspended => {}
            _ => self.describe_resources(facts, standing.obstacles),
        }
        if **phase == Phase::Suspended {
            self.list.retain(|old| old.type_ != PARTITIONS_READY);
            self.complain(PODS_READY, None);
        }
        self.describe_template(job, facts);
        self.describe_for_tools(state);
    }

    fn describe_progress(&mut self, name: &str, state: JobState, restarting: Option<&str>) {
        match state {
            JobState::Pending => {
                let message = format!("{name} is waiting for resources to be ready.");
                self.set(PENDING, true, "IPUJobPending", &message);
                self.over(RUNNING);
            }
            JobState::Running => {
                self.over(PENDING);
                let message = format!("{name} is running.");
                self.set(RUNNING, true, "IPUJobRunning", &message);
            }
            JobState::Completed | JobState::Failed | JobState::Suspended => {
                self.over(PENDING);
                self.over(RUNNING);
            }
        }
        match restarting {
            Some(why) => {
                let message = format!("{name} is restarting: {why}");
                self.set(RESTARTING, true, "IPUJobRestarting", &message);
            }
            None => self.over(RESTARTING),
        }
        if state == JobState::Suspended {
            let message = format!("{name} is suspended.");
            self.set(SUSPENDED, true, "JobSuspended", &message);
        } else if self.has(SUSPENDED) {
            let message = format!("{name} was resumed.");
            self.set(SUSPENDED, false, "JobResumed", &message);
        }
    }

    /// What kstatus, and with it Flux and Argo, reads of any object.
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

    fn describe_resources(&mut self, facts: &Facts, obstacles: &[Obstacle]) {
        let (waiting, reasons): (Vec<_>, Vec<_>) = facts
            .instances
            .iter()
            .chain(&facts.surge)
            .filter(|instance| !instance.ended())
            .filter_map(|instance| {
                let state = &instance.partition.state;
                let why = state.why_not()?;
                Some((state, format!("instance {}: {why}", instance.index)))
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
            self.set(PARTITIONS_READY, false, reason, &listed(&reasons));
        }
        let pods: Vec<String> = obstacles
            .iter()
            .map(ToString::to_string)
            .chain(held_up(facts))
            .collect();
        let complaint = if facts.due.yielding {
            Some(("PodsRefused", super::run::yielding(facts)))
        } else {
            (!pods.is_empty()).then(|| ("PodsWaiting", listed(&pods)))
        };
        self.complain(PODS_READY, complaint);
    }

    fn describe_template(&mut self, job: &ValidJob, facts: &Facts) {
        let outdated: Vec<String> = facts.outdated().into_iter().map(str::to_owned).collect();
        let complaint = (!outdated.is_empty()).then(|| {
            let message = format!(
                "to be replaced by Pods of the template as it is now (hash {}): {}",
                job.template.hash,
                listed(&outdated)
            );
            ("RollingOut", message)
        });
        self.complain(TEMPLATE_CURRENT, complaint);
    }

    /// Says what keeps partitions of a job that has ended, and says that they are given back only after that: mostly
    /// they go within a moment, and a write for each job would say nothing else.
    fn describe_release(&mut self, facts: &Facts) {
        self.complain(PODS_READY, None);
        self.list.retain(|old| old.type_ != PARTITIONS_READY);
        let kept: Vec<String> = facts
            .all()
            .filter(|instance| instance.partition.uid.is_some())
            .map(|instance| kept(facts, instance))
            .collect();
        if kept.is_empty() {
            if self.has(PARTITIONS_RELEASED) {
                let all = "every partition of the job was released";
                self.set(PARTITIONS_RELEASED, true, "PartitionsReleased", all);
            }
        } else {
            self.set(
                PARTITIONS_RELEASED,
                false,
                "PartitionsInUse",
                &listed(&kept),
            );
        }
    }
}

/// What Kubernetes says of each Pod that does not start, or that it takes away.
pub(super) fn held_up(facts: &Facts) -> impl Iterator<Item = String> {
    let members = facts.workers().chain(std::iter::once(&facts.launcher));
    members.filter_map(|member| match &member.state {
        PodState::Pending(Some(why)) => Some(format!("Pod {}: {why}", member.name)),
        PodState::Going { why: Some(why), .. } => {
            Some(format!("Pod {} is being deleted: {why}", member.name))
        }
        PodState::Lost(failure) => Some(format!("lost {failure}")),
        _ => None,
    })
}

/// Why a partition of a finished job is still there.
fn kept(facts: &Facts, instance: &Instance) -> String {
    let place = instance
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
            "partition {place} is kept as long as Pod {} lives (spec.cleanPodPolicy: Workers or \
             All deletes it at the end of a job)",
            user.name
        ),
        None => instance
            .partition
            .state
            .why_not()
            .unwrap_or_else(|| format!("partition {place} is being released")),
    }
}

fn listed(reasons: &[String]) -> String {
    let mut text = reasons
        .iter()
        .take(LISTED)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join("; ");
    if reasons.len() > LISTED {
        // Writing to a String cannot fail.
        let _ = write!(text, "; and {} more", reasons.len() - LISTED);
    }
    text
}
