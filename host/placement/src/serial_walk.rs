//! Pure: the built-in serial walk as native code, if no placement policy decides.

use guest_serial_walk::walk;
use ipu_api::guest::placement::{
    ControllerView, Decision, PartitionRequest, PassedOver, PlaceAttempt, PlaceOutcome,
};

/// Decides by the built-in serial walk.
pub fn serial_walk(
    request: &PartitionRequest,
    controllers: &[ControllerView],
    attempts: &[PlaceAttempt],
) -> Decision {
    let node_selector: Vec<_> = request.node_selector.clone().into_iter().collect();
    let requirements = walk::Requirements {
        ipus: request.ipus,
        node_selector: &node_selector,
    };
    let controllers: Vec<_> = controllers.iter().map(controller).collect();
    let attempts: Vec<_> = attempts.iter().map(attempt).collect();
    decision(walk::place(requirements, &controllers, &attempts))
}

/// The walk does not look at the free blocks.
fn controller(view: &ControllerView) -> walk::Controller {
    walk::Controller {
        name: view.name.clone(),
        label_key: view.label_key.clone(),
        label_value: view.label_value.clone(),
        has_nodes: view.has_nodes,
        unreachable: view.unreachable.clone(),
        unschedulable: view.unschedulable.clone(),
        total_ipus: view.total_ipus,
        used_ipus: view.used_ipus,
        largest_free: view.largest_free,
        free_blocks: Vec::new(),
        failures: view.failures,
    }
}

fn attempt(attempt: &PlaceAttempt) -> walk::Attempt {
    walk::Attempt {
        controller: attempt.controller.clone(),
        outcome: match attempt.outcome {
            PlaceOutcome::Refused => walk::Outcome::Refused,
            PlaceOutcome::Unreachable => walk::Outcome::Unreachable,
        },
        reason: attempt.reason.clone(),
    }
}

fn decision(decision: walk::Decision) -> Decision {
    match decision {
        walk::Decision::Try(controller) => Decision::Try(controller),
        walk::Decision::Wait(passed_over) => Decision::Wait(
            passed_over
                .into_iter()
                .map(|walk::PassedOver { controller, reason }| PassedOver { controller, reason })
                .collect(),
        ),
        walk::Decision::Reject(reason) => Decision::Reject(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn the_native_walk_finds_the_controller_with_free_capacity() {
        let decision = serial_walk(&samples::place_request(), &samples::controllers(), &[]);
        assert_eq!(decision, Decision::Try("empty:8090".to_owned()));
    }
}
