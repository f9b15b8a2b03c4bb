//! Tables of expectations that hold and that do not.

use ipu_api::guest::admission::{Defaulted, Verdict};
use serde_json::{Value, json};

use super::super::host_verdict::host_verdict;
use super::*;

fn request(hook: Hook) -> Value {
    match hook {
        Hook::Defaulting | Hook::Validation => {
            json!({"operation": "create", "object": {"spec": {}}})
        }
        Hook::Placement => json!({
            "request": {"namespace": "n", "owner": "o", "ipus": 4, "gcds": 1},
            "controllers": [{"name": "a", "totalIpus": 8, "usedIpus": 0, "largestFree": 8}],
        }),
    }
}

fn failures(hook: Hook, expect: &Value, answer: &Result<Answer, GuestError>) -> Vec<String> {
    let document = json!({"request": request(hook), "expect": expect});
    let case = Case::parse(hook, document).unwrap();
    let ask = |_: &PolicyRequest| panic!("it is asked once");
    let verdict = host_verdict(&case.request, answer, ask);
    case.failures(answer, &verdict)
}

fn answers() -> [(Hook, Answer); 6] {
    let violations = vec![Violation {
        field: "spec.a".to_owned(),
        message: "3 is odd".to_owned(),
    }];
    let verdict = Verdict {
        violations: violations.clone(),
        warnings: vec!["old spelling".to_owned()],
    };
    let defaulted = Defaulted {
        object: json!({"spec": {"b": 2}}),
        warnings: vec![],
    };
    let defaulted = Defaulting::Defaulted(defaulted);
    let refused = Defaulting::Refused { violations };
    let passed = PassedOver {
        controller: "a".to_owned(),
        reason: "is full".to_owned(),
    };
    [
        (Hook::Validation, Answer::Verdict(verdict)),
        (Hook::Defaulting, Answer::Defaulting(defaulted)),
        (Hook::Defaulting, Answer::Defaulting(refused)),
        (
            Hook::Placement,
            Answer::Decision(Decision::Try("a".to_owned())),
        ),
        (
            Hook::Placement,
            Answer::Decision(Decision::Wait(vec![passed])),
        ),
        (
            Hook::Placement,
            Answer::Decision(Decision::Reject("too large".to_owned())),
        ),
    ]
}

#[test]
fn every_expectation_can_hold_and_can_fail() {
    let [verdict, defaulted, _, chosen, waits, rejects] = answers();
    let patch = json!([{"op": "add", "path": "/spec/b", "value": 2}]);
    let cases = [
        (
            &verdict,
            json!({"verdict": "refused"}),
            json!({"verdict": "allowed"}),
        ),
        (
            &verdict,
            json!({"violations": [{"field": "spec.a", "message": "odd"}]}),
            json!({"violations": [{"field": "spec.a", "message": "even"}]}),
        ),
        (
            &verdict,
            json!({"violations": [{"field": "spec.a"}]}),
            json!({"violations": []}),
        ),
        (
            &verdict,
            json!({"warnings": ["old"]}),
            json!({"warnings": ["new"]}),
        ),
        (&defaulted, json!({"patch": patch}), json!({"patch": []})),
        (
            &defaulted,
            json!({"answer": {"object": {"spec": {"b": 2}}, "warnings": []}}),
            json!({"answer": {"object": {"spec": {}}, "warnings": []}}),
        ),
        (&chosen, json!({"chosen": "a"}), json!({"chosen": "b"})),
        (
            &chosen,
            json!({"answer": {"try": "a"}}),
            json!({"rejects": ""}),
        ),
        (
            &waits,
            json!({"waits": [{"controller": "a", "reason": "full"}]}),
            json!({"waits": [{"controller": "a", "reason": "unreachable"}]}),
        ),
        (&waits, json!({"waits": []}), json!({"chosen": "a"})),
        (&rejects, json!({"rejects": "large"}), json!({"waits": []})),
        (
            &rejects,
            json!({"verdict": "followed"}),
            json!({"error": "trapped"}),
        ),
    ];
    for (answer, holds, fails) in cases {
        holds_and_fails(answer, &holds, &fails);
    }
}

/// The first expectation holds of the answer, and the second one fails.
fn holds_and_fails((hook, answer): &(Hook, Answer), holds: &Value, fails: &Value) {
    let of = |expect| failures(*hook, expect, &Ok(answer.clone()));
    assert_eq!(of(holds), Vec::<String>::new(), "{holds}");
    assert_eq!(of(fails).len(), 1, "{fails}: {:?}", of(fails));
}

#[test]
fn violations_report_what_a_defaulting_policy_refuses() {
    let [_, defaulted, refused, ..] = answers();
    let patch = json!([{"op": "add", "path": "/spec/b", "value": 2}]);
    let cases = [
        (
            &defaulted,
            json!({"violations": []}),
            json!({"violations": [{"field": "spec.a"}]}),
        ),
        (
            &refused,
            json!({"violations": [{"field": "spec.a", "message": "odd"}]}),
            json!({"violations": []}),
        ),
        (
            &refused,
            json!({"verdict": "refused"}),
            json!({"patch": patch}),
        ),
    ];
    for (answer, holds, fails) in cases {
        holds_and_fails(answer, &holds, &fails);
    }
}

#[test]
fn a_call_that_fails_is_a_failure_unless_it_was_expected() {
    let trapped = || Err(GuestError::BadAnswer("no JSON".to_owned()));
    for (expect, count) in [
        (json!({"error": "breaks the contract"}), 0),
        (json!({"verdict": "failed"}), 0),
        (json!({"error": "deadline"}), 1),
        (json!({"verdict": "refused"}), 2),
        (json!({"verdict": "failed", "violations": []}), 1),
    ] {
        let found = failures(Hook::Validation, &expect, &trapped());
        assert_eq!(found.len(), count, "{expect}: {found:?}");
    }
}

#[test]
fn an_invalid_case_is_reported_with_the_reason() {
    let request = request(Hook::Validation);
    for (document, expected) in [
        (json!([]), "it is not a case"),
        (
            json!({"expect": {"verdict": "allowed"}}),
            "missing field `request`",
        ),
        (
            json!({"request": request, "expect": {}}),
            "it could not fail",
        ),
        (
            json!({"request": request, "expect": {"chosen": "a"}}),
            "the answer of a validation guest has no field \"chosen\"",
        ),
        (
            json!({"request": request, "expect": {"patches": []}}),
            "unknown field `patches`",
        ),
        (
            json!({"request": {}, "expect": {"verdict": "allowed"}}),
            "no request to a validation guest",
        ),
        (
            json!({"settings": 1, "request": request, "expect": {"verdict": "allowed"}}),
            "at \"settings\"",
        ),
    ] {
        let error = Case::parse(Hook::Validation, document).unwrap_err();
        assert!(explain(&error).contains(expected), "{error}");
    }
}
