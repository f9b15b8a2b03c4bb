//! Pure: the built-in serial walk as native code, for where no placement policy decides.

use guest_serial_walk::walk;

use super::model::{ControllerView, Decision, PassedOver, PlaceAttempt, PlaceRequest};

/// What the built-in serial walk decides.
pub fn serial_walk(
    request: &PlaceRequest,
    controllers: &[ControllerView],
    attempts: &[PlaceAttempt],
) -> Decision {
    let controllers: Vec<_> = controllers.iter().map(controller).collect();
    let attempts: Vec<_> = attempts.iter().map(attempt).collect();
    decision(walk::place(&wanted(request), &controllers, &attempts))
}

fn wanted(request: &PlaceRequest) -> walk::Request {
    walk::Request {
        ipus: request.ipus,
        node_selector: request.node_selector.clone().into_iter().collect(),
    }
}

fn controller(view: &ControllerView) -> walk::Controller {
    walk::Controller {
        name: view.name.clone(),
        label_key: view.label_key.clone(),
        label_value: view.label_value.clone(),
        has_nodes: view.has_nodes,
        unreachable: view.unreachable.clone(),
        total_ipus: view.total_ipus,
        used_ipus: view.used_ipus,
        largest_free: view.largest_free,
    }
}

fn attempt(attempt: &PlaceAttempt) -> walk::Attempt {
    walk::Attempt {
        controller: attempt.controller.clone(),
        reason: attempt.reason.clone(),
    }
}

fn decision(decision: walk::Decision) -> Decision {
    match decision {
        walk::Decision::Try(controller) => Decision::Try(controller),
        walk::Decision::Wait(passed_over) => Decision::Wait(
            passed_over
                .into_iter()
                .map(|(controller, reason)| PassedOver { controller, reason })
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
    fn the_native_walk_finds_the_one_with_room() {
        let decision = serial_walk(&samples::place_request(), &samples::controllers(), &[]);
        assert_eq!(decision, Decision::Try("empty:8090".to_owned()));
    }
}
