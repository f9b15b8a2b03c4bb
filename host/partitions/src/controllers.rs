//! The V-IPU controllers: a client for each, and their current state.

pub mod duplicates;
pub mod inventory_view;
mod memory;
pub(crate) mod permits;
pub mod summary;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ipu_api::guest::placement::ControllerView;
use ipu_api::ipupartition::ControllerRef;
use ipu_api::naming::Identity;
use ipu_api::vipu_controller::{CordonState, CordonStates};
use ipu_ledger::sweep::orphans;
use ipu_placement::allocations::{self, Unlisted, Withheld};
use ipu_placement::guest_call::Candidates;
use ipu_placement::known_sizes::KnownSizes;
use ipu_placement::refusals::Refusals;
use parking_lot::Mutex;
use vipu_client::failure_stats::{FailureLog, FailureStats};
use vipu_client::inventory::{Report, Requested};
use vipu_client::model::{Inventory, ListedPartition};
use vipu_client::{Inventories, Registry, VipuClient, VipuError, controllers};

use super::nodes::Nodes;
use crate::controllers::duplicates::Duplicates;
use crate::store::Cache;
use crate::store::watch::Watched;

/// Maximum age of an inventory. The operator notes its own changes at once, so this is for
/// partitions that others create.
const AGE: Duration = Duration::from_secs(2);

/// Maximum age of the inventories with which a pass chooses a controller. That of the chosen one is
/// read again if it is older than `AGE`. To wait for hundreds of controllers would take longer than
/// all decisions of the pass.
const USABLE_AGE: Duration = Duration::from_secs(10);

/// Age at which a pass has an inventory read again without waiting for it: other clients may have
/// released IPUs.
const OLD_AGE: Duration = Duration::from_secs(5);

/// The state of one controller.
#[derive(Clone, Debug)]
pub struct ControllerState {
    /// Its capacity, as placement sees it.
    pub view: ControllerView,
    /// IPUs that it reports as free although IPUPartitions hold them.
    pub withheld: Option<Withheld>,
    /// Version of its server, if it reports one.
    pub version: Option<String>,
    /// The partitions on it, of the operator and of others.
    pub listed: Arc<[ListedPartition]>,
    /// Its free IPUs, as ranges of their places. `None`: it does not report them.
    pub free_ipus: Option<String>,
    /// Whether the admin has cordoned or drained it.
    pub cordon_state: Option<CordonState>,
    /// Its failures of a day, as this process has seen them.
    pub failure_stats: FailureStats,
}

/// The controllers of the admin's list, and those that older attempts still name.
pub struct ControllerPool {
    registry: Arc<Registry>,
    inventories: Inventories,
    nodes: Nodes,
    ledger: Watched,
    failure_log: Mutex<FailureLog>,
    refusals: Mutex<Refusals>,
    sizes: Mutex<KnownSizes>,
    /// Marks the partitions of the operator. `None`: controllers are not compared.
    identity: Option<Identity>,
    duplicates: Mutex<Duplicates>,
}

impl ControllerPool {
    /// A pool of the controllers in the registry, for Pods on these nodes. IPUs that the
    /// IPUPartitions of the ledger hold are not free.
    pub fn new(registry: Arc<Registry>, nodes: Nodes, ledger: Watched) -> Self {
        ControllerPool {
            nodes,
            ledger,
            inventories: Inventories::new(registry.clone()),
            failure_log: Mutex::default(),
            refusals: Mutex::default(),
            sizes: Mutex::default(),
            identity: None,
            duplicates: Mutex::default(),
            registry,
        }
    }

    /// The same pool, which finds controllers that are in the list under two names, by the
    /// partitions of this mark.
    #[must_use]
    pub fn comparing(self, identity: Identity) -> Self {
        let identity = Some(identity);
        ControllerPool { identity, ..self }
    }

    /// The registry.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The nodes on which Pods reach the IPUs.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// The admin's list as it is now.
    pub fn controllers(&self) -> Vec<ControllerRef> {
        self.registry.known().entries.clone()
    }

    /// The cordoned and drained ones.
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

    /// Whether this entry is in the admin's list, and accepts new partitions.
    pub(super) fn is_open(&self, controller: &ControllerRef) -> bool {
        let known = self.registry.known();
        known.entries.contains(controller) && !known.cordons.contains_key(&controller.name)
    }

    /// Whether the admin lists a controller as gone, with all of its partitions.
    pub fn is_gone(&self, controller: &ControllerRef) -> bool {
        let known = self.registry.known();
        known.departed.gone.contains(&controller.name)
    }

    /// The entry of a controller in the admin's list now, under its new name if the admin has
    /// renamed it.
    pub(super) fn current_entry(&self, controller: &ControllerRef) -> Option<ControllerRef> {
        let known = self.registry.known();
        let renamed = known.departed.renamed.get(&controller.name);
        let mut entries = known.entries.iter();
        let listed = || entries.find(|entry| entry.name == controller.name);
        renamed.or_else(listed).cloned()
    }

    /// The controllers that have left the list and are still swept.
    pub(super) fn left_behind(&self) -> Vec<ControllerRef> {
        let known = self.registry.known();
        let is_known = |name: &str| {
            known.departed.gone.contains(name)
                || known.entries.iter().any(|entry| entry.name == name)
        };
        // Without those of other releases, which sweep their own.
        let names = self.ledger.read(|cache| {
            let held = cache.briefs().flat_map(|(brief, _)| &brief.held);
            let names = held.map(|one| Arc::clone(&one.controller));
            orphans::left_behind(names, |name| is_known(name))
        });
        let names = names.iter().map(|name| &**name);
        names.filter_map(controllers::unlisted).collect()
    }

    /// Short hash of the V-IPU user id of calls to a controller. `None`: they have none.
    pub(super) fn account(&self, controller: &ControllerRef) -> Option<String> {
        self.client(controller).ok()?.account()
    }

    /// A client of one controller, also of one that has left the list: its partitions have to be
    /// removed there.
    pub fn client(&self, controller: &ControllerRef) -> Result<VipuClient, VipuError> {
        self.registry.client(controller)
    }

    /// The states of the controllers of the list, in its order.
    pub async fn states(&self) -> Vec<ControllerState> {
        let cordons = self.cordons();
        let reports = self.reports().await.into_iter();
        reports.map(|report| self.state(report, &cordons)).collect()
    }

    /// The same, for controllers that answer within `limit`.
    pub async fn states_within(
        &self,
        limit: Duration,
    ) -> Vec<(ControllerRef, Option<ControllerState>)> {
        let cordons = &self.cordons();
        let states = self.controllers().into_iter().map(async |controller| {
            let report = async {
                self.confirmed(self.inventories.of(&controller, AGE).await)
                    .await
            };
            let report = tokio::time::timeout(limit, report).await.ok();
            (controller, report.map(|report| self.state(report, cordons)))
        });
        futures::future::join_all(states).await
    }

    fn state(&self, mut report: Report, cordons: &CordonStates) -> ControllerState {
        self.remember(&mut report);
        let version = report.version.clone();
        let cordon_state = cordons.get(&report.controller.name).copied();
        let inventory = report.inventory.as_ref();
        let listed = inventory.map(|inventory| inventory.partitions.clone());
        let listed = listed.unwrap_or_default();
        let free_ipus = inventory.ok().and_then(Inventory::free_ipus);
        let failure_stats = self.failure_stats(&report.controller.name);
        let (view, withheld) = self.remembered_view(report);
        let free_ipus = free_ipus.filter(|_| withheld.is_none());
        ControllerState {
            view,
            withheld,
            version,
            listed,
            free_ipus,
            cordon_state,
            failure_stats,
        }
    }

    /// The capacity of the controllers of the list, in its order, as placement sees it.
    pub async fn views(&self) -> Vec<ControllerView> {
        let reports = self.reports().await.into_iter();
        reports.map(|report| self.view(report).0).collect()
    }

    /// The same, with cordoned controllers apart.
    pub async fn candidates(&self) -> Candidates {
        self.candidates_of(self.reports().await)
    }

    /// The same within a second, with the last known capacity of controllers that answer later. A
    /// controller refuses a partition for which that was too large.
    pub async fn candidates_soon(&self) -> Candidates {
        let reports = self.inventories.all_soon(AGE).await;
        self.confirmed_candidates(reports).await
    }

    /// The same for a pass, by inventories that may be some seconds old. `recent_view` confirms
    /// that of a chosen controller.
    pub async fn candidates_for_pass(&self) -> Candidates {
        let reports = self.inventories.all_usable(OLD_AGE, USABLE_AGE).await;
        self.confirmed_candidates(reports).await
    }

    /// The capacity of a controller by an inventory that is at most two seconds old, if it answers
    /// soon.
    pub async fn recent_view(&self, controller: &ControllerRef) -> ControllerView {
        let report = self.inventories.of_soon(controller, AGE).await;
        self.view(self.confirmed_soon(report).await).0
    }

    async fn confirmed_candidates(&self, reports: Vec<Report>) -> Candidates {
        let confirmed = reports
            .into_iter()
            .map(|report| self.confirmed_soon(report));
        self.candidates_of(futures::future::join_all(confirmed).await)
    }

    /// The same with the last known capacity of all controllers. It reads nothing.
    pub fn candidates_known(&self) -> Candidates {
        self.candidates_of(self.inventories.known())
    }

    /// Waits until a controller, for which a caller did not wait, answers with another inventory.
    pub async fn late_answer(&self) {
        self.inventories.late_answer().await;
    }

    fn candidates_of(&self, reports: Vec<Report>) -> Candidates {
        let mut withheld = HashMap::new();
        let views = reports.into_iter().map(|report| {
            let (view, held) = self.view(report);
            withheld.extend(held.map(|held| (view.name.clone(), held)));
            view
        });
        Candidates::of(views.collect(), self.cordons())
            .withholding(withheld)
            .on_nodes(self.nodes.snapshot())
            .refusing(self.standing_refusals())
            .expecting(self.known_sizes(), self.list_problem())
    }

    /// The reports of the controllers of the list, in its order, with version and partitions. One
    /// under a second name is left out.
    pub async fn reports(&self) -> Vec<Report> {
        let reports = self.inventories.all(AGE).await;
        self.find_duplicates(&reports);
        let known = self.registry.known();
        let is_first = |report: &Report| !known.duplicates.contains_key(&report.controller.name);
        let reports = reports.into_iter().filter(is_first);
        let reports = reports.map(|report| self.confirmed(report));
        futures::future::join_all(reports).await
    }

    /// Reads a report again if the controller seems to have lost partitions: the report may be
    /// older than the ledger. Only then does the controller count as full.
    async fn confirmed(&self, report: Report) -> Report {
        if !self.seems_lost(&report) {
            return report;
        }
        let controller = &report.controller;
        self.inventories.of(controller, Duration::ZERO).await
    }

    /// The same, if the controller answers soon.
    async fn confirmed_soon(&self, report: Report) -> Report {
        if !self.seems_lost(&report) {
            return report;
        }
        let controller = &report.controller;
        self.inventories.of_soon(controller, Duration::ZERO).await
    }

    fn seems_lost(&self, report: &Report) -> bool {
        let unlisted = self.unlisted(report);
        unlisted.is_some_and(|unlisted| unlisted.is_lost())
    }

    /// Held partitions that the report of their controller does not list. `None`: the controller
    /// has not answered.
    fn unlisted(&self, report: &Report) -> Option<Unlisted> {
        let controller = &report.controller;
        let inventory = report.inventory.as_ref().ok()?;
        let account = self.account(controller);
        let held = |cache: &mut Cache| {
            let all = cache.allocations();
            all.unlisted(
                &controller.name,
                |id| inventory.accounts_for(id),
                account.as_deref(),
            )
        };
        Some(self.ledger.read(held))
    }

    fn view(&self, mut report: Report) -> (ControllerView, Option<Withheld>) {
        self.remember(&mut report);
        self.remembered_view(report)
    }

    fn remembered_view(&self, report: Report) -> (ControllerView, Option<Withheld>) {
        let failure_stats = self.failure_stats(&report.controller.name);
        let unlisted = self.unlisted(&report);
        let ControllerRef {
            label_key,
            label_value,
            ..
        } = &report.controller;
        let has_nodes = self.nodes.any_has(label_key, label_value);
        let mut view = inventory_view::view(report, has_nodes, failure_stats.failed_partitions);
        let withheld = unlisted.and_then(|unlisted| allocations::withhold(&mut view, &unlisted));
        (view, withheld)
    }

    /// Counts partition `id` on this controller while it is being requested, until the result is
    /// dropped.
    pub(super) fn requests(&self, controller: &ControllerRef, id: &str, ipus: u32) -> Requested {
        self.inventories.requests(&controller.name, id, ipus)
    }

    /// Notes the creation of partition `id` on this controller. Returns whether it had refused such
    /// a size.
    pub(super) fn took(&self, controller: &ControllerRef, id: &str, ipus: u32) -> bool {
        self.inventories.took(&controller.name, id, ipus);
        self.refusals.lock().created(&controller.name, ipus)
    }

    /// Notes that this controller is removing partition `id`, which no Pod uses.
    pub(super) fn removed(&self, controller: &ControllerRef, id: &str) {
        self.refusals.lock().released(&controller.name);
        self.inventories.removed(&controller.name, id);
    }

    /// Drops the inventory of this controller after a change.
    pub(super) fn changed(&self, controller: &ControllerRef) {
        self.inventories.forget(&controller.name);
    }
}
