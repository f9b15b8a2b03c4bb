//! Pure: the host disposes. Checks a placement policy's decision.

use super::model::{ControllerView, Decision, PlaceAttempt, PlaceRequest};

/// The decision, if it is one that can be carried out; otherwise why not.
pub fn checked(
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
}
