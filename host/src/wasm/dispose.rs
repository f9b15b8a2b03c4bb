//! Pure: the host disposes. Checks a placement policy's decision, and decides where it gave none.

use guest_serial_walk::walk;

use super::model::{ControllerView, Decision, PassedOver, PlaceAttempt, PlaceRequest};

/// The decision, if it is one that can be carried out; otherwise why not.
pub(super) fn checked(
    decision: Decision,
    request: &PlaceRequest,
    controllers: &[ControllerView],
    attempts: &[PlaceAttempt],
) -> Result<Decision, String> {
    let Decision::Try(name) = &decision else {
        return Ok(decision);
    };
    let Some(controller) = controllers.iter().find(|seen| seen.name == *name) else {
        return Err(format!("it chose {name:?}, which is no known controller"));
    };
    if attempts.iter().any(|attempt| attempt.controller == *name) {
        return Err(format!("it chose {name}, which was tried already"));
    }
    if let Some(reason) = &controller.unreachable {
        return Err(format!("it chose {name}, which does not answer: {reason}"));
    }
    if controller.total_ipus < request.ipus {
        return Err(format!(
            "it chose {name}, which has {} IPUs in all, for {} IPUs",
            controller.total_ipus, request.ipus
        ));
    }
    let wanted = request.node_selector.get(&controller.label_key);
    if let Some(value) = wanted.filter(|value| **value != controller.label_value) {
        return Err(format!(
            "it chose {name}, whose nodes are labelled {}={}, for Pods that ask for {value}",
            controller.label_key, controller.label_value
        ));
    }
    Ok(decision)
}

/// What the built-in serial walk decides, run natively.
pub(super) fn serial_walk(
    request: &PlaceRequest,
    controllers: &[ControllerView],
    attempts: &[PlaceAttempt],
) -> Decision {
    let request = walk::Request {
        ipus: request.ipus,
        node_selector: request.node_selector.clone().into_iter().collect(),
    };
    let controllers: Vec<_> = controllers
        .iter()
        .map(|controller| walk::Controller {
            name: controller.name.clone(),
            label_key: controller.label_key.clone(),
            label_value: controller.label_value.clone(),
            unreachable: controller.unreachable.clone(),
            total_ipus: controller.total_ipus,
            used_ipus: controller.used_ipus,
            largest_free: controller.largest_free,
        })
        .collect();
    let attempts: Vec<_> = attempts
        .iter()
        .map(|attempt| walk::Attempt {
            controller: attempt.controller.clone(),
            reason: attempt.reason.clone(),
        })
        .collect();
    match walk::place(&request, &controllers, &attempts) {
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
    use crate::wasm::model::PlaceOutcome;
    use crate::wasm::samples;

    type Change = fn(&mut PlaceRequest, &mut Vec<ControllerView>, &mut Vec<PlaceAttempt>);

    #[test]
    fn a_decision_that_cannot_be_carried_out_is_refused() {
        let cases: [(Change, &str); 5] = [
            (|_, controllers, _| controllers.clear(), "no known"),
            (
                |_, _, attempts| {
                    attempts.push(PlaceAttempt {
                        controller: "empty:8090".to_owned(),
                        outcome: PlaceOutcome::Refused,
                        reason: "no".to_owned(),
                    });
                },
                "tried already",
            ),
            (
                |_, controllers, _| controllers[2].unreachable = Some("down".to_owned()),
                "does not answer: down",
            ),
            (|request, _, _| request.ipus = 32, "16 IPUs in all, for 32"),
            (
                |request, _, _| {
                    request
                        .node_selector
                        .insert("vipu".to_owned(), "other".to_owned());
                },
                "ask for other",
            ),
        ];
        let chosen = || Decision::Try("empty:8090".to_owned());
        let (request, controllers) = (samples::place_request(), samples::controllers());
        assert!(checked(chosen(), &request, &controllers, &[]).is_ok());
        for (change, expected) in cases {
            let (mut request, mut controllers) = (request.clone(), controllers.clone());
            let mut attempts = Vec::new();
            change(&mut request, &mut controllers, &mut attempts);
            let refusal = checked(chosen(), &request, &controllers, &attempts).unwrap_err();
            assert!(refusal.contains(expected), "{refusal}");
        }
    }

    #[test]
    fn the_native_walk_finds_the_one_with_room() {
        let decision = serial_walk(&samples::place_request(), &samples::controllers(), &[]);
        assert_eq!(decision, Decision::Try("empty:8090".to_owned()));
    }
}
