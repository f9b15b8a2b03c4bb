//! Pure: builds the events of a job from its writes and from the changes of its status.

use ipu_api::ipujob_status::{IPUJobStatus, JobCondition};
use ipu_runtime::events::{Event, normal, warning};

use super::conditions::WAITING;
use super::{Applied, Obstacle};
use crate::job_conditions::{
    FAILED, PARTITIONS_READY, PODS_READY, PODS_STARTING, RESTARTING, SUCCEEDED, SUSPENDED,
    WORKER_FAILED,
};
use crate::lost_node::LostPod;
use crate::plan::{CleanUp, Plan};

/// Maximum number of Pods that one event names.
const NAMES_MAX: usize = 4;

/// Returns the events of the writes, in their order.
pub fn write_events(plan: &Plan, applied: &Applied) -> Vec<Event> {
    let mut events = Vec::new();
    let blocked: Vec<&str> = applied.obstacles.iter().map(Obstacle::object).collect();
    let created = plan.create_pods.iter().filter(|_| !applied.blocked);
    let created = created.filter_map(|pod| pod.metadata.name.as_deref());
    let created: Vec<&str> = created
        .filter(|name| !blocked.contains(&format!("Pod {name}").as_str()))
        .collect();
    events.extend(pods_event(
        "SuccessfulCreate",
        "Create",
        "created",
        &created,
    ));
    let deleted = plan.delete_pods.iter();
    let deleted = deleted.map(|deletion| deletion.name.as_str());
    let deleted: Vec<&str> = deleted.filter(|name| !is_cleaned(plan, name)).collect();
    events.extend(pods_event(
        "SuccessfulDelete",
        "Delete",
        "deleted",
        &deleted,
    ));
    for pod in &plan.end_pods {
        let name = &pod.name;
        let note = format!("ended the sidecars of Pod {name}");
        events.push(normal("SidecarsEnded", "End", note).about(name));
    }
    for reset in &plan.reset_partitions {
        events.push(normal(
            "PartitionReset",
            "Reset",
            format!(
                "requested a reset of {} before other Pods use it",
                reset.name
            ),
        ));
    }
    for deletion in &plan.delete_partitions {
        events.push(normal(
            "PartitionReleased",
            "Release",
            release_note(plan, &deletion.name),
        ));
    }
    events
}

/// Whether the event of the release of its partition reports the deletion of this Pod.
fn is_cleaned(plan: &Plan, pod: &str) -> bool {
    let clean_up = plan.clean_up.as_ref();
    clean_up.is_some_and(|clean_up| clean_up.workers.contains(pod))
}

fn release_note(plan: &Plan, partition: &str) -> String {
    let released = format!("released {partition}, which no Pod uses any more");
    match &plan.clean_up {
        Some(CleanUp { policy, .. }) => {
            format!("{released}; deleted its Pods (cleanPodPolicy: {policy:?})")
        }
        None => released,
    }
}

/// Returns one event for all Pods of the same action, because a job may have hundreds of Pods.
fn pods_event(
    reason: &'static str,
    action: &'static str,
    done: &str,
    names: &[&str],
) -> Option<Event> {
    match names {
        [] => None,
        [name] => Some(normal(reason, action, format!("{done} Pod {name}")).about(name)),
        names if names.len() <= NAMES_MAX => {
            let note = format!("{done} Pods {}", names.join(", "));
            Some(normal(reason, action, note))
        }
        names => {
            let (named, others) = names.split_at(NAMES_MAX);
            let note = format!("{done} Pods {} and {} more", named.join(", "), others.len());
            Some(normal(reason, action, note))
        }
    }
}

/// Returns the events of changed conditions.
pub fn status_events(old: &IPUJobStatus, new: &IPUJobStatus) -> Vec<Event> {
    let changed_message = |type_: &str, to: &str| {
        let now = find(new, type_).filter(|condition| condition.status == to)?;
        let before = find(old, type_);
        let same = before.is_some_and(|before| {
            // Each restart has an event, even if the job did not run in between.
            let compares_status = to == "True" && type_ != RESTARTING;
            before.status == to && (compares_status || before.message == now.message)
        });
        (!same).then(|| now.message.clone())
    };
    let mut events = Vec::new();
    // Once for each wait. The status has the free capacity, which changes all the time.
    let waits = |status| find(status, PARTITIONS_READY).filter(|now| now.reason == WAITING);
    if let (None, Some(now)) = (waits(old), waits(new)) {
        events.push(normal(WAITING, "Place", now.message.clone()));
    }
    events.extend(pods_problem(old, new));
    if let Some(note) = changed_message(RESTARTING, "True") {
        events.push(warning("IPUJobRestarting", "Restart", note));
    }
    let resets = [old, new].map(|status| status.automatic_resets.unwrap_or(0));
    if resets[1] > resets[0] {
        let note = format!(
            "the V-IPU controller reset a partition of the job by itself, {} times by now",
            resets[1]
        );
        events.push(warning("AutomaticReset", "Reset", note));
    }
    if let Some(note) = changed_message(SUSPENDED, "True") {
        events.push(normal("JobSuspended", "Suspend", note));
    }
    if let Some(note) = changed_message(SUSPENDED, "False") {
        events.push(normal("JobResumed", "Resume", note));
    }
    if let Some(note) = changed_message(SUCCEEDED, "True") {
        events.push(normal("IPUJobSucceeded", "Reconcile", note));
    }
    if let Some(note) = changed_message(FAILED, "True") {
        events.push(warning("IPUJobFailed", "Reconcile", note));
    }
    events
}

/// Returns the event of a problem of Pods: once for each wait, because the messages of the
/// scheduler and of a quota change all the time, and once for each failed worker.
fn pods_problem(old: &IPUJobStatus, new: &IPUJobStatus) -> Option<Event> {
    let is_problem = |now: &&JobCondition| now.status == "False" && now.reason != PODS_STARTING;
    let problem = |status| find(status, PODS_READY).filter(is_problem);
    let (before, now) = (problem(old), problem(new)?);
    let is_failure = now.reason == WORKER_FAILED;
    let is_same = before.is_some_and(|before| {
        before.reason == now.reason && (!is_failure || before.message == now.message)
    });
    let reason = if is_failure {
        WORKER_FAILED
    } else {
        "PodsWaiting"
    };
    (!is_same).then(|| warning(reason, "Reconcile", now.message.clone()))
}

fn find<'a>(status: &'a IPUJobStatus, type_: &str) -> Option<&'a JobCondition> {
    status
        .conditions
        .iter()
        .find(|condition| condition.type_ == type_)
}

/// Returns the event of a force-deleted Pod.
pub fn pod_force_deleted(lost: &LostPod) -> Event {
    let LostPod { pod, node, since } = lost;
    let note = format!(
        "deleted Pod {} by force: it should have ended, and its node {node} has been unreachable \
         since {since}",
        pod.name
    );
    warning("NodeLost", "Delete", note).about(&pod.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(names: &[&str]) -> Option<(String, Option<String>)> {
        let event = pods_event("SuccessfulCreate", "Create", "created", names)?;
        Some((event.note, event.pod))
    }

    #[test]
    fn pods_of_the_same_action_share_an_event() {
        assert_eq!(note(&[]), None);
        let one = note(&["a-worker-0"]).unwrap();
        assert_eq!(one.0, "created Pod a-worker-0");
        assert_eq!(one.1.as_deref(), Some("a-worker-0"));
        let two = note(&["a", "b"]).unwrap();
        assert_eq!(two, ("created Pods a, b".to_owned(), None));
        let six = note(&["a", "b", "c", "d", "e", "f"]).unwrap();
        assert_eq!(six.0, "created Pods a, b, c, d and 2 more");
    }
}
