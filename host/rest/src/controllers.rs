//! Pure: the answer of `/controllers` for users who may list IPUPartitions: the state of each V-IPU
//! controller, and the owners of its partitions.

use std::collections::{BTreeMap, BTreeSet};

use ipu_api::ipupartition::{AttemptOutcome, IPUPartition, PartitionOwner, PartitionPhase};
use ipu_partitions::controllers::ControllerState;
use ipu_partitions::controllers::summary::{Ours, Summary, summary};
use ipu_placement::drain::attempts;
use schemars::JsonSchema;
use serde::Serialize;

/// Most partitions of others in the answer about one controller.
const OTHERS_MAX: usize = 256;

/// One V-IPU controller of the admin's list, with its partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Controller {
    /// The public part.
    #[serde(flatten)]
    pub summary: Summary,
    /// The operator's partitions on it.
    pub partitions: Vec<HeldPartition>,
    /// The other partitions on it, 256 at most.
    pub others: Vec<Other>,
}

/// A partition of others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Other {
    /// Its id.
    pub id: String,
    /// Its IPUs.
    pub ipus: u32,
}

/// A partition of the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Held")]
pub(super) struct HeldPartition {
    /// Name of the IPUPartition.
    pub name: String,
    /// Id of the partition on the controller.
    pub id: String,
    /// Its owner.
    pub owner: PartitionOwner,
    /// Its IPUs.
    pub ipus: u32,
    /// Phase of the IPUPartition.
    pub phase: PartitionPhase,
}

/// The operator's partitions, by the name of their controller.
#[derive(Debug, Default)]
pub(super) struct Holdings(BTreeMap<String, Vec<HeldPartition>>);

impl Holdings {
    /// Adds the partitions of this object.
    pub(super) fn add(&mut self, partition: &IPUPartition) {
        let Some(status) = &partition.status else {
            return;
        };
        for attempt in attempts(partition, AttemptOutcome::Created) {
            let here = self.0.entry(attempt.controller.name.clone()).or_default();
            here.push(HeldPartition {
                name: partition.metadata.name.clone().unwrap_or_default(),
                id: attempt.id.clone(),
                owner: partition.spec.owner.clone(),
                ipus: partition.spec.ipus,
                phase: status.phase,
            });
        }
    }
}

/// The complete answer, in the order of the admin's list.
pub(super) fn controllers(
    states: Vec<ControllerState>,
    Holdings(mut held): Holdings,
) -> Vec<Controller> {
    let controllers = states.into_iter().map(|state| {
        let partitions = held.remove(&state.view.name).unwrap_or_default();
        let mut ours = Ours::default();
        for one in &partitions {
            ours.add(one.ipus);
        }
        let ids: BTreeSet<&str> = partitions.iter().map(|one| one.id.as_str()).collect();
        let others = state.listed.iter();
        let others: Vec<_> = others
            .filter(|one| !ids.contains(one.id.as_str()))
            .map(|one| Other {
                id: one.id.clone(),
                ipus: one.ipus,
            })
            .collect();
        Controller {
            summary: summary(state, ours, others.len()),
            others: others.into_iter().take(OTHERS_MAX).collect(),
            partitions,
        }
    });
    controllers.collect()
}
