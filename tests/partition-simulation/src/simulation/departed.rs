//! Controllers that leave the admin's list, controllers that are renamed, and a clock that is set
//! back.

use std::collections::BTreeSet;

use ipu_api::ipupartition::ControllerRef;
use jiff::SignedDuration;

use super::api_server::Key;
use super::coverage::CoveragePoint;
use super::repair::Repair;
use super::sim_adapter;
use super::world::World;

impl World {
    /// An admin removes a controller from the list for a time, sometimes since it is down.
    pub(super) fn controller_leaves(&mut self) {
        let index = self.rng.below(self.controllers.len());
        self.cover(CoveragePoint::LeftList);
        self.controllers[index].is_listed = false;
        let pause = self.rng.between(10_000, 200_000);
        self.repair_later(pause, Repair::Listed(index));
        let is_down = self.rng.permille(500);
        if is_down {
            self.controllers[index].is_down = true;
            let pause = self.rng.between(1_000, 2 * pause);
            self.repair_later(pause, Repair::ControllerIsUp(index));
        }
        self.note(|| format!("controller {index} leaves the list; is down: {is_down}"));
        self.list_changed();
    }

    /// A controller is renamed, which the admin configures beside the list. The old name does not
    /// answer any more.
    pub(super) fn controller_is_renamed(&mut self) {
        let index = self.rng.below(self.controllers.len());
        self.cover(CoveragePoint::Renamed);
        self.numbers += 1;
        let host = format!("pod{}-{}", index + 1, self.numbers);
        let controller = &mut self.controllers[index];
        let now = ControllerRef {
            name: format!("{host}:8090"),
            label_value: host.clone(),
            host,
            ..controller.reference.clone()
        };
        let old = std::mem::replace(&mut controller.reference, now.clone());
        if let Some(cordon) = self.cordons.remove(&old.name) {
            self.cordons.insert(now.name.clone(), cordon);
        }
        // Earlier names lead to the present entry of the list, as an admin maintains them.
        for known in self.renamed.values_mut().filter(|one| **one == old) {
            known.clone_from(&now);
        }
        self.note(|| format!("{} is {} from now on", old.name, now.name));
        self.history.renamed(&old.name, &now.name);
        self.renamed.insert(old.name, now);
        self.list_changed();
    }

    /// The clock of the control plane, the source of times in objects, is set back; once in a run.
    pub(super) fn clock_is_set_back(&mut self) {
        if self.behind.is_zero() {
            let seconds = self.rng.pick(&[5, 60, 180]);
            self.set_clock_back(SignedDuration::from_secs(seconds));
        }
    }

    /// The same, by this much.
    pub(super) fn set_clock_back(&mut self, by: SignedDuration) {
        self.cover(CoveragePoint::SetBack);
        self.behind += by;
        self.note(|| format!("the clock is set back by {by}"));
    }

    /// The replicas see the changed list: objects with partitions and objects that wait are
    /// reconciled again.
    pub(super) fn list_changed(&mut self) {
        for who in 0..self.replicas.len() {
            if self.is_dead(who) || !self.replicas[who].acts {
                continue;
            }
            let seen = self.replicas[who].objects();
            let held = |(_, object)| sim_adapter::held([object]);
            let keys: Vec<Key> = seen
                .filter(|one| !held(*one).is_empty())
                .map(|(key, _)| key)
                .collect();
            for key in keys {
                self.requeue_soon(who, key, 200);
            }
            self.capacity_released(who);
        }
    }

    /// Whether the controller that a status names answers.
    pub(super) fn is_reached(&self, index: usize, by: &ControllerRef) -> bool {
        let controller = &self.controllers[index];
        !controller.is_down && self.is_name_of(index, by)
    }

    /// Whether the controller that a status names is in the list.
    pub(super) fn is_listed(&self, index: usize, by: &ControllerRef) -> bool {
        let controller = &self.controllers[index];
        controller.is_listed && self.is_name_of(index, by)
    }

    fn is_name_of(&self, index: usize, by: &ControllerRef) -> bool {
        self.controllers[index].reference.name == by.name || self.is_second_name(index, &by.name)
    }

    /// Controllers that have left the list and are still swept by this replica.
    pub(super) fn left_behind(&self, who: usize) -> BTreeSet<String> {
        let held = sim_adapter::allocations(self.replicas[who].seen());
        let left = sim_adapter::left_behind(held.controllers(), |name| self.is_in_list(name));
        left.into_iter().map(str::to_owned).collect()
    }
}
