//! Pure: the figures of each V-IPU controller, without the owners of its partitions: for
//! `/controllers` and VIPUControllers.

use std::collections::BTreeMap;

use ipu_api::vipu_controller::CordonState;
use schemars::JsonSchema;
use serde::Serialize;
use vipu_client::failure_stats::FailureStats;

use crate::controllers::ControllerState;

/// One V-IPU controller of the admin's list, without its partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
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
    /// Reason why it does not answer.
    pub reason: Option<String>,
    /// IPUs that it has, used or not; 0 if it does not answer.
    pub total_ipus: u32,
    /// IPUs in partitions of the operator and of others.
    pub used_ipus: u32,
    /// IPUs in partitions of others.
    pub used_by_others: u32,
    /// The largest partition that could be created now, in IPUs: an estimate unless `freeIpus` is
    /// known.
    pub largest_free: u32,
    /// Places of the free IPUs, as ranges such as `4-7,16-63`. Missing: the controller does not
    /// report them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_ipus: Option<String>,
    /// Version of its server, if it reports one.
    pub server_version: Option<String>,
    /// Whether the admin has cordoned or drained it.
    pub cordon_state: Option<CordonState>,
    /// Number of its partitions of the operator.
    pub partition_count: usize,
    /// Number of its other partitions.
    pub other_count: usize,
    /// Its failures of a day, as the replica that answers has seen them: the leader sees most.
    pub failure_stats: FailureStats,
}

/// Number of partitions of the operator on a controller, and their IPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ours {
    /// Their number.
    pub partitions: usize,
    /// Their IPUs.
    pub ipus: u32,
}

impl Ours {
    /// Adds a partition of this number of IPUs.
    pub fn add(&mut self, ipus: u32) {
        self.partitions += 1;
        self.ipus = self.ipus.saturating_add(ipus);
    }
}

/// The operator's partitions, by the name of their controller.
pub type OursByController = BTreeMap<String, Ours>;

/// Adds up partitions, each with the name of its controller and its IPUs.
pub fn ours<'a>(partitions: impl Iterator<Item = (&'a str, u32)>) -> OursByController {
    let mut ours = OursByController::new();
    for (controller, ipus) in partitions {
        match ours.get_mut(controller) {
            Some(here) => here.add(ipus),
            None => ours.entry(controller.to_owned()).or_default().add(ipus),
        }
    }
    ours
}

/// The figures of all controllers, in the order of the admin's list.
pub fn summaries(states: Vec<ControllerState>, ours: &OursByController) -> Vec<Summary> {
    let summaries = states.into_iter().map(|state| {
        let ours = ours.get(&state.view.name).copied().unwrap_or_default();
        let others = state.listed.len().saturating_sub(ours.partitions);
        summary(state, ours, others)
    });
    summaries.collect()
}

/// The figures of one controller with this number of other partitions.
pub fn summary(state: ControllerState, ours: Ours, other_count: usize) -> Summary {
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
        free_ipus: state.free_ipus,
        server_version: state.version,
        cordon_state: state.cordon_state,
        partition_count: ours.partitions,
        other_count,
        failure_stats: state.failure_stats,
    }
}
