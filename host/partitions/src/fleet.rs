//! The V-IPU controllers as the reconciler meets them: a client for each, and what they have now.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ipu_api::ipupartition::{ControllerRef, IPUPartitionStatus};
use ipu_guest_host::model::ControllerView;
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use vipu_client::controllers;
use vipu_client::cordon::{CordonState, CordonStates};
use vipu_client::failure_stats::{DeviceFailures, FailureLog, FailureStats};
use vipu_client::inventory::Report;
use vipu_client::model::ListedPartition;
use vipu_client::{Inventories, Lookup, Registry, VipuClient, VipuError};

use super::cache::Cache;
use super::capacity::{self, Unlisted, Withheld};
use super::node_labels::NodeLabels;
use super::observations::{self, Intent, Observation};
use super::orphans;
use super::placement::Candidates;
use super::placement::request::shortened;
use super::status_update;
use super::watched::Watched;

/// How old an inventory may be. What the operator itself changes is told at once; this is for
/// partitions that are made by hand.
const AGE: Duration = Duration::from_secs(2);

/// All that is known of one controller.
#[derive(Clone, Debug)]
pub struct Look {
    /// What it has, as placement sees it.
    pub view: ControllerView,
    /// What it seems to have free and is held all the same.
    pub withheld: Option<Withheld>,
    /// Version of its server, where it tells one.
    pub version: Option<String>,
    /// The partitions on it, whoever made them.
    pub listed: Arc<[ListedPartition]>,
    /// Whether the admin has closed it.
    pub cordon_state: Option<CordonState>,
    /// What has gone wrong on it within the last day, as far as this process has seen.
    pub failure_stats: FailureStats,
}

/// Every controller of the admin's list, and those that older attempts still name.
pub struct Fleet {
    registry: Arc<Registry>,
    inventories: Inventories,
    nodes: NodeLabels,
    ledger: Watched,
    failure_log: Mutex<FailureLog>,
}

impl Fleet {
    /// A fleet that follows the registry's list, for Pods on these nodes. What the IPUPartitions of the
    /// ledger hold is given to nobody else.
    pub fn new(registry: Arc<Registry>, nodes: NodeLabels, ledger: Watched) -> Self {
        Fleet {
            nodes,
            ledger,
            inventories: Inventories::new(registry.clone()),
            failure_log: Mutex::default(),
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
    pub fn cordons(&self) -> CordonStates {
        self.registry.known().cordons.clone()
    }

    /// Whether a controller is in the admin's list.
    pub fn is_listed(&self, controller: &ControllerRef) -> bool {
        let known = self.registry.known();
        known
            .entries
            .iter()
            .any(|entry| entry.name == controller.name)
    }

    /// Whether the admin says that a controller is gone for good, with all that was on it.
    pub fn is_gone(&self, controller: &ControllerRef) -> bool {
        let known = self.registry.known();
        known.departed.gone.contains(&controller.name)
    }

    /// The controllers that have another name now, as the admin says, and the entry of the list that each is.
    pub(super) fn renamed(&self) -> BTreeMap<String, ControllerRef> {
        self.registry.known().departed.renamed.clone()
    }

    /// The controllers that have left the list and are swept all the same.
    pub(super) fn left_behind(&self) -> Vec<ControllerRef> {
        let known = self.registry.known();
        let is_known = |name: &str| {
            known.departed.gone.contains(name)
                || known.entries.iter().any(|entry| entry.name == name)
        };
        // Not those of other releases, which sweep their own.
        let names = self.ledger.read(|cache| {
            let held = cache.briefs().flat_map(|(brief, _)| &brief.held);
            let names = held.map(|one| Arc::clone(&one.controller));
            orphans::left_behind(names, |name| is_known(name))
        });
        let names = names.iter().map(|name| &**name);
        names.filter_map(controllers::unlisted).collect()
    }

    /// Notes in the attempt that is about to be asked for under which account that is.
    pub(super) fn sign(&self, status: &mut IPUPartitionStatus, intent: &Intent) {
        let Intent::Create(id) = intent else {
            return;
        };
        for attempt in status.attempts.iter_mut().filter(|one| one.id == *id) {
            let client = self.client(&attempt.controller).ok();
            attempt.account = client.and_then(|client| client.account());
        }
    }

    /// The status that says under which account a controller has shown what it has, where that is news: what it
    /// shows to an account is no more hidden from that later. One that was taken over, or asked for before the
    /// admin named another V-IPU user, is known to be gone in this way alone.
    pub(super) fn shown(
        &self,
        status: &IPUPartitionStatus,
        observation: &Observation,
    ) -> Option<IPUPartitionStatus> {
        let Observation::RemoteState {
            id,
            remote_state: observations::RemoteState::Present(_),
        } = observation
        else {
            return None;
        };
        let mut attempts = status.attempts.iter();
        let attempt = attempts.find(|one| one.id == *id)?;
        let account = self.client(&attempt.controller).ok()?.account();
        status_update::with_account(status, id, account.as_deref())
    }

    /// A client of one controller, in the list or not: what was made on one that has left the list
    /// has to be removed there.
    pub fn client(&self, controller: &ControllerRef) -> Result<VipuClient, VipuError> {
        self.registry.client(controller)
    }

    /// All that is known of every controller of the list, in its order.
    pub async fn looks(&self) -> Vec<Look> {
        let cordons = self.cordons();
        let reports = self.reports().await.into_iter();
        reports.map(|report| self.look(report, &cordons)).collect()
    }

    /// The same of each controller that tells within `limit`.
    pub async fn looks_within(&self, limit: Duration) -> Vec<(ControllerRef, Option<Look>)> {
        let cordons = &self.cordons();
        let looks = self.controllers().into_iter().map(async |controller| {
            let report = async {
                self.confirmed(self.inventories.of(&controller, AGE).await)
                    .await
            };
            let report = tokio::time::timeout(limit, report).await.ok();
            (controller, report.map(|report| self.look(report, cordons)))
        });
        futures::future::join_all(looks).await
    }

    fn look(&self, report: Report, cordons: &CordonStates) -> Look {
        let version = report.version.clone();
        let cordon_state = cordons.get(&report.controller.name).copied();
        let inventory = report.inventory.as_ref();
        let listed = inventory.map(|inventory| inventory.partitions.clone());
        let listed = listed.unwrap_or_default();
        let failure_stats = self.failure_stats(&report.controller.name);
        let (view, withheld) = self.view(report);
        Look {
            view,
            withheld,
            version,
            listed,
            cordon_state,
            failure_stats,
        }
    }

    /// What every controller of the list has now, in the list's order, as placement sees it.
    pub async fn views(&self) -> Vec<ControllerView> {
        let reports = self.reports().await.into_iter();
        reports.map(|report| self.view(report).0).collect()
    }

    /// The same, divided by whether the admin has closed them.
    pub async fn candidates(&self) -> Candidates {
        let cordons = self.cordons();
        let reports = self.reports().await.into_iter();
        let mut withheld = HashMap::new();
        let views = reports.map(|report| {
            let (view, held) = self.view(report);
            withheld.extend(held.map(|held| (view.name.clone(), held)));
            view
        });
        let views = views.collect();
        Candidates::of(views, cordons).withholding(withheld)
    }

    /// What every controller of the list has now, in the list's order, with its version and its
    /// partitions.
    pub async fn reports(&self) -> Vec<Report> {
        let reports = self.inventories.all(AGE).await.into_iter();
        let reports = reports.map(|report| self.confirmed(report));
        futures::future::join_all(reports).await
    }

    /// A reading may be older than what the ledger has heard of since. So what seems to be lost is looked for
    /// once more, before its controller gives nothing away.
    async fn confirmed(&self, report: Report) -> Report {
        let unlisted = self.unlisted(&report);
        if unlisted.is_some_and(|unlisted| unlisted.is_lost()) {
            return self
                .inventories
                .of(&report.controller, Duration::ZERO)
                .await;
        }
        report
    }

    /// What is held on the controller of this report and not in it, where the controller has answered.
    fn unlisted(&self, report: &Report) -> Option<Unlisted> {
        let Report {
            controller,
            inventory,
            ..
        } = report;
        let inventory = inventory.as_ref().ok()?;
        let client = self.client(controller).ok();
        let account = client.and_then(|client| client.account());
        let held = |cache: &mut Cache| {
            let all = cache.allocations();
            all.unlisted(&controller.name, inventory, account.as_deref())
        };
        Some(self.ledger.read(held))
    }

    /// What has gone wrong on a controller within the last day, as far as this process has seen.
    pub fn failure_stats(&self, controller: &str) -> FailureStats {
        self.failure_log().stats(controller, Timestamp::now())
    }

    /// Takes down what a controller has of partition `id`, which has so many GCDs. Where it is newly
    /// in error, the controller is asked which IPUs it has: one that fails again and again is told.
    pub async fn note(&self, client: &VipuClient, id: &str, gcds: u32, lookup: &Lookup) {
        let now = Timestamp::now();
        let failure = self
            .failure_log()
            .record_state(client.name(), id, lookup, now);
        let Some(failure) = failure else { return };
        let devices = client.devices(id, gcds).await;
        let suspects =
            self.failure_log()
                .record_devices(client.name(), failure, &devices, Timestamp::now());
        for DeviceFailures { device, failures } in suspects {
            tracing::warn!(
                controller = client.name(),
                device,
                failures,
                "this IPU keeps failing: it was in so many failed partitions within a day"
            );
        }
    }

    fn view(&self, report: Report) -> (ControllerView, Option<Withheld>) {
        let failure_stats = self.failure_stats(&report.controller.name);
        let unlisted = self.unlisted(&report);
        let mut view = view(report, &self.nodes, &failure_stats);
        let withheld = unlisted.and_then(|unlisted| capacity::withhold(&mut view, &unlisted));
        (view, withheld)
    }

    fn failure_log(&self) -> MutexGuard<'_, FailureLog> {
        self.failure_log.lock()
    }

    /// Partition `id` of so many IPUs was made on this controller.
    pub(super) fn took(&self, controller: &ControllerRef, id: &str, ipus: u32) {
        self.inventories.took(&controller.name, id, ipus);
    }

    /// This controller has agreed to remove partition `id`, which nobody uses.
    pub(super) fn removed(&self, controller: &ControllerRef, id: &str) {
        self.inventories.removed(&controller.name, id);
    }

    /// Something was asked of or removed from this controller.
    pub(super) fn changed(&self, controller: &ControllerRef) {
        self.inventories.forget(&controller.name);
    }
}

fn view(report: Report, nodes: &NodeLabels, failure_stats: &FailureStats) -> ControllerView {
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
        failures: failure_stats.failed_partitions,
    }
}
