//! Pure: what decisions about Pods read of an IPUPartition.

use std::collections::BTreeMap;

use ipu_api::ipupartition::{
    ControllerRef, IPUPartition, IPUPartitionStatus, PartitionOwner, PartitionPhase,
};
use ipu_api::labels::{CLAIMED_BY_ANNOTATION, POD_UID_LABEL, WORKLOAD_UID_LABEL};
use ipu_api::naming::partition_object;
use ipu_api::object_ref::ObjectRef;
use ipu_api::partition_conditions::{draining_since, is_being_created, waiting_reasons};
use ipu_runtime::watch_store::version;

/// A V-IPU partition that Pods may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionRef {
    /// Its V-IPU controller.
    pub controller: ControllerRef,
    /// Its id on that controller.
    pub id: String,
}

/// The offer of an IPUPartition to Pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing yet, for these reasons; without a reason, it is on its way.
    Waiting(Vec<String>),
    /// A partition.
    Ready(PartitionRef),
    /// A partition that no new Pod may use now, for this reason.
    Unusable(String),
    /// Nothing ever, for this reason.
    Rejected(String),
    /// A partition that is broken, for this reason.
    Broken(String),
    /// Nothing any more: it is being released.
    Releasing(String),
}

/// Fields of an IPUPartition that decisions read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its version as a number.
    pub version: u64,
    /// Its owner.
    pub owner: PartitionOwner,
    /// Whether it was created for one native Pod alone, which is its owner.
    pub is_of_pod: bool,
    /// Whether it was created for a Pod of the Workload that is its owner.
    pub is_of_workload: bool,
    /// The Pod that has claimed such a partition. From then on it is that Pod's alone.
    pub claim: Option<ObjectRef>,
    /// Its number of IPUs.
    pub ipus: u32,
    /// Its number of GCDs.
    pub gcds: u32,
    /// Labels that its nodes must have.
    pub node_selector: BTreeMap<String, String>,
    /// Id of the V-IPU partition, if there is one.
    pub id: Option<String>,
    /// Its offer.
    pub state: State,
}

impl Partition {
    /// Reads an IPUPartition.
    pub fn of(object: IPUPartition) -> Option<Self> {
        let owner = object.spec.owner;
        let version = version(&object.metadata);
        let labels = object.metadata.labels.unwrap_or_default();
        let annotations = object.metadata.annotations.unwrap_or_default();
        let (name, uid) = (object.metadata.name?, object.metadata.uid?);
        let is_of_workload = labels.contains_key(WORKLOAD_UID_LABEL) && owner.kind == "Workload";
        let claim = labels
            .get(POD_UID_LABEL)
            .zip(annotations.get(CLAIMED_BY_ANNOTATION));
        let claim = claim
            .filter(|_| is_of_workload)
            .map(|(uid, name)| ObjectRef {
                namespace: owner.namespace.as_str().into(),
                name: name.as_str().into(),
                uid: uid.as_str().into(),
            });
        let is_of_pod = labels.contains_key(POD_UID_LABEL)
            && (owner.kind.as_str(), owner.api_version.as_str()) == ("Pod", "v1")
            && name == partition_object(&owner, 0);
        let status = object.status.unwrap_or_default();
        let awaits_reset = object.spec.reset_generation > status.observed_reset_generation;
        let is_deleted = object.metadata.deletion_timestamp.is_some();
        Some(Self {
            name,
            uid,
            version,
            is_of_pod,
            is_of_workload,
            claim,
            owner,
            ipus: object.spec.ipus,
            gcds: object.spec.gcds,
            node_selector: object.spec.options.node_selector,
            state: state(&status, awaits_reset, is_deleted),
            id: status.partition_id,
        })
    }

    /// The native Pod that it was created for, or that has claimed it.
    pub fn pod(&self) -> Option<ObjectRef> {
        let owner = self.is_of_pod.then(|| ObjectRef::of_owner(&self.owner));
        owner.or_else(|| self.claim.clone())
    }
}

fn state(status: &IPUPartitionStatus, awaits_reset: bool, is_deleted: bool) -> State {
    let said = || status.message.clone().unwrap_or_default();
    if is_deleted {
        let mut text = "the partition is being released".to_owned();
        if let Some(reason) = waiting_reasons(status).first() {
            text = format!("{text}: {reason}");
        }
        return State::Releasing(text);
    }
    let partition_ref = status.controller.clone().zip(status.partition_id.clone());
    let partition_ref = partition_ref.map(|(controller, id)| PartitionRef { controller, id });
    match (status.phase, partition_ref) {
        (PartitionPhase::Rejected, _) => State::Rejected(said()),
        (PartitionPhase::Error, _) => State::Broken(said()),
        (PartitionPhase::Ready, Some(_)) if awaits_reset => {
            State::Unusable("the partition is about to be reset".to_owned())
        }
        (PartitionPhase::Ready, Some(_)) if draining_since(status).is_some() => {
            State::Unusable(said())
        }
        (PartitionPhase::Ready, Some(partition_ref)) => State::Ready(partition_ref),
        (PartitionPhase::Resetting, Some(_)) => State::Unusable(said()),
        (PartitionPhase::Creating, _) if is_being_created(status) => State::Waiting(Vec::new()),
        _ => State::Waiting(waiting_reasons(status)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::samples::{partition, partition_ref};

    fn ready() -> serde_json::Value {
        json!({
            "phase": "Ready", "partitionId": "p-web",
            "controller": json!(partition_ref("p-web").controller),
        })
    }

    #[test]
    fn each_phase_offers_what_it_can() {
        let ready = ready();
        let draining = json!([{
            "type": "Draining", "status": "True", "reason": "Drained", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        let mut drained = ready.clone();
        drained["conditions"] = draining;
        drained["message"] = json!("pod1 is drained");
        let creating = json!({
            "phase": "Creating", "message": "on its way",
            "conditions": [{
                "type": "Ready", "status": "False", "reason": "Creating", "message": "on its way",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        });
        let waiting = json!({"waiting": [{"controller": "pod1:8090", "reason": "full"}]});
        let cases = [
            (json!({}), State::Waiting(vec![])),
            (waiting, State::Waiting(vec!["pod1:8090: full".to_owned()])),
            (creating, State::Waiting(vec![])),
            (
                json!({"phase": "Creating", "message": "refused twice"}),
                State::Waiting(vec!["refused twice".to_owned()]),
            ),
            (ready.clone(), State::Ready(partition_ref("p-web"))),
            (drained, State::Unusable("pod1 is drained".to_owned())),
            (
                json!({"phase": "Rejected", "message": "too large"}),
                State::Rejected("too large".to_owned()),
            ),
            (
                json!({"phase": "Error", "message": "a link is down"}),
                State::Broken("a link is down".to_owned()),
            ),
        ];
        for (status, expected) in cases {
            let object = partition(|object| object["status"] = status.clone());
            assert_eq!(Partition::of(object).unwrap().state, expected, "{status}");
        }
    }

    #[test]
    fn a_partition_that_is_about_to_be_reset_or_released_offers_nothing() {
        let ready = ready();
        let reset = partition(|object| {
            object["status"] = ready.clone();
            object["spec"]["resetGeneration"] = json!(1);
        });
        assert!(matches!(
            Partition::of(reset).unwrap().state,
            State::Unusable(_)
        ));
        let deleted = partition(|object| {
            object["status"] = ready.clone();
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        });
        assert!(matches!(
            Partition::of(deleted).unwrap().state,
            State::Releasing(_)
        ));
    }

    #[test]
    fn only_what_the_operator_created_is_of_a_pod() {
        let of = |object| Partition::of(object).unwrap().pod();
        let pod = of(partition(|_| {})).unwrap();
        assert_eq!(
            (&*pod.namespace, &*pod.name, &*pod.uid),
            ("team", "web", "web-uid")
        );
        let changes: [fn(&mut serde_json::Value); 3] = [
            |object| object["metadata"]["labels"] = json!({}),
            |object| object["metadata"]["name"] = json!("by-hand"),
            |object| object["spec"]["owner"]["kind"] = json!("Notebook"),
        ];
        for change in changes {
            assert_eq!(of(partition(change)), None);
        }
    }
}
