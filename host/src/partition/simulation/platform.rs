//! What the model of the state machine acts on: two controllers, calls to them that are still on their
//! way, and the Pods that use partitions.

use std::collections::BTreeMap;

use crate::api::ipupartition::{Attempt, AttemptOutcome, ControllerRef, WaitingReason};
use crate::partition::knowledge::{Answer, Seen, SeenState, Truth};
use crate::partition::orphans;

/// Partitions that fit on a controller.
const ROOM: usize = 3;

/// What goes wrong with one call to a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mishap {
    None,
    LostReply,
    Late,
    Refused,
}

/// A call to a controller, with the id of the partition.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Create(String),
    Remove(String),
    Reset(String),
}

#[derive(Debug, Default)]
struct Controller {
    is_down: bool,
    partitions: BTreeMap<String, SeenState>,
}

#[derive(Debug, Default)]
pub(super) struct Platform {
    controllers: [Controller; 2],
    late: Vec<(usize, Call)>,
    pods: Vec<String>,
}

impl Platform {
    pub(super) fn is_down(&self, attempt: &Attempt) -> bool {
        self.controllers[index(&attempt.controller.name)].is_down
    }

    /// Calls the controller of an attempt. Answers the error, if the caller sees one.
    pub(super) fn call(&mut self, attempt: &Attempt, call: Call, mishap: Mishap) -> Option<String> {
        let which = index(&attempt.controller.name);
        if self.controllers[which].is_down {
            return Some("connection refused".to_owned());
        }
        match mishap {
            Mishap::None => self.arrive(which, &call),
            Mishap::LostReply => {
                self.arrive(which, &call);
                Some("deadline exceeded".to_owned())
            }
            Mishap::Late => {
                self.late.push((which, call));
                Some("deadline exceeded".to_owned())
            }
            Mishap::Refused => Some("resource exhausted".to_owned()),
        }
    }

    fn arrive(&mut self, which: usize, call: &Call) -> Option<String> {
        let partitions = &mut self.controllers[which].partitions;
        let (id, next) = match call {
            Call::Create(id) if partitions.len() >= ROOM => {
                return Some(format!("no room for {id}"));
            }
            Call::Create(id) => {
                partitions.insert(id.clone(), SeenState::Busy);
                return None;
            }
            Call::Remove(id) => (id, SeenState::Removing),
            Call::Reset(id) => (id, SeenState::Busy),
        };
        assert!(!self.pods.contains(id), "{call:?} under a live Pod");
        match partitions.get_mut(id) {
            Some(state) => {
                *state = next;
                None
            }
            None => Some("not found".to_owned()),
        }
    }

    pub(super) fn truth(&self, attempt: &Attempt) -> Truth {
        let controller = &self.controllers[index(&attempt.controller.name)];
        if controller.is_down {
            return Truth::Unreachable("connection refused".to_owned());
        }
        match controller.partitions.get(&attempt.id) {
            None => Truth::Absent,
            Some(state) => Truth::Present(Seen {
                state: *state,
                errors: Vec::new(),
                auto_resets: None,
            }),
        }
    }

    /// What the placement policy answers after these attempts.
    pub(super) fn place(&self, attempts: &[Attempt]) -> Answer {
        let mut reasons = Vec::new();
        for (which, controller) in self.controllers.iter().enumerate() {
            let reference = reference(which);
            let was_tried = attempts.iter().any(|attempt| {
                attempt.controller == reference && attempt.outcome == AttemptOutcome::Refused
            });
            let has_room = controller.partitions.len() < ROOM;
            if !was_tried && !controller.is_down && has_room {
                return Answer::Try(reference);
            }
            reasons.push(WaitingReason {
                controller: reference.name,
                reason: "busy".to_owned(),
            });
        }
        Answer::Wait(reasons)
    }

    pub(super) fn deliver(&mut self, pick: usize) {
        if !self.late.is_empty() {
            let (which, call) = self.late.remove(pick % self.late.len());
            self.arrive(which, &call);
        }
    }

    pub(super) fn toggle(&mut self, which: usize) {
        self.controllers[which].is_down = !self.controllers[which].is_down;
    }

    pub(super) fn progress(&mut self) {
        for controller in &mut self.controllers {
            controller
                .partitions
                .retain(|_, state| *state != SeenState::Removing);
            for state in controller.partitions.values_mut() {
                if *state == SeenState::Busy {
                    *state = SeenState::Active;
                }
            }
        }
    }

    pub(super) fn harm(&mut self, pick: usize, vanish: bool) {
        let partitions = &mut self.controllers[pick % 2].partitions;
        if let Some(id) = partitions.keys().nth(pick / 2).cloned() {
            if vanish {
                partitions.remove(&id);
            } else {
                partitions.insert(id, SeenState::Failed);
            }
        }
    }

    /// What is late arrives, and every controller is up.
    pub(super) fn heal(&mut self) {
        while !self.late.is_empty() {
            self.deliver(0);
        }
        for controller in &mut self.controllers {
            controller.is_down = false;
        }
    }

    /// A Pod begins to use a partition.
    pub(super) fn start_pod(&mut self, id: String) {
        let others = self.pods.iter().filter(|other| **other != id);
        let usable: Vec<&String> = others.filter(|other| self.left().contains(other)).collect();
        assert!(
            usable.is_empty(),
            "two partitions in use at once: {usable:?}, {id}"
        );
        self.pods.push(id);
    }

    pub(super) fn stop_pods(&mut self) {
        self.pods.clear();
    }

    /// The Pods that use a partition.
    pub(super) fn users(&self, id: &str) -> Vec<String> {
        let users = self.pods.iter().filter(|used| *used == id);
        users.cloned().collect()
    }

    /// Every partition, with the controller that it is on.
    pub(super) fn places(&self) -> Vec<orphans::Place> {
        let each = self.controllers.iter().enumerate();
        each.flat_map(|(which, controller)| {
            let ids = controller.partitions.keys();
            ids.map(move |id| (reference(which).name, id.clone()))
        })
        .collect()
    }

    /// The ids that are on any controller.
    pub(super) fn left(&self) -> Vec<String> {
        self.places().into_iter().map(|(_, id)| id).collect()
    }

    /// Removes a partition of the controller of this name, unless a Pod uses it.
    pub(super) fn remove_unused(&mut self, name: &str, id: &str) {
        if !self.pods.iter().any(|used| used == id) {
            self.arrive(index(name), &Call::Remove(id.to_owned()));
        }
    }
}

fn reference(which: usize) -> ControllerRef {
    let host = format!("pod{}", which + 1);
    ControllerRef {
        name: format!("{host}:8090"),
        label_value: host.clone(),
        host,
        port: 8090,
        label_key: "vipu".to_owned(),
    }
}

fn index(name: &str) -> usize {
    usize::from(name == "pod2:8090")
}
