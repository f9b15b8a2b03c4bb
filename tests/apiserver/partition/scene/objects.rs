//! What users and owners do on a scene: want partitions, change them, wait for them, and run Pods on them.

use std::collections::BTreeMap;

use ipu_api::ipupartition::{
    IPUPartition, IPUPartitionSpec, PartitionOptions, PartitionOwner, PartitionPhase,
};
use ipu_api::labels;
use ipu_api::naming;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use tests::wait::{Seen, eventually};

use super::Scene;

impl Scene {
    pub(crate) fn partitions(&self) -> Api<IPUPartition> {
        Api::all(self.client.clone())
    }

    /// Wants a partition for an owner whose kind is not judged by the sweep.
    pub(crate) async fn want(&self, name: &str, ipus: u32) -> IPUPartition {
        self.want_for(notebook(name), ipus).await
    }

    pub(crate) async fn want_for(&self, owner: PartitionOwner, ipus: u32) -> IPUPartition {
        self.want_with(owner, 0, ipus, PartitionOptions::default())
            .await
    }

    pub(crate) async fn want_with(
        &self,
        owner: PartitionOwner,
        slot: u32,
        ipus: u32,
        options: PartitionOptions,
    ) -> IPUPartition {
        let name = naming::partition_object(&owner, slot);
        let spec = IPUPartitionSpec {
            owner,
            slot,
            ipus,
            gcds: 1,
            options,
            owner_metadata: Default::default(),
            reset_generation: 0,
        };
        let object = IPUPartition::new(&name, spec);
        self.partitions()
            .create(&PostParams::default(), &object)
            .await
            .unwrap()
    }

    /// The user changes an object by a merge patch.
    pub(crate) async fn patch(
        &self,
        partition: &IPUPartition,
        change: serde_json::Value,
    ) -> Result<IPUPartition, kube::Error> {
        let (name, params) = (partition.name_any(), PatchParams::default());
        let patch = Patch::Merge(change);
        self.partitions().patch(&name, &params, &patch).await
    }

    pub(crate) async fn delete(&self, partition: &IPUPartition) {
        let name = partition.name_any();
        self.partitions()
            .delete(&name, &DeleteParams::default())
            .await
            .unwrap();
    }

    /// The object once `is_so`.
    pub(crate) async fn once(
        &self,
        partition: &IPUPartition,
        what: &str,
        is_so: impl Fn(&IPUPartition) -> bool,
    ) -> IPUPartition {
        let name = partition.name_any();
        eventually(what, async || {
            let object = self.partitions().get_opt(&name).await.unwrap();
            let state = format!("{:#?}", object.as_ref().map(|object| &object.status));
            object.filter(|object| is_so(object)).ok_or(state)
        })
        .await
    }

    pub(crate) async fn once_in(
        &self,
        partition: &IPUPartition,
        phase: PartitionPhase,
    ) -> IPUPartition {
        let what = format!("{} is {phase:?}", partition.name_any());
        let is_so = |object: &IPUPartition| {
            object
                .status
                .as_ref()
                .is_some_and(|status| status.phase == phase)
        };
        self.once(partition, &what, is_so).await
    }

    /// The object once its status says why it waits.
    pub(crate) async fn once_waiting(&self, partition: &IPUPartition) -> IPUPartition {
        self.once(partition, "it says why it waits", |object| {
            let status = object.status.as_ref();
            status.is_some_and(|status| !status.waiting.is_empty())
        })
        .await
    }

    pub(crate) async fn once_gone(&self, partition: &IPUPartition) {
        let name = partition.name_any();
        eventually(&format!("{name} is gone"), async || {
            let object = self.partitions().get_opt(&name).await.unwrap();
            Seen::when(object.map(|object| object.status), Option::is_none)
        })
        .await;
    }

    /// The note of an event of this reason on an object.
    pub(crate) async fn once_event(&self, name: &str, reason: &str) -> String {
        let events = Api::<Event>::namespaced(self.client.clone(), "default");
        eventually(&format!("{name} has an event {reason}"), async || {
            let list = events.list(&Default::default()).await.unwrap();
            let of_it = list.items.into_iter().filter(|event| {
                let about = event.regarding.as_ref();
                about.is_some_and(|about| about.name.as_deref() == Some(name))
            });
            let (found, others): (Vec<_>, Vec<_>) =
                of_it.partition(|event| event.reason.as_deref() == Some(reason));
            let mut notes = found.into_iter().filter_map(|event| event.note);
            notes.next().ok_or(format!("{others:?}"))
        })
        .await
    }

    /// A Pod that uses partition `id`; nothing runs it.
    pub(crate) async fn start_pod(&self, name: &str, id: &str) -> Api<Pod> {
        let label = (labels::PARTITION_ID_LABEL.to_owned(), id.to_owned());
        self.start_pod_with(ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([label])),
            ..ObjectMeta::default()
        })
        .await
    }

    /// A Pod with this metadata; nothing runs it.
    pub(crate) async fn start_pod_with(&self, metadata: ObjectMeta) -> Api<Pod> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), "default");
        let pod = Pod {
            metadata,
            spec: Some(PodSpec {
                automount_service_account_token: Some(false),
                containers: vec![Container {
                    name: "main".to_owned(),
                    image: Some("none".to_owned()),
                    ..Container::default()
                }],
                ..PodSpec::default()
            }),
            ..Pod::default()
        };
        pods.create(&PostParams::default(), &pod).await.unwrap();
        pods
    }
}

/// An owner whose kind is not judged by the sweep.
pub(crate) fn notebook(name: &str) -> PartitionOwner {
    PartitionOwner {
        api_version: "example.com/v1".to_owned(),
        kind: "Notebook".to_owned(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
    }
}

/// The id that the status offers.
pub(crate) fn id(partition: &IPUPartition) -> String {
    partition
        .status
        .as_ref()
        .unwrap()
        .partition_id
        .clone()
        .unwrap()
}

/// The controller that the status names.
pub(crate) fn controller(partition: &IPUPartition) -> String {
    partition
        .status
        .as_ref()
        .unwrap()
        .controller
        .as_ref()
        .unwrap()
        .name
        .clone()
}
