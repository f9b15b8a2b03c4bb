//! Pure: what `/controllers` answers: what each V-IPU controller has, and whose it is.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::api::ipupartition::{AttemptOutcome, IPUPartition, PartitionOwner, PartitionPhase};
use crate::wasm::model::ControllerView;

/// One V-IPU controller of the admin's list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Controller {
    /// `host:port`.
    pub name: String,
    /// Key of the label of the nodes that reach it.
    pub label_key: String,
    /// Value of that label.
    pub label_value: String,
    /// Whether a node carries that label now.
    pub has_nodes: bool,
    /// Whether it answers now.
    pub reachable: bool,
    /// Why it does not answer, where it does not.
    pub reason: Option<String>,
    /// IPUs that it has, used or not; 0 where it does not answer.
    pub total_ipus: u32,
    /// IPUs in partitions, whoever made them.
    pub used_ipus: u32,
    /// IPUs in partitions that the operator knows nothing of.
    pub used_by_others: u32,
    /// The largest partition that could be made now, in IPUs: an estimate.
    pub largest_free: u32,
    /// The operator's partitions on it.
    pub partitions: Vec<Held>,
}

/// A partition on a controller that the operator made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Held {
    /// Name of the IPUPartition.
    pub name: String,
    /// Id of the partition on the controller.
    pub id: String,
    /// Whose it is.
    pub owner: PartitionOwner,
    /// Its IPUs.
    pub ipus: u32,
    /// Where the IPUPartition stands.
    pub phase: PartitionPhase,
}

/// The answer of `/controllers`, in the admin's order.
pub(super) fn controllers(
    views: Vec<ControllerView>,
    partitions: &[IPUPartition],
) -> Vec<Controller> {
    let mut held = by_controller(partitions);
    let controllers = views.into_iter().map(|view| {
        let partitions = held.remove(&view.name).unwrap_or_default();
        let ours = partitions.iter().map(|one| one.ipus);
        let ours = ours.fold(0, u32::saturating_add);
        Controller {
            used_by_others: view.used_ipus.saturating_sub(ours),
            name: view.name,
            label_key: view.label_key,
            label_value: view.label_value,
            has_nodes: view.has_nodes,
            reachable: view.unreachable.is_none(),
            reason: view.unreachable,
            total_ipus: view.total_ipus,
            used_ipus: view.used_ipus,
            largest_free: view.largest_free,
            partitions,
        }
    });
    controllers.collect()
}

fn by_controller(partitions: &[IPUPartition]) -> BTreeMap<String, Vec<Held>> {
    let mut held: BTreeMap<String, Vec<Held>> = BTreeMap::new();
    for partition in partitions {
        let Some(status) = &partition.status else {
            continue;
        };
        let made = status.attempts.iter();
        for attempt in made.filter(|attempt| attempt.outcome == AttemptOutcome::Created) {
            let here = held.entry(attempt.controller.name.clone()).or_default();
            here.push(Held {
                name: partition.metadata.name.clone().unwrap_or_default(),
                id: attempt.id.clone(),
                owner: partition.spec.owner.clone(),
                ipus: partition.spec.ipus,
                phase: status.phase,
            });
        }
    }
    held
}
