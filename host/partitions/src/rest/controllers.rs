//! Pure: the answers of `/controllers`: the state of each V-IPU controller for everybody, and the owners of its partitions for
//! users who may list IPUPartitions.

use std::collections::{BTreeMap, BTreeSet};

use ipu_api::ipupartition::{AttemptOutcome, IPUPartition, PartitionOwner, PartitionPhase};
use schemars::JsonSchema;
use serde::Serialize;
use vipu_client::cordon::CordonState;
use vipu_client::failure_stats::FailureStats;

use crate::cache::Brief;
use crate::controller_pool::ControllerState;
use crate::eviction::attempts;

/// Most partitions of others in the answer about one controller.
const OTHERS_MAX: usize = 256;

/// One V-IPU controller of the admin's list, without its partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
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
    /// Why it does not answer.
    pub reason: Option<String>,
    /// IPUs that it has, used or not; 0 if it does not answer.
    pub total_ipus: u32,
    /// IPUs in partitions of the operator and of others.
    pub used_ipus: u32,
    /// IPUs in partitions of others.
    pub used_by_others: u32,
    /// The largest partition that could be created now, in IPUs: an estimate.
    pub largest_free: u32,
    /// Version of its server, if it reports one.
    pub server_version: Option<String>,
    /// Whether the admin has cordoned or drained it.
    pub cordon_state: Option<CordonState>,
    /// How many partitions of the operator it has.
    pub partition_count: usize,
    /// How many other partitions it has.
    pub other_count: usize,
    /// Its failures of a day, as the replica that answers has seen them: the leader sees most.
    pub failure_stats: FailureStats,
}

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

/// How many partitions of the operator a controller has, and their IPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ours {
    partitions: usize,
    ipus: u32,
}

impl Ours {
    fn add(&mut self, ipus: u32) {
        self.partitions += 1;
        self.ipus = self.ipus.saturating_add(ipus);
    }
}

/// The public answer, in the order of the admin's list. It decompresses no object.
pub(super) fn summaries<'a>(
    states: Vec<ControllerState>,
    briefs: impl Iterator<Item = &'a Brief>,
) -> Vec<Summary> {
    let mut ours: BTreeMap<&str, Ours> = BTreeMap::new();
    for brief in briefs {
        for one in &brief.held {
            ours.entry(&one.controller).or_default().add(one.ipus);
        }
    }
    let summaries = states.into_iter().map(|state| {
        let ours = ours.get(state.view.name.as_str()).copied();
        let ours = ours.unwrap_or_default();
        let others = state.listed.len().saturating_sub(ours.partitions);
        summary(state, ours, others)
    });
    summaries.collect()
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

fn summary(state: ControllerState, ours: Ours, other_count: usize) -> Summary {
    let view = state.view;
    let besides = state.withheld.map_or(0, |withheld| withheld.besides);
    Summary {
        used_by_others: view.used_ipus.saturating_sub(besides + ours.ipus),
        name: view.name,
        label_key: view.label_key,
        label_value: view.label_value,
        has_nodes: view.has_nodes,
        reachable: view.unreachable.is_none(),
        reason: view.unreachable,
        total_ipus: view.total_ipus,
        used_ipus: view.used_ipus,
        largest_free: view.largest_free,
        server_version: state.version,
        cordon_state: state.cordon_state,
        partition_count: ours.partitions,
        other_count,
        failure_stats: state.failure_stats,
    }
}
