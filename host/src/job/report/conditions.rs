//! Pure: the conditions of a job: those that users of the original know, and those that say why.

use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    FAILED, Obstacle, PARTITIONS_READY, PARTITIONS_RELEASED, PENDING, PODS_READY, RUNNING,
    SUCCEEDED, TEMPLATE_CURRENT,
};
use crate::api::ipujob_status::{JobCondition, JobState};
use crate::job::facts::pod::PodState;
use crate::job::facts::{Facts, Instance, Member};
use crate::job::phase::{Outcome, Phase};
use crate::job::validate::ValidJob;

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

    /// Writes everything that there is to say of the job.
    pub(super) fn describe(
        &mut self,
        job: &ValidJob,
        facts: &Facts,
        phase: &Phase,
        state: JobState,
        obstacles: &[Obstacle],
    ) {
        let name = format!("IPUJob {}/{}", job.namespace, job.name);
        if state != JobState::Failed {
            // A job that could not be carried out, and now can.
            self.list.retain(|old| old.type_ != FAILED);
        }
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
            JobState::Completed | JobState::Failed => {
                self.over(PENDING);
                self.over(RUNNING);
            }
        }
        match phase {
            Phase::Ended(Outcome::Completed) => {
                let message = format!("{name} successfully completed.");
                self.set(SUCCEEDED, true, "IPUJobSucceeded", &message);
            }
            Phase::Ended(Outcome::Failed(how)) => {
                let message = format!("{name} has failed: {how}");
                self.set(FAILED, true, "IPUJobFailed", &message);
            }
            Phase::Waiting if state == JobState::Failed => {
                let why = super::rejection(facts).unwrap_or_default();
                let message = format!("{name} can never start: {why}");
                self.set(FAILED, true, "IPUJobUnplaceable", &message);
            }
            Phase::Waiting | Phase::Starting | Phase::Running => {}
            Phase::Finished(_) => self.describe_release(facts),
        }
        if !matches!(phase, Phase::Ended(_) | Phase::Finished(_)) {
            self.describe_resources(facts, obstacles);
        }
        self.describe_template(job, facts);
    }

    fn describe_resources(&mut self, facts: &Facts, obstacles: &[Obstacle]) {
        let waiting: Vec<String> = facts
            .instances
            .iter()
            .filter(|instance| !instance.ended())
            .filter_map(|instance| {
                let why = instance.partition.state.why_not()?;
                Some(format!("instance {}: {why}", instance.index))
            })
            .collect();
        if waiting.is_empty() {
            let all = "every instance has its partition";
            self.set(PARTITIONS_READY, true, "PartitionsReady", all);
        } else {
            let message = listed(&waiting);
            self.set(PARTITIONS_READY, false, "WaitingForPartition", &message);
        }
        let pods: Vec<String> = obstacles
            .iter()
            .map(ToString::to_string)
            .chain(members(facts).filter_map(held_up))
            .collect();
        let complaint = (!pods.is_empty()).then(|| ("PodsWaiting", listed(&pods)));
        self.complain(PODS_READY, complaint);
    }

    fn describe_template(&mut self, job: &ValidJob, facts: &Facts) {
        let complaint = (!facts.outdated.is_empty()).then(|| {
            let message = format!(
                "spec.workers.template (hash {}) is not the one that {} were made from; replacing \
                 workers is not carried out by this version of the operator yet; delete those Pods \
                 or create the job again",
                job.template.hash,
                listed(&facts.outdated)
            );
            ("RollingUpdateNotCarriedOut", message)
        });
        self.complain(TEMPLATE_CURRENT, complaint);
    }

    fn describe_release(&mut self, facts: &Facts) {
        self.complain(PODS_READY, None);
        self.list.retain(|old| old.type_ != PARTITIONS_READY);
        let kept: Vec<String> = facts
            .instances
            .iter()
            .chain(&facts.surplus)
            .filter(|instance| instance.partition.uid.is_some())
            .map(|instance| kept(facts, instance))
            .collect();
        if kept.is_empty() {
            let all = "every partition of the job was given back";
            self.set(PARTITIONS_RELEASED, true, "PartitionsReleased", all);
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

fn members(facts: &Facts) -> impl Iterator<Item = &Member> {
    let workers = facts.instances.iter().flat_map(|found| &found.workers);
    workers.chain(std::iter::once(&facts.launcher))
}

/// Why a Pod does not start, where Kubernetes says so.
fn held_up(member: &Member) -> Option<String> {
    match &member.state {
        PodState::Pending(Some(why)) => Some(format!("Pod {}: {why}", member.name)),
        _ => None,
    }
}

/// Why a partition of a finished job is still there.
fn kept(facts: &Facts, instance: &Instance) -> String {
    let place = instance
        .partition
        .state
        .id()
        .unwrap_or(&instance.partition.name);
    let live = |member: &&Member| member.uid.is_some() && !member.state.ended();
    match instance
        .workers
        .iter()
        .chain(std::iter::once(&facts.launcher))
        .find(live)
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
            .unwrap_or_else(|| format!("partition {place} is being given back")),
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
