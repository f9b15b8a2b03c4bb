//! Thousands of random bodies: rejected or accepted correctly, without a panic.

use proptest::prelude::*;
use proptest::test_runner::Config;
use serde_json::{Value, json};

use super::fixture::create_body;
use crate::create_request as body;
use crate::invariants::{check_create_request, check_problem, check_query_request};

/// The number of cases is `IPU_OPERATOR_FUZZ_CASES`.
fn cases() -> Config {
    let cases = std::env::var("IPU_OPERATOR_FUZZ_CASES").ok();
    Config {
        cases: cases.and_then(|cases| cases.parse().ok()).unwrap_or(2_000),
        failure_persistence: None,
        ..Config::default()
    }
}

/// Values that are nearly valid, and any others.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        (0_u32..70).prop_map(Value::from),
        (0_u32..40).prop_map(|power| json!(1_u64 << power)),
        "[a-z0-9.-]{0,12}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        Just(json!("four")),
        Just(json!(1e3)),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key(), inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    const KNOWN: [&str; 17] = [
        "ownerMetadata",
        "labels",
        "annotations",
        "name",
        "owner",
        "slot",
        "ipus",
        "gcds",
        "options",
        "replicas",
        "reconfigurable",
        "nodeSelector",
        "size",
        "namespace",
        "uid",
        "kind",
        "apiVersion",
    ];
    prop_oneof![
        3 => prop::sample::select(&KNOWN[..]).prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

/// A valid body with some of its parts changed, added or removed.
fn mutated() -> impl Strategy<Value = Value> {
    let places = [None, Some("owner"), Some("options"), Some("ownerMetadata")];
    let place = prop::sample::select(places.to_vec());
    let change = (place, key(), prop::option::of(value()));
    prop::collection::vec(change, 0..3).prop_map(|changes| {
        create_body(|body| {
            for (place, key, value) in changes {
                let target = match place {
                    Some(place) => &mut body[place],
                    None => &mut *body,
                };
                if target.is_null() {
                    *target = json!({});
                }
                let Some(fields) = target.as_object_mut() else {
                    continue;
                };
                match value {
                    Some(value) => fields.insert(key, value),
                    None => fields.remove(&key),
                };
            }
        })
    })
}

fn check(text: &[u8]) {
    check_query_request(text);
    check_create_request(text);
}

#[test]
fn mutated_bodies_are_refused_or_right() {
    proptest!(cases(), |(body in mutated())| check(body.to_string().as_bytes()));
}

#[test]
fn any_json_is_refused_or_right() {
    proptest!(cases(), |(body in value())| check(body.to_string().as_bytes()));
}

#[test]
fn any_bytes_are_refused_or_right() {
    let good = create_body(|_| {}).to_string().into_bytes();
    let flips = prop::collection::vec((0..good.len(), any::<u8>()), 0..4);
    proptest!(cases(), |(flips in flips, cut in 0..=good.len(), any in any::<Vec<u8>>())| {
        let mut body = good.clone();
        for (place, byte) in flips {
            body[place] = byte;
        }
        check(&body);
        check(&body[..cut]);
        check(&any);
    });
}

type Change = fn(&mut Value);

/// Changes of a body, and the field that each breaks.
const CHANGES: [(Change, &str); 28] = [
    (|body| body["ipus"] = json!(0), "ipus"),
    (|body| body["ipus"] = json!(3), "ipus"),
    (|body| body["ipus"] = json!(-1), "ipus"),
    (|body| body["ipus"] = json!(1_u64 << 32), "ipus"),
    (|body| body["ipus"] = json!("four"), "ipus"),
    (|body| body["ipus"] = json!(1e3), "ipus"),
    (|body| body["ipus"] = json!(null), "ipus"),
    (
        |body| drop(body.as_object_mut().unwrap().remove("ipus")),
        "ipus",
    ),
    (|body| body["gcds"] = json!(8), "gcds"),
    (|body| body["gcds"] = json!(0), "gcds"),
    (|body| body["slot"] = json!(-1), "slot"),
    (|body| body["name"] = json!("Not_a_name"), "name"),
    (|body| body["name"] = json!(""), "name"),
    (|body| body["name"] = json!("a".repeat(254)), "name"),
    (
        |body| body["owner"]["namespace"] = json!("../kube-system"),
        "owner.namespace",
    ),
    (|body| body["owner"]["name"] = json!(""), "owner.name"),
    (|body| body["owner"]["color"] = json!("red"), "owner.color"),
    (
        |body| body["options"] = json!({"replicas": 0}),
        "options.replicas",
    ),
    (
        |body| body["options"] = json!({"replicas": 3}),
        "options.replicas",
    ),
    (
        |body| body["options"] = json!({"replicas": "two"}),
        "options.replicas",
    ),
    (
        |body| body["options"] = json!({"gangSize": 0}),
        "options.gangSize",
    ),
    (|body| body["ipu"] = json!(4), "ipu"),
    (
        |body| body["ownerMetadata"] = json!("urgent"),
        "ownerMetadata",
    ),
    (
        |body| body["ownerMetadata"] = json!({"gang": 2}),
        "ownerMetadata.gang",
    ),
    (
        |body| body["ownerMetadata"] = json!({"labels": ["a"]}),
        "ownerMetadata.labels",
    ),
    (
        |body| body["ownerMetadata"] = json!({"labels": {"a": 1}}),
        "ownerMetadata.labels.a",
    ),
    (
        |body| body["ownerMetadata"] = json!({"annotations": {"a b": ""}}),
        "ownerMetadata.annotations.a b",
    ),
    (
        |body| body["ownerMetadata"] = json!({"priorityClassName": "No"}),
        "ownerMetadata.priorityClassName",
    ),
];

#[test]
fn what_is_wrong_is_named_field_by_field() {
    for (change, field) in CHANGES {
        let text = create_body(change).to_string();
        let problem = body::read(text.as_bytes()).unwrap_err();
        check_problem(&problem);
        let fields: Vec<_> = problem
            .faults
            .iter()
            .map(|fault| fault.field.as_str())
            .collect();
        assert_eq!(fields, [field], "{text}");
    }
    let twice = r#"{"ipus": 1, "ipus": 2}"#;
    for (text, field) in [
        (twice, "body"),
        ("\u{0}", "body"),
        ("[]", "body"),
        ("", "body"),
    ] {
        assert_eq!(
            body::read(text.as_bytes()).unwrap_err().faults[0].field,
            field
        );
    }
    let many = body::read(br#"{"gcds": 1, "ipu": 4}"#).unwrap_err();
    let fields: Vec<_> = many
        .faults
        .iter()
        .map(|fault| fault.field.as_str())
        .collect();
    assert_eq!(
        fields,
        ["owner", "ipus", "ipu"],
        "one answer names all of them"
    );
}

#[test]
fn owners_of_any_kind_are_taken_and_the_name_is_made_from_them() {
    let text = create_body(|body| {
        body["owner"]["apiVersion"] = json!("example.com/v1");
        body["owner"]["kind"] = json!("Notebook");
        body["ipus"] = json!(1_u64 << 31);
    });
    let request = body::read(text.to_string().as_bytes()).unwrap();
    let again = body::object(request.clone());
    assert_eq!(body::object(request).metadata.name, again.metadata.name);
}

/// A message lists a thousand errors only in part, and a long name only in part.
#[test]
fn an_answer_stays_short_whatever_the_body() {
    let many: serde_json::Map<_, _> = (0..1_000).map(|n| (format!("k{n}"), json!(0))).collect();
    let long = "k".repeat(10_000);
    let pairs: serde_json::Map<_, _> = (0..64).map(|n| (format!("-{n}"), json!("-"))).collect();
    let bodies = [
        create_body(|body| body.as_object_mut().unwrap().extend(many.clone())),
        create_body(|body| body["options"] = Value::Object(many.clone())),
        create_body(|body| body["options"] = json!({"nodeSelector": {long.as_str(): 1}})),
        create_body(|body| body["ownerMetadata"] = json!({"labels": {long.as_str(): 1}})),
        create_body(|body| body["ownerMetadata"] = json!({"labels": pairs, "annotations": pairs})),
        json!({"size": 2, "nodeSelector": {long.as_str(): 1}}),
    ];
    for body in bodies {
        check(body.to_string().as_bytes());
    }
    let many = create_body(|body| body.as_object_mut().unwrap().extend(many));
    let problem = body::read(many.to_string().as_bytes()).unwrap_err();
    assert_eq!(problem.faults.len(), 16);
    assert!(
        problem
            .detail
            .ends_with("; and 984 more parts break a rule")
    );
}
