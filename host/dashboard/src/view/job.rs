//! Pure: one IPUJob: what to do next, and its stages, partitions, Pods and events on one axis of
//! time.

use ipu_api::ipujob_status::{IPUJobStatus, JobState};
use ipu_api::ipupartition::IPUPartition;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt;
use kube::core::DynamicObject;
use serde::Serialize;

use super::lanes::{self, Lane, Mark};
use super::stages::{Stages, stages};
use crate::shown::shown;

/// Most events that are shown.
const MARKS_MAX: usize = 100;

/// What was read of an IPUJob.
#[derive(Clone, Debug)]
pub struct JobObjects {
    /// The IPUJob.
    pub job: DynamicObject,
    /// Its IPUPartitions. `None`: the user may not read them.
    pub partitions: Option<Vec<IPUPartition>>,
    /// Its Pods. `None`: the user may not read them.
    pub pods: Option<Vec<Pod>>,
    /// Events of the job and of its Pods. `None`: the user may not read them.
    pub events: Option<Vec<Event>>,
    /// What was not read, in sentences.
    pub not_shown: Vec<String>,
}

/// An IPUJob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobPage {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID, which labels its Pods.
    pub uid: String,
    /// Its state.
    pub state: JobState,
    /// Its last message.
    pub message: String,
    /// The next thing to do, in sentences.
    pub advice: Vec<String>,
    /// Its creation, where the axis of time begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// Its end. Missing: it has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// Number of restarts.
    pub restarts: i32,
    /// Its stages. Missing: the operator has not counted them yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages: Option<Stages>,
    /// Its partitions by name.
    pub partitions: Vec<Lane>,
    /// Its Pods by name.
    pub pods: Vec<Lane>,
    /// Its events and those of its Pods, the last one first.
    pub events: Vec<Mark>,
    /// Missing parts of the view, in sentences.
    pub not_shown: Vec<String>,
}

/// An IPUJob as it was read. `advice` is the next thing to do.
pub fn job(read: &JobObjects, advice: Vec<String>) -> JobPage {
    let metadata = &read.job.metadata;
    let status = read.job.data.get("status").cloned();
    let status = status.and_then(|status| serde_json::from_value::<IPUJobStatus>(status).ok());
    let status = status.unwrap_or_default();
    let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
    let state = status.launcher_status;
    let partitions = read.partitions.iter().flatten();
    let pods = read.pods.iter().flatten();
    JobPage {
        namespace: shown(metadata.namespace.as_deref().unwrap_or_default()),
        name: shown(&read.job.name_any()),
        uid: shown(metadata.uid.as_deref().unwrap_or_default()),
        state,
        message: shown(&status.last_message),
        advice,
        created,
        ended: status.completion_time.as_ref().map(|time| time.0),
        restarts: status.restart_count.unwrap_or_default(),
        stages: status
            .accounting
            .as_ref()
            .zip(created)
            .map(|(accounting, created)| stages(accounting, created)),
        partitions: by_name(partitions.map(|partition| lanes::partition(partition, state))),
        pods: by_name(pods.map(lanes::pod)),
        events: marks(read),
        not_shown: read.not_shown.clone(),
    }
}

fn by_name(lanes: impl Iterator<Item = Lane>) -> Vec<Lane> {
    let mut lanes: Vec<_> = lanes.collect();
    lanes.sort_by(|a, b| a.name.cmp(&b.name));
    lanes
}

/// The events of the job and of those of its Pods that exist.
fn marks(read: &JobObjects) -> Vec<Mark> {
    let uids = read.pods.iter().flatten().map(|pod| &pod.metadata.uid);
    let uids: Vec<_> = uids.chain([&read.job.metadata.uid]).flatten().collect();
    let is_own = |event: &&Event| {
        let uid = event.involved_object.uid.as_ref();
        uid.is_some_and(|uid| uids.contains(&uid))
    };
    let events = read.events.iter().flatten().filter(is_own);
    let mut marks: Vec<_> = events.filter_map(lanes::mark).collect();
    marks.sort_by(|a, b| {
        let by_time = b.time.cmp(&a.time);
        by_time.then_with(|| a.object.cmp(&b.object))
    });
    marks.truncate(MARKS_MAX);
    marks
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::view::fixture::{job as job_object, partition_object, placed};

    fn event(uid: &str, minute: u32) -> Event {
        let object = json!({
            "metadata": {}, "involvedObject": {"kind": "Pod", "name": uid, "uid": uid},
            "reason": "Scheduled", "lastTimestamp": format!("2026-01-02T12:{minute:02}:00Z"),
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_job_has_its_partitions_its_pods_and_their_events_alone() {
        let mut object = job_object("a/train", "Running");
        object["metadata"]["creationTimestamp"] = json!("2026-01-02T12:00:00Z");
        object["status"]["desiredReplicas"] = json!(1);
        object["status"]["lastMessage"] = json!("");
        object["status"]["accounting"] = json!({
            "until": "2026-01-02T12:00:30Z", "waiting": 30, "current": "forming",
        });
        let pod: Value = json!({"metadata": {"name": "train-worker-0", "uid": "pod"}});
        let partition = partition_object("a/train", 4, &placed("pod1", "Ready"));
        let read = JobObjects {
            job: serde_json::from_value(object).unwrap(),
            partitions: Some(vec![serde_json::from_value(partition).unwrap()]),
            pods: Some(vec![serde_json::from_value(pod).unwrap()]),
            events: Some(vec![
                event("pod", 1),
                event("a/train", 2),
                event("other", 3),
            ]),
            not_shown: Vec::new(),
        };
        let page = job(&read, vec!["wait".to_owned()]);
        assert_eq!((&*page.namespace, &*page.name), ("a", "train"));
        assert_eq!(page.stages.unwrap().spans.len(), 2);
        assert_eq!(page.partitions[0].name, "a.train-0");
        assert_eq!(page.partitions[0].state, "running");
        assert_eq!(page.pods[0].name, "train-worker-0");
        let marks: Vec<_> = page.events.iter().map(|mark| &*mark.object).collect();
        assert_eq!(marks, ["Pod a/train", "Pod pod"]);
    }
}
