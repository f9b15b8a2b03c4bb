//! Pure: what a placement policy is asked for an IPUPartition, and what its answer means.

use crate::api::ipupartition::{
    AttemptOutcome, ControllerRef, IPUPartition, IPUPartitionStatus, WaitingReason,
};
use crate::vipu::closed::{Closed, Closure};
use crate::wasm::model::{ControllerView, Decision, PlaceAttempt, PlaceOutcome, PlaceRequest};

use super::knowledge::Answer;

/// Longest reason that a status keeps, in characters.
const REASON_MAX: usize = 512;

/// What the policy is asked.
pub fn request(partition: &IPUPartition) -> PlaceRequest {
    let spec = &partition.spec;
    PlaceRequest {
        namespace: spec.owner.namespace.clone(),
        owner: spec.owner.name.clone(),
        slot: spec.slot,
        ipus: spec.ipus,
        gcds: spec.gcds,
        node_selector: spec.options.node_selector.clone(),
    }
}

/// The tries of this round: controllers that refused, and those that do not answer while they may
/// hold an attempt whose end is not known.
pub fn tried(status: &IPUPartitionStatus) -> Vec<PlaceAttempt> {
    let attempts = status.attempts.iter().filter_map(|attempt| {
        let (outcome, fallback) = match attempt.outcome {
            AttemptOutcome::Refused => (PlaceOutcome::Refused, "it refused"),
            AttemptOutcome::Unknown | AttemptOutcome::Created => (
                PlaceOutcome::Unreachable,
                "it does not answer, and may hold an earlier attempt",
            ),
            AttemptOutcome::Removed => return None,
        };
        Some(PlaceAttempt {
            controller: attempt.controller.name.clone(),
            outcome,
            reason: attempt
                .reason
                .clone()
                .unwrap_or_else(|| fallback.to_owned()),
        })
    });
    attempts.collect()
}

/// The policy's decision, with the controller that it names. A name that is not in the list can
/// only come from a list that changed meanwhile: the partition waits and is placed again.
pub fn answer(decision: Decision, controllers: &[ControllerRef]) -> Answer {
    match decision {
        Decision::Try(name) => match controllers.iter().find(|known| known.name == name) {
            Some(controller) => Answer::Try(controller.clone()),
            None => Answer::Wait(vec![WaitingReason {
                controller: name,
                reason: "it was taken off the admin's list of controllers just now".to_owned(),
            }]),
        },
        Decision::Wait(passed_over) => {
            let reasons = passed_over.into_iter().map(|passed| WaitingReason {
                controller: passed.controller,
                reason: shortened(&passed.reason),
            });
            Answer::Wait(reasons.collect())
        }
        Decision::Reject(why) => Answer::Reject(shortened(&why)),
    }
}

/// Why nothing is made on a controller that the admin has closed.
pub fn shut_out(view: &ControllerView, closed: &Closed) -> WaitingReason {
    let reason = match closed.get(&view.name) {
        Some(Closure::Draining) => "it is being drained",
        Some(Closure::Cordoned) | None => "it is cordoned",
    };
    WaitingReason {
        controller: view.name.clone(),
        reason: format!("{reason}, so that nothing new is made on it"),
    }
}

/// Text from outside, cut to what a status may hold.
pub fn shortened(text: &str) -> String {
    match text.char_indices().nth(REASON_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
