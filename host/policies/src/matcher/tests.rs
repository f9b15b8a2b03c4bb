//! Requests that a policy matches, and conditions that are refused.

use std::sync::Arc;

use serde_json::json;

use super::condition::{BRACKETS, OPERATORS, SIGNS};
use super::*;
use crate::large_stack;
use crate::match_input::namespace_object;

fn matcher(spec: Value) -> Result<Matcher, MatchError> {
    Matcher::new(
        Hook::Validation,
        Some(&serde_json::from_value(spec).unwrap()),
    )
}

fn matches(spec: Value) -> Result<bool, EvaluationError> {
    let labels = Labels::from([("team".to_owned(), "vision".to_owned())]);
    let object = json!({"metadata": {"labels": {"size": "large"}}, "spec": {"jobInstances": 3}});
    let input = MatchInput {
        object: Some(Arc::new(object)),
        old_object: None,
        request: Arc::new(json!({"operation": "CREATE", "namespace": "research"})),
        namespace_object: namespace_object("research", Some(&labels)),
    };
    let matcher = matcher(spec).unwrap();
    let selects = matcher.selects(&MatchSubject {
        namespace_labels: Some(&labels),
        old_object: None,
        input: &input,
    })?;
    Ok(selects && matcher.evaluate(&input)?)
}

/// Evaluates a condition on this object.
fn evaluate(expression: &str, object: Value) -> Result<bool, EvaluationError> {
    let input = MatchInput {
        object: Some(Arc::new(object)),
        ..MatchInput::default()
    };
    matcher(condition(expression)).unwrap().evaluate(&input)
}

fn condition(expression: &str) -> Value {
    json!({"matchConditions": [{"name": "c", "expression": expression}]})
}

#[test]
fn everything_must_agree() {
    let team = |team: &str| json!({"namespaceSelector": {"matchLabels": {"team": team}}});
    let size = |operator: &str| {
        json!({"objectSelector": {"matchExpressions": [
            {"key": "size", "operator": operator, "values": ["large"]},
        ]}})
    };
    for (spec, expected) in [
        (json!({}), true),
        (team("vision"), true),
        (team("speech"), false),
        (size("In"), true),
        (size("NotIn"), false),
        (condition("object.spec.jobInstances > 2"), true),
        (condition("request.namespace == 'other'"), false),
        (condition("oldObject == null"), true),
        (condition("!has(object.spec.launcher)"), true),
        (condition("request.operation in ['CREATE', 'UPDATE']"), true),
        (
            condition("namespaceObject.metadata.labels.team == 'vision'"),
            true,
        ),
        (condition("namespaceObject.metadata.name == 'other'"), false),
    ] {
        assert_eq!(matches(spec.clone()), Ok(expected), "{spec}");
    }
}

#[test]
fn the_labels_of_the_previous_object_select_an_update_as_those_of_the_new_one() {
    let equal = json!({"matchLabels": {"team": "a"}});
    let other =
        json!({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]});
    let missing = json!({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]});
    let (a, b, none) = (json!({"team": "a"}), json!({"team": "b"}), Value::Null);
    for (selector, old, new, expected) in [
        // A creation has no previous object.
        (&equal, None, &a, true),
        (&equal, None, &none, false),
        (&missing, None, &a, false),
        (&equal, Some(&a), &a, true),
        (&equal, Some(&a), &none, true),
        (&equal, Some(&a), &b, true),
        (&equal, Some(&none), &a, true),
        (&equal, Some(&b), &none, false),
        (&other, Some(&b), &a, true),
        (&other, Some(&a), &a, false),
        (&missing, Some(&none), &a, true),
        (&missing, Some(&a), &none, true),
        (&missing, Some(&a), &b, false),
    ] {
        let labelled = |labels: &Value| json!({"metadata": {"labels": labels}});
        let input = MatchInput {
            object: Some(Arc::new(labelled(new))),
            ..MatchInput::default()
        };
        let old = old.map(labelled);
        let selects = matcher(json!({"objectSelector": selector}))
            .unwrap()
            .selects(&MatchSubject {
                namespace_labels: None,
                old_object: old.as_ref(),
                input: &input,
            });
        assert_eq!(selects, Ok(expected), "{selector}: {old:?} to {new}");
    }
}

#[test]
fn one_condition_that_is_false_settles_it_whatever_becomes_of_the_others() {
    let both = |second: &str| {
        json!({"matchConditions": [
            {"name": "broken", "expression": "object.spec.nothing.at.all"},
            {"name": "other", "expression": second},
        ]})
    };
    assert_eq!(matches(both("false")), Ok(false));
    assert_eq!(matches(both("true")).unwrap_err().name, "broken");
}

#[test]
fn an_invalid_expression_is_reported() {
    let error = matcher(condition("object.spec ==")).unwrap_err();
    assert!(
        error.to_string().contains("c is no CEL expression"),
        "{error}"
    );
}

#[test]
fn an_expression_as_deep_as_it_may_be_ends_nothing_but_itself() {
    let nested = |open: &str, close: &str, times: usize| {
        format!("{}true{}", open.repeat(times), close.repeat(times))
    };
    for (deep, is_read) in [
        (nested("(", ")", 510), false),
        (nested("!", "", 1_020), false),
        (nested("[", "]", 510), false),
        ("1+".repeat(500) + "1 > 0", false),
        ("object".to_owned() + &".a".repeat(500), false),
        (nested("(", ")", BRACKETS), true),
        (nested("!", "", SIGNS), true),
        ("1+".repeat(OPERATORS - 1) + "1 > 0", true),
        ("object".to_owned() + &".a".repeat(OPERATORS), true),
        ("true ? true : ".repeat(OPERATORS / 3) + "true", true),
        (nested("[1].all(x, ", ")", BRACKETS), true),
    ] {
        assert!(deep.len() <= 1_024);
        // Begun in a thread whose stack is as small as those of the operator.
        let evaluated = std::thread::Builder::new()
            .stack_size(2 << 20)
            .spawn(move || {
                let matcher = matcher(condition(&deep)).ok()?;
                let evaluated = large_stack::run(|| matcher.evaluate(&MatchInput::default()));
                Some(evaluated.is_ok())
            });
        let evaluated = evaluated.unwrap().join().expect("it is evaluated");
        assert_eq!(evaluated.is_some(), is_read);
    }
}

#[test]
fn fifteen_loops_in_one_another_are_refused_when_they_are_loaded() {
    let loops = |list: &str| {
        let looped = |inner, at| format!("{list}.all(x{at}, {inner})");
        (0..15).fold("true".to_owned(), looped)
    };
    for list in [
        "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]",
        "object.spec.items",
        "object",
    ] {
        let expression = loops(list);
        let error = matcher(condition(&expression)).unwrap_err();
        let MatchError::Cost { name, cost, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(name, "c");
        assert!(*cost >= 1_000_000_000_000_000, "{cost}");
        let reported = error.to_string();
        assert!(
            reported.contains("the limit for an expression is 1000000"),
            "{reported}"
        );
        assert!(reported.contains(&expression[..60]), "{reported}");
    }
}

#[test]
fn many_loops_that_are_each_small_enough_are_refused_together() {
    let expression = "object.a.all(x, object.a.all(y, x != y))";
    let conditions: Vec<_> = (0..16)
        .map(|at| json!({"name": format!("c{at}"), "expression": expression}))
        .collect();
    assert!(matcher(json!({"matchConditions": [conditions[0]]})).is_ok());
    let error = matcher(json!({"matchConditions": conditions})).unwrap_err();
    assert!(matches!(error, MatchError::Costs { .. }), "{error}");
}

#[test]
fn what_people_write_is_loaded() {
    for expression in [
        "object.spec.worker.template.spec.containers.all(c, c.env.all(e, e.name != 'DEBUG'))",
        "object.spec.template.spec.containers.exists(c, object.spec.template.spec.containers.exists(d, \
         c.name == d.name))",
        "object.metadata.labels.exists(k, k.startsWith('team.example.com/'))",
        "request.userInfo.groups.exists(g, g in ['system:masters', 'admins'])",
        "object.spec.items.map(i, i.name).filter(n, n.matches('^[a-z0-9]{1,63}$')).size() > 2",
        "object.spec == oldObject.spec",
        "has(object.spec.launcher) && object.spec.launcher.command[0] == 'mpirun'",
    ] {
        let loaded = matcher(condition(expression));
        assert!(loaded.is_ok(), "{expression}: {}", loaded.unwrap_err());
    }
}

#[test]
fn a_huge_object_is_refused_before_anything_is_evaluated() {
    let pairs = "object.items.all(a, object.items.all(b, a != b || a == b))";
    let items = |count: usize| json!({"items": vec![7; count]});
    assert_eq!(evaluate(pairs, items(100)), Ok(true));
    let error = evaluate(pairs, items(2_000)).unwrap_err();
    assert!(error.reason.contains("steps for this request"), "{error}");
    // Too large to be handed over at all.
    let error = evaluate("has(object.items)", items(200_000)).unwrap_err();
    assert!(error.reason.contains("the request is too large"), "{error}");
    // Parts that are not read do not count.
    assert_eq!(
        evaluate("request == null || true", items(200_000)),
        Ok(true)
    );
}

#[test]
fn one_condition_that_costs_too_much_leaves_the_others_their_word() {
    let pairs = "object.items.all(a, object.items.all(b, a != b))";
    let both = |second: &str| {
        json!({"matchConditions": [
            {"name": "pairs", "expression": pairs},
            {"name": "other", "expression": second},
        ]})
    };
    let input = MatchInput {
        object: Some(Arc::new(json!({"items": vec![7; 2_000]}))),
        ..MatchInput::default()
    };
    let evaluate = |spec| matcher(spec).unwrap().evaluate(&input);
    assert_eq!(evaluate(both("size(object.items) > 9999")), Ok(false));
    let error = evaluate(both("size(object.items) > 9")).unwrap_err();
    assert_eq!(error.name, "pairs");
}

#[test]
fn a_reason_quotes_no_whole_object() {
    let object = json!({"items": vec!["secret"; 10_000]});
    let error = evaluate("object.items + 1 == 2", object).unwrap_err();
    assert!(error.reason.len() < 300, "{} bytes", error.reason.len());
}

#[test]
fn a_namespace_object_needs_the_labels_of_the_namespace() {
    let unknown = matcher(condition("namespaceObject.metadata.name == 'a'")).unwrap();
    let error = unknown.evaluate(&MatchInput::default()).unwrap_err();
    assert!(error.reason.contains("labels of the namespace"), "{error}");
    assert!(
        matcher(condition("true"))
            .unwrap()
            .evaluate(&MatchInput::default())
            .unwrap()
    );
}

#[test]
fn selectors_apply_even_if_the_conditions_cannot_be_read() {
    let mut spec = condition("object.spec ==");
    spec["namespaceSelector"] = json!({"matchLabels": {"team": "vision"}});
    let selectors = Matcher::of_selectors(Some(&serde_json::from_value(spec).unwrap()));
    let selects = |team: &str| {
        let labels = Labels::from([("team".to_owned(), team.to_owned())]);
        let input = MatchInput::default();
        selectors.selects(&MatchSubject {
            namespace_labels: Some(&labels),
            old_object: None,
            input: &input,
        })
    };
    assert_eq!(
        (selects("vision"), selects("speech")),
        (Ok(true), Ok(false))
    );
}
