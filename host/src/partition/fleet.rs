//! The V-IPU controllers as the reconciler meets them: a client for each, and what they have now.

use std::sync::Arc;
use std::time::Duration;

use super::node_labels::NodeLabels;
use super::placing::shortened;
use crate::api::ipupartition::ControllerRef;
use crate::vipu::closed::Closed;
use crate::vipu::inventory::Report;
use crate::vipu::{Inventories, Registry, VipuClient, VipuError};
use crate::wasm::model::ControllerView;

/// How old an inventory may be. What the operator itself changes is told at once; this is for
/// partitions that are made by hand.
const AGE: Duration = Duration::from_secs(2);

/// Every controller of the admin's list, and those that older attempts still name.
#[derive(Debug)]
pub struct Fleet {
    registry: Arc<Registry>,
    inventories: Inventories,
    nodes: NodeLabels,
}

impl Fleet {
    /// A fleet that follows the registry's list, for Pods on these nodes.
    pub fn new(registry: Arc<Registry>, nodes: NodeLabels) -> Self {
        Fleet {
            nodes,
            inventories: Inventories::new(registry.clone()),
            registry,
        }
    }

    /// The registry that it follows.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The nodes on which Pods reach the IPUs.
    pub fn nodes(&self) -> &NodeLabels {
        &self.nodes
    }

    /// The admin's list as it is now.
    pub fn controllers(&self) -> Vec<ControllerRef> {
        self.registry.known().entries.clone()
    }

    /// Those of them that take nothing new.
    pub fn closed(&self) -> Closed {
        self.registry.known().closed.clone()
    }

    /// A client of one controller, in the list or not: what was made on one that has left the list
    /// has to be removed there.
    pub fn client(&self, controller: &ControllerRef) -> Result<VipuClient, VipuError> {
        self.registry.client(controller)
    }

    /// What every controller of the list has now, in the list's order.
    pub async fn views(&self) -> Vec<ControllerView> {
        let reports = self.inventories.all(AGE).await;
        let reports = reports.into_iter();
        reports.map(|report| view(report, &self.nodes)).collect()
    }

    /// A partition of so many IPUs was made on this controller.
    pub(super) fn took(&self, controller: &ControllerRef, ipus: u32) {
        self.inventories.took(&controller.name, ipus);
    }

    /// Something was asked of or removed from this controller.
    pub(super) fn changed(&self, controller: &ControllerRef) {
        self.inventories.forget(&controller.name);
    }
}

fn view(report: Report, nodes: &NodeLabels) -> ControllerView {
    let (inventory, unreachable) = match report.inventory {
        Ok(inventory) => (inventory, None),
        Err(error) => (Default::default(), Some(shortened(&error.reason()))),
    };
    let ControllerRef {
        name,
        label_key,
        label_value,
        ..
    } = report.controller;
    ControllerView {
        has_nodes: nodes.any_has(&label_key, &label_value),
        name,
        label_key,
        label_value,
        unreachable,
        total_ipus: inventory.total,
        used_ipus: inventory.used,
        largest_free: inventory.largest_free(),
    }
}
