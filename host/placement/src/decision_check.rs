//! Pure: checks the decision of a placement guest.

use std::collections::HashSet;

use ipu_api::guest::placement::{
    ControllerView, Decision, PartitionRequest, PassedOver, PlaceAttempt,
};

/// Checks whether the operator can carry out a decision. Returns why not.
pub fn check_decision(
    decision: Decision,
    request: &PartitionRequest,
    controllers: &[ControllerView],
    attempts: &[PlaceAttempt],
) -> Result<Decision, String> {
    match &decision {
        Decision::Try(name) => check_controller(name, request, controllers, attempts)?,
        Decision::Wait(passed_over) => check_skipped(passed_over, controllers)?,
        Decision::Reject(why) if why.trim().is_empty() => {
            return Err("it rejected the request without a reason".to_owned());
        }
        Decision::Reject(_) => {}
    }
    Ok(decision)
}

fn check_controller(
    name: &str,
    request: &PartitionRequest,
    controllers: &[ControllerView],
    attempts: &[PlaceAttempt],
) -> Result<(), String> {
    let Some(controller) = controllers.iter().find(|seen| seen.name == name) else {
        return Err(format!("it chose {name:?}, which is no known controller"));
    };
    if attempts.iter().any(|attempt| attempt.controller == name) {
        return Err(format!("it chose {name}, which was tried already"));
    }
    if let Some(reason) = &controller.unreachable {
        return Err(format!("it chose {name}, which does not answer: {reason}"));
    }
    if let Some(reason) = &controller.unschedulable {
        return Err(format!("it chose {name}, although {reason}"));
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
    Ok(())
}

/// A wait must name at least one controller of the request, each at most once: the user sees the
/// reasons, and the status has a bounded size.
fn check_skipped(passed_over: &[PassedOver], controllers: &[ControllerView]) -> Result<(), String> {
    if passed_over.is_empty() && !controllers.is_empty() {
        return Err(format!(
            "its wait names none of the {} controllers that it was shown",
            controllers.len()
        ));
    }
    let mut left: HashSet<&str> = controllers.iter().map(|seen| &*seen.name).collect();
    for PassedOver { controller, .. } in passed_over {
        if left.remove(&**controller) {
            continue;
        }
        let is_known = controllers.iter().any(|seen| seen.name == *controller);
        return Err(if is_known {
            format!("its wait names {controller} twice")
        } else {
            format!("its wait names {controller:?}, which is no known controller")
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ipu_api::guest::placement::PlaceOutcome;

    use super::*;
    use crate::samples;

    type Change = fn(&mut PartitionRequest, &mut Vec<ControllerView>, &mut Vec<PlaceAttempt>);

    #[test]
    fn an_invalid_decision_is_refused() {
        let cases: [(Change, &str); 6] = [
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
            (
                |_, controllers, _| {
                    controllers[2].unschedulable = Some("2 are cordoned".to_owned());
                },
                "although 2 are cordoned",
            ),
            (|request, _, _| request.ipus = 32, "16 IPUs in all, for 32"),
            (
                |request, _, _| {
                    request
                        .node_selector
                        .insert("ipunode".to_owned(), "other".to_owned());
                },
                "ask for other",
            ),
        ];
        let chosen = || Decision::Try("empty:8090".to_owned());
        let (request, controllers) = (samples::place_request(), samples::controllers());
        assert!(check_decision(chosen(), &request, &controllers, &[]).is_ok());
        for (change, expected) in cases {
            let (mut request, mut controllers) = (request.clone(), controllers.clone());
            let mut attempts = Vec::new();
            change(&mut request, &mut controllers, &mut attempts);
            let refusal = check_decision(chosen(), &request, &controllers, &attempts).unwrap_err();
            assert!(refusal.contains(expected), "{refusal}");
        }
    }

    #[test]
    fn a_wait_names_each_controller_of_the_request_at_most_once() {
        let (request, controllers) = (samples::place_request(), samples::controllers());
        let wait = |names: &[&str]| {
            let passed = names.iter().map(|name| PassedOver {
                controller: (*name).to_owned(),
                reason: "full".to_owned(),
            });
            check_decision(
                Decision::Wait(passed.collect()),
                &request,
                &controllers,
                &[],
            )
        };
        for good in [
            &["empty:8090"][..],
            &["empty:8090", "full:8090", "unreachable:8090"],
        ] {
            assert!(wait(good).is_ok(), "{good:?}");
        }
        for (bad, expected) in [
            (&[][..], "names none of the 3 controllers"),
            (
                &["every controller"],
                "\"every controller\", which is no known",
            ),
            (&["full:8090", "", ""], "\"\", which is no known"),
            (
                &["full:8090", "empty:8090", "full:8090"],
                "names full:8090 twice",
            ),
            (&vec![""; 170_000], "\"\", which is no known"),
        ] {
            let refusal = wait(bad).unwrap_err();
            assert!(refusal.contains(expected), "{refusal}");
        }
        let nobody = check_decision(Decision::Wait(Vec::new()), &request, &[], &[]);
        assert_eq!(nobody, Ok(Decision::Wait(Vec::new())));
    }

    #[test]
    fn a_rejection_needs_a_reason() {
        let reject = |why: &str| {
            let decision = Decision::Reject(why.to_owned());
            check_decision(decision, &samples::place_request(), &[], &[])
        };
        assert!(reject("32 IPUs, and none has more than 16").is_ok());
        assert!(reject(" ").unwrap_err().contains("without a reason"));
    }
}
