//! Which IPUs of its controller each partition was given, and that nobody else is given them while a Pod uses
//! them, whatever the controller has forgotten.

use std::collections::{BTreeMap, BTreeSet};

use super::controllers::{Call, Verb};
use super::invariants::{NOT_GIVEN_TWICE, demand};
use super::world::World;

/// The IPUs of every partition that was ever made, by its id.
#[derive(Debug, Default)]
pub(super) struct Given(BTreeMap<String, BTreeSet<u32>>);

impl World {
    /// What was just made has no IPU of what its controller has lost and Pods still use.
    pub(super) fn check_given_once(&mut self, call: &Call) {
        let controller = &self.controllers[call.controller];
        let made = controller.made.get(&call.id);
        let (Verb::Create { .. }, Some(made)) = (call.verb, made) else {
            return;
        };
        let numbers = made.numbers.clone();
        self.given.0.insert(call.id.clone(), numbers.clone());
        if !self.gives_once {
            return;
        }
        let is_lost = |id: &str| {
            !controller.made.contains_key(id)
                && self.ledger.controller_of(id) == Some(controller.reference.name.as_str())
        };
        for pod in self.pods.values().filter(|pod| is_lost(&pod.id)) {
            let used = self.given.0.get(&pod.id);
            let is_apart = used.is_none_or(|used| used.is_disjoint(&numbers));
            demand(is_apart, NOT_GIVEN_TWICE, || {
                format!(
                    "{} has {numbers:?}, and a Pod uses {}: {used:?}",
                    call.id, pod.id
                )
            });
        }
    }
}
