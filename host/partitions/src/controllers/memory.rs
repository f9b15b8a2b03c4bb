//! What the pool remembers of its controllers for later decisions: failures, refused sizes, and
//! numbers of IPUs.

use std::collections::BTreeMap;
use std::time::Instant;

use ipu_api::guest::placement::ControllerView;
use ipu_api::ipupartition::{ControllerRef, IPUPartition, IPUPartitionSpec};
use ipu_api::uid::Uid;
use ipu_placement::guest_call::values::shortened;
use ipu_placement::refusals::{self, Refused, StandingRefusals};
use jiff::Timestamp;
use parking_lot::MutexGuard;
use vipu_client::controllers::KEY;
use vipu_client::failure_stats::{DeviceFailures, FailureLog, FailureStats};
use vipu_client::inventory::Report;
use vipu_client::registry::{Known, Source};
use vipu_client::{Lookup, VipuClient};

use super::ControllerPool;
use crate::controllers::duplicates::ListedIds;

impl ControllerPool {
    /// The failures of a controller within a day, as this process has seen them.
    pub fn failure_stats(&self, controller: &str) -> FailureStats {
        self.failure_log().stats(controller, Timestamp::now())
    }

    /// Time of the last failure or reset of a controller within a day, as this process has seen
    /// them.
    pub fn last_failure(&self, controller: &str) -> Option<Timestamp> {
        self.failure_log().last(controller, Timestamp::now())
    }

    /// Notes the state of partition `id`, which has this number of GCDs. If it has just failed,
    /// this reads its IPUs from the controller, and logs those that fail repeatedly.
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
                "an IPU fails repeatedly: several of its partitions failed within a day"
            );
        }
    }

    /// Place of the first IPU of partition `id` in the last list of this controller. `None`: not
    /// known.
    pub(crate) fn first_ipu(&self, controller: &ControllerRef, id: &str) -> Option<u32> {
        let listed = self.inventories.last_list(&controller.name);
        listed.iter().find(|listed| listed.id == id)?.first_ipu
    }

    /// Notes what a report says of its controller for later decisions. While the controller has
    /// fewer IPUs than lately, nobody knows which of them are missing: the report loses the places.
    pub(super) fn remember(&self, report: &mut Report) {
        let known = self.sizes.lock().most(&report.controller.name);
        if let Ok(inventory) = &mut report.inventory
            && inventory.total < known
        {
            *inventory = std::mem::take(inventory).without_places();
        }
        let name = &report.controller.name;
        let inventory = report.inventory.as_ref().ok();
        if let Some(inventory) = inventory {
            self.refusals.lock().listed(name, inventory.listed);
        }
        let total = inventory.map(|inventory| inventory.total);
        self.sizes.lock().listed(name, total, Timestamp::now());
    }

    /// Finds the controllers that are in the list under two names, by the partitions in these
    /// reports.
    pub(super) fn find_duplicates(&self, reports: &[Report]) {
        let Some(identity) = &self.identity else {
            return;
        };
        let now = Instant::now();
        let mut duplicates = self.duplicates.lock();
        let names = reports.iter().map(|report| &*report.controller.name);
        if !duplicates.is_due(names, now) {
            return;
        }
        let lists = reports.iter().map(|report| ListedIds {
            name: &report.controller.name,
            ids: report.inventory.as_ref().ok().map(|inventory| {
                let listed = inventory.partitions.iter();
                let of_operator = listed.filter(|partition| identity.marks(&partition.id));
                of_operator
                    .map(|partition| Uid::of(&partition.id))
                    .collect()
            }),
        });
        let found = duplicates.compare(&lists.collect::<Vec<_>>(), now);
        self.registry.set_duplicates(&found);
    }

    /// Notes the number of IPUs of a listed controller, as the leader before has seen it.
    pub fn remember_size(&self, controller: &str, total: u32) {
        let mut sizes = self.sizes.lock();
        sizes.listed(controller, Some(total), Timestamp::now());
    }

    /// The refusals as placement sees them now.
    pub(super) fn standing_refusals(&self) -> StandingRefusals {
        self.refusals.lock().standing(Timestamp::now())
    }

    /// The most IPUs that each controller has reported lately, without those that the admin lists
    /// as gone or renamed.
    pub(super) fn known_sizes(&self) -> BTreeMap<String, u32> {
        let known = self.registry.known();
        let mut sizes = self.sizes.lock().at(Timestamp::now());
        let departed = &known.departed;
        sizes.retain(|name, _| {
            !departed.gone.contains(name) && !departed.renamed.contains_key(name)
        });
        sizes
    }

    /// Returns why the list may lack a controller that the admin has.
    pub(super) fn list_problem(&self) -> Option<String> {
        list_problem(&self.registry.known())
    }

    pub(super) fn failure_log(&self) -> MutexGuard<'_, FailureLog> {
        self.failure_log.lock()
    }

    /// Limits the largest partition of each controller to sizes that it has not refused, as far as
    /// this process knows. Returns the controllers that have refused a partition smaller than their
    /// free IPUs.
    pub fn limit_to_unrefused(&self, views: &mut [ControllerView]) -> Vec<Refused> {
        self.refusals.lock().limit(views, Timestamp::now())
    }

    /// Notes that this controller has refused to create this partition for this reason.
    pub(crate) fn refused(
        &self,
        controller: &ControllerRef,
        partition: &IPUPartition,
        reason: &str,
    ) {
        let uid = partition.metadata.uid.as_deref().unwrap_or_default();
        let (ipus, now) = (partition.spec.ipus, Timestamp::now());
        let mut refusals = self.refusals.lock();
        refusals.refused(&controller.name, uid, ipus, reason, now);
    }

    /// Notes that this partition will be requested from this controller.
    pub(crate) fn tried(&self, controller: &ControllerRef, spec: &IPUPartitionSpec) {
        if refusals::are_options_usual(&spec.options) {
            let mut refusals = self.refusals.lock();
            refusals.tried(&controller.name, spec.ipus, Timestamp::now());
        }
    }
}

fn list_problem(known: &Known) -> Option<String> {
    match known.source {
        Source::ConfigMapGone => Some("its ConfigMap is missing".to_owned()),
        Source::KeyGone => Some("its ConfigMap has no list any more".to_owned()),
        Source::NotRead | Source::Current => {
            let mut problems = known.problems.iter();
            let problem = problems.find(|problem| problem.key == KEY)?;
            Some(shortened(&problem.to_string()))
        }
    }
}
