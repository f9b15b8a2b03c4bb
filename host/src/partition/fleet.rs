//! The V-IPU controllers as the reconciler meets them: a client for each, and what they have now.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use super::node_labels::NodeLabels;
use super::placing::{self, shortened};
use crate::api::ipupartition::{ControllerRef, WaitingReason};
use crate::vipu::closed::{Closed, Closure};
use crate::vipu::inventory::Report;
use crate::vipu::model::ListedPartition;
use crate::vipu::troubles::{DeviceTroubles, Ledger, Troubles};
use crate::vipu::{Inventories, Registry, Truth, VipuClient, VipuError};
use crate::wasm::model::ControllerView;

/// How old an inventory may be. What the operator itself changes is told at once; this is for
/// partitions that are made by hand.
const AGE: Duration = Duration::from_secs(2);

/// All that is known of one controller.
#[derive(Clone, Debug)]
pub struct Look {
    /// What it has, as placement sees it.
    pub view: ControllerView,
    /// Version of its server, where it tells one.
    pub version: Option<String>,
    /// The partitions on it, whoever made them.
    pub listed: Arc<[ListedPartition]>,
    /// Whether the admin has closed it.
    pub closure: Option<Closure>,
    /// What has gone wrong on it within the last day, as far as this process has seen.
    pub troubles: Troubles,
}

/// What the controllers of the list have, in its order: those that take something new, and those that
/// the admin has closed.
#[derive(Clone, Debug)]
pub struct Divided {
    /// Those that take something new.
    pub open: Vec<ControllerView>,
    /// Those that do not.
    pub shut: Vec<ControllerView>,
    closed: Closed,
}

impl Divided {
    /// Why nothing is made on those that are shut.
    pub fn shut_out(&self) -> impl Iterator<Item = WaitingReason> {
        let shut = self.shut.iter();
        shut.map(|view| placing::shut_out(view, &self.closed))
    }
}

/// Every controller of the admin's list, and those that older attempts still name.
#[derive(Debug)]
pub struct Fleet {
    registry: Arc<Registry>,
    inventories: Inventories,
    nodes: NodeLabels,
    troubles: Mutex<Ledger>,
}

impl Fleet {
    /// A fleet that follows the registry's list, for Pods on these nodes.
    pub fn new(registry: Arc<Registry>, nodes: NodeLabels) -> Self {
        Fleet {
            nodes,
            inventories: Inventories::new(registry.clone()),
            troubles: Mutex::default(),
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

    /// All that is known of every controller of the list, in its order.
    pub async fn looks(&self) -> Vec<Look> {
        let closed = self.closed();
        let reports = self.reports().await.into_iter();
        reports.map(|report| self.look(report, &closed)).collect()
    }

    /// The same of each controller that tells within `limit`.
    pub async fn looks_within(&self, limit: Duration) -> Vec<(ControllerRef, Option<Look>)> {
        let closed = &self.closed();
        let looks = self.controllers().into_iter().map(async |controller| {
            let report = self.inventories.of(&controller, AGE);
            let report = tokio::time::timeout(limit, report).await.ok();
            (controller, report.map(|report| self.look(report, closed)))
        });
        futures::future::join_all(looks).await
    }

    fn look(&self, report: Report, closed: &Closed) -> Look {
        Look {
            version: report.version.clone(),
            listed: report
                .inventory
                .as_ref()
                .map(|inventory| inventory.partitions.clone())
                .unwrap_or_default(),
            closure: closed.get(&report.controller.name).copied(),
            troubles: self.troubles(&report.controller.name),
            view: self.view(report),
        }
    }

    /// What every controller of the list has now, in the list's order, as placement sees it.
    pub async fn views(&self) -> Vec<ControllerView> {
        let reports = self.reports().await.into_iter();
        reports.map(|report| self.view(report)).collect()
    }

    /// The same, divided by whether the admin has closed them.
    pub async fn divided(&self) -> Divided {
        let closed = self.closed();
        let views = self.views().await.into_iter();
        let (shut, open) = views.partition(|view| closed.contains_key(&view.name));
        Divided { open, shut, closed }
    }

    /// What every controller of the list has now, in the list's order, with its version and its
    /// partitions.
    pub async fn reports(&self) -> Vec<Report> {
        self.inventories.all(AGE).await
    }

    /// What has gone wrong on a controller within the last day, as far as this process has seen.
    pub fn troubles(&self, controller: &str) -> Troubles {
        self.ledger().of(controller, Timestamp::now())
    }

    /// Takes down what a controller has of partition `id`, which has so many GCDs. Where it is newly
    /// in error, the controller is asked which IPUs it has: one that fails again and again is told.
    pub async fn note(&self, client: &VipuClient, id: &str, gcds: u32, truth: &Truth) {
        let now = Timestamp::now();
        let episode = self.ledger().look(client.name(), id, truth, now);
        let Some(episode) = episode else { return };
        let devices = client.devices(id, gcds).await;
        let suspects = self
            .ledger()
            .found(client.name(), episode, &devices, Timestamp::now());
        for DeviceTroubles { device, failures } in suspects {
            tracing::warn!(
                controller = client.name(),
                device,
                failures,
                "this IPU keeps failing: it was in so many failed partitions within a day"
            );
        }
    }

    fn view(&self, report: Report) -> ControllerView {
        let troubles = self.troubles(&report.controller.name);
        view(report, &self.nodes, &troubles)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
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

fn view(report: Report, nodes: &NodeLabels, troubles: &Troubles) -> ControllerView {
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
        failures: troubles.failed_partitions,
    }
}
