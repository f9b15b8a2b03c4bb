//! Pure: one partition, its owner, and the owner's Pods.

use ipu_api::ipujob_status::IPUJobStatus;
use ipu_api::ipupartition::{DecidedBy, IPUPartition, IPUPartitionStatus};
use ipu_api::labels::PARTITION_ID_LABEL;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::core::DynamicObject;
use serde::Serialize;

use super::state::{self, State};
use crate::cluster::{Cluster, Kind};
use crate::pods::{self, Cause};
use crate::projection::{Owner, Partition};
use crate::shown::shown;
use crate::view::job_state;

/// Most reasons, attempts and conditions that are shown.
const LINES_MAX: usize = 300;

/// Data around a partition.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// The IPUJob that owns it. `None`: it is gone, not readable, or the owner is of another kind.
    pub job: Option<DynamicObject>,
    /// The Pods of the owner.
    pub pods: Vec<Pod>,
    /// Whether the owner has more Pods than these.
    pub has_more_pods: bool,
    /// Unreadable data, in sentences.
    pub not_shown: Vec<String>,
}

/// A partition with all its data.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Detail {
    /// Name of the IPUPartition.
    pub name: String,
    /// Its state.
    pub state: State,
    /// `status.phase`.
    pub phase: String,
    /// Index of the partition among those of its owner.
    pub slot: u32,
    /// Its IPUs.
    pub ipus: u32,
    /// Number of Pods that share it.
    pub gcds: u32,
    /// Creation time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// The V-IPU controller that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// Its id there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_id: Option<String>,
    /// The policy that chose the V-IPU controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// Its last message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The reason of each V-IPU controller, if it waits.
    pub waiting: Vec<Line>,
    /// Attempts that may have left something on a V-IPU controller.
    pub attempts: Vec<Line>,
    /// Its conditions.
    pub conditions: Vec<Line>,
    /// Its owner.
    pub owner: OwnerDetail,
    /// Missing parts of the view, in sentences.
    pub not_shown: Vec<String>,
}

/// A reason, an attempt or a condition: what it is about, its state, and a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// A V-IPU controller, or the type of a condition.
    pub about: String,
    /// Its state, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The explanation.
    pub message: String,
    /// The time of the last change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// The owner of a partition.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OwnerDetail {
    /// Kind, namespace and name.
    #[serde(flatten)]
    pub owner: Owner,
    /// Its UID, which labels its Pods.
    pub uid: String,
    /// Its status, if it is an IPUJob that the user may read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobDetail>,
    /// Its Pods.
    pub pods: Pods,
}

/// The status of an IPUJob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobDetail {
    /// Its state.
    pub state: String,
    /// Its last message.
    pub message: String,
    /// Its conditions.
    pub conditions: Vec<Line>,
}

/// The Pods of an owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pods {
    /// The Pods by name.
    pub rows: Vec<PodDetail>,
    /// Whether there are more.
    pub has_more: bool,
}

/// A Pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodDetail {
    /// Its name.
    pub name: String,
    /// `status.phase`, or `Terminating`.
    pub phase: String,
    /// Its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Whether it uses this partition.
    pub uses_partition: bool,
    /// Reason why it does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

/// A partition as it was read, with the data around it.
pub fn detail(
    cluster: &Cluster,
    partition: &IPUPartition,
    around: &Around,
    now: Timestamp,
) -> Detail {
    let kept = Partition::new(partition);
    let empty = IPUPartitionStatus::default();
    let status = partition.status.as_ref().unwrap_or(&empty);
    let decided_by = status.attempts.iter().rev();
    let mut decided_by = decided_by.filter_map(|one| one.decided_by.as_ref());
    let mut not_shown = cluster.not_shown(&[Kind::Jobs], now);
    not_shown.extend(around.not_shown.iter().cloned());
    Detail {
        state: state::of(&kept, job_state(cluster, &kept)),
        phase: format!("{:?}", status.phase),
        slot: partition.spec.slot,
        ipus: partition.spec.ipus,
        gcds: partition.spec.gcds,
        created: kept.created,
        decided_by: decided_by.next().map(decision),
        waiting: waiting(status),
        attempts: attempts(status),
        conditions: conditions(status),
        owner: OwnerDetail {
            uid: kept.owner.uid.clone(),
            job: around.job.as_ref().map(job),
            pods: pods(around, kept.partition_id.as_deref()),
            owner: kept.owner,
        },
        name: kept.name,
        controller: kept.controller,
        partition_id: kept.partition_id,
        message: kept.message,
        not_shown,
    }
}

fn decision(decided_by: &DecidedBy) -> String {
    match &decided_by.digest {
        Some(digest) => shown(&format!("{} ({digest})", decided_by.policy)),
        None => shown(&decided_by.policy),
    }
}

fn waiting(status: &IPUPartitionStatus) -> Vec<Line> {
    let reasons = status.waiting.iter().take(LINES_MAX);
    reasons
        .map(|one| Line {
            about: shown(&one.controller),
            state: None,
            message: shown(&one.reason),
            since: None,
        })
        .collect()
}

fn attempts(status: &IPUPartitionStatus) -> Vec<Line> {
    let attempts = status.attempts.iter().rev().take(LINES_MAX);
    attempts
        .map(|one| Line {
            about: shown(&one.controller.name),
            state: Some(format!("{:?}", one.outcome)),
            message: shown(&match &one.reason {
                Some(reason) => format!("{}: {reason}", one.id),
                None => one.id.clone(),
            }),
            since: one.started.as_ref().map(|time| time.0),
        })
        .collect()
}

fn conditions(status: &IPUPartitionStatus) -> Vec<Line> {
    let conditions = status.conditions.iter().take(LINES_MAX);
    conditions
        .map(|one| Line {
            about: shown(&one.type_),
            state: Some(shown(&one.status)),
            message: sentence(&one.reason, &one.message),
            since: Some(one.last_transition_time.0),
        })
        .collect()
}

fn sentence(reason: &str, message: &str) -> String {
    match (reason, message) {
        ("", message) => shown(message),
        (reason, "") => shown(reason),
        (reason, message) => shown(&format!("{reason}: {message}")),
    }
}

fn job(object: &DynamicObject) -> JobDetail {
    let status = object.data.get("status").cloned();
    let status = status.and_then(|status| serde_json::from_value::<IPUJobStatus>(status).ok());
    let status = status.unwrap_or_default();
    let conditions = status.conditions.iter().take(LINES_MAX);
    let conditions = conditions.map(|one| Line {
        about: shown(&one.type_),
        state: Some(shown(&one.status)),
        message: sentence(&one.reason, &one.message),
        since: one.last_transition_time.as_ref().map(|time| time.0),
    });
    JobDetail {
        state: format!("{:?}", status.launcher_status),
        message: shown(&status.last_message),
        conditions: conditions.collect(),
    }
}

fn pods(around: &Around, partition_id: Option<&str>) -> Pods {
    let row = |pod: &Pod| {
        let id = pod.labels().get(PARTITION_ID_LABEL);
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        PodDetail {
            name: shown(&pod.name_any()),
            phase: pods::phase(pod),
            node: node.map(shown),
            uses_partition: id.is_some() && id.map(String::as_str) == partition_id,
            cause: pods::cause(pod),
        }
    };
    let mut rows: Vec<_> = around.pods.iter().map(row).collect();
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    Pods {
        rows,
        has_more: around.has_more_pods,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::view::fixture::{cluster, job as job_object, now, partition_object, placed};

    fn pod(name: &str, id: &str, reason: &str) -> Pod {
        let value = json!({
            "metadata": {"name": name, "labels": {"graphcore.ai/partition-id": id}},
            "spec": {"containers": [], "nodeName": "node1"},
            "status": {"phase": "Pending", "containerStatuses": [{
                "name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": reason}},
            }]},
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_partition_leads_to_its_job_and_its_pods() {
        let mut status = placed("pod1", "Ready");
        status["attempts"][0]["decidedBy"] = json!({"policy": "best-fit", "digest": "sha256:00"});
        let object = partition_object("a/train", 4, &status);
        let partition = serde_json::from_value(object.clone()).unwrap();
        let mut owner = job_object("a/train", "Running");
        owner["status"]["desiredReplicas"] = json!(1);
        owner["status"]["lastMessage"] = json!("all Pods run");
        let known = cluster(Vec::new(), vec![object], vec![owner.clone()]);
        let around = Around {
            job: Some(serde_json::from_value(owner).unwrap()),
            pods: vec![
                pod("train-worker-1", "p-2", "PodInitializing"),
                pod("train-worker-0", "p-1", "ImagePullBackOff"),
            ],
            has_more_pods: true,
            not_shown: vec!["the events: forbidden".to_owned()],
        };
        let shown = serde_json::to_value(detail(&known, &partition, &around, now())).unwrap();
        assert_eq!(shown["state"], "running");
        assert_eq!(shown["decidedBy"], "best-fit (sha256:00)");
        assert_eq!(shown["attempts"][0]["about"], "pod1:8090");
        let expected = json!({
            "kind": "IPUJob", "namespace": "a", "name": "train", "uid": "a/train",
            "job": {"state": "Running", "message": "all Pods run", "conditions": []},
            "pods": {
                "rows": [
                    {
                        "name": "train-worker-0", "phase": "Pending", "node": "node1",
                        "usesPartition": true, "cause": {"reason": "ImagePullBackOff"},
                    },
                    {
                        "name": "train-worker-1", "phase": "Pending", "node": "node1",
                        "usesPartition": false,
                    },
                ],
                "hasMore": true,
            },
        });
        assert_eq!(shown["owner"], expected);
        assert_eq!(shown["notShown"], json!(["the events: forbidden"]));
    }
}
