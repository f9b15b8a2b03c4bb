//! The IPUs of each partition. Checks that no other partition gets them while a Pod uses them, even
//! if the controller has lost its state.

use std::collections::{BTreeMap, BTreeSet};

use super::controllers::{Call, Verb};
use super::invariants::{NOT_ASSIGNED_TWICE, demand};
use super::world::World;

/// The IPUs of every partition that was ever created, by its id.
#[derive(Debug, Default)]
pub(super) struct AssignedIpus(BTreeMap<String, BTreeSet<u32>>);

impl World {
    /// A new partition has no IPU of a partition that its controller has lost and Pods still use.
    pub(super) fn check_assigned_once(&mut self, call: &Call) {
        let controller = &self.controllers[call.controller];
        let made = controller.made.get(&call.id);
        let (Verb::Create { .. }, Some(made)) = (call.verb, made) else {
            return;
        };
        let numbers = made.numbers.clone();
        self.assigned_ipus
            .0
            .insert(call.id.clone(), numbers.clone());
        if !self.assigns_once {
            return;
        }
        let is_lost = |id: &str| {
            !controller.made.contains_key(id)
                && self.history.controller_of(id) == Some(controller.reference.name.as_str())
        };
        for pod in self.pods.values().filter(|pod| is_lost(&pod.id)) {
            let used = self.assigned_ipus.0.get(&pod.id);
            let is_apart = used.is_none_or(|used| used.is_disjoint(&numbers));
            demand(is_apart, NOT_ASSIGNED_TWICE, || {
                format!(
                    "{} has {numbers:?}, and a Pod uses {}: {used:?}",
                    call.id, pod.id
                )
            });
        }
    }
}
