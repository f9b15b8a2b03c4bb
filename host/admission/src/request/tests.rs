//! Parsing of AdmissionReviews, and the errors of invalid bodies.

use ipu_api::guest::admission::Operation;
use serde_json::{Value, json};

use super::{AdmissionRequest, DEFAULTED, RULED, ReviewVersion, parse};

pub(crate) fn review(change: impl FnOnce(&mut Value)) -> Value {
    let mut review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "0c9a8d74",
            "kind": { "group": "graphcore.ai", "version": "v1alpha1", "kind": "IPUJob" },
            "resource": { "group": "graphcore.ai", "version": "v1alpha1", "resource": "ipujobs" },
            "name": "mnist",
            "namespace": "default",
            "operation": "CREATE",
            "userInfo": { "username": "jane" },
            "object": {
                "apiVersion": "graphcore.ai/v1alpha1",
                "kind": "IPUJob",
                "metadata": { "name": "mnist", "namespace": "default" },
                "spec": { "jobInstances": 1, "ipusPerJobInstance": "2" },
            },
            "oldObject": null,
        },
    });
    change(&mut review);
    review
}

/// The request of `review`, with one change.
pub(crate) fn request(change: impl FnOnce(&mut Value)) -> AdmissionRequest {
    parse(
        review(|review| change(&mut review["request"]))
            .to_string()
            .as_bytes(),
    )
    .unwrap()
}

/// Makes it an update of an object that was the same but for `old`.
pub(crate) fn updating(old: impl FnOnce(&mut Value)) -> impl FnOnce(&mut Value) {
    move |request| {
        request["operation"] = json!("UPDATE");
        request["oldObject"] = request["object"].clone();
        old(&mut request["oldObject"]);
    }
}

#[test]
fn both_versions_are_read() {
    let request = request(|_| {});
    assert_eq!(request.version, ReviewVersion::V1);
    assert_eq!(request.operation, Some(Operation::Create));
    assert_eq!(
        (request.uid.as_str(), request.name.as_str()),
        ("0c9a8d74", "mnist")
    );
    let older = review(|review| review["apiVersion"] = json!("admission.k8s.io/v1beta1"));
    let older = parse(older.to_string().as_bytes()).unwrap();
    assert_eq!(older.version, ReviewVersion::V1Beta1);
}

#[test]
fn who_asks_is_read_and_bounded() {
    let scaled = request(|r| {
        r["userInfo"]["groups"] = json!(vec!["team"; 300]);
        r["dryRun"] = json!(true);
        r["subResource"] = json!("scale");
    });
    assert_eq!(scaled.user.name, "jane");
    assert_eq!(scaled.user.groups.len(), 256);
    assert!(scaled.dry_run);
    assert_eq!(scaled.sub_resource.as_deref(), Some("scale"));
    let plain = request(|r| {
        r["userInfo"]["groups"] = json!(null);
        r["dryRun"] = json!(null);
        r["subResource"] = json!("");
    });
    assert_eq!(plain.user.groups, [""; 0]);
    assert_eq!((plain.dry_run, plain.sub_resource), (false, None));
}

#[test]
fn what_is_wrong_with_a_body_is_named() {
    type Change = fn(&mut Value);
    let cases: [(Change, &str); 14] = [
        (|r| *r = json!([]), "invalid type: sequence"),
        (|r| *r = json!("AdmissionReview"), "invalid type: string"),
        (|r| *r = json!({}), "the body is a \"\" of \"\""),
        (|r| r["kind"] = json!("Pod"), "the body is a \"Pod\""),
        (|r| r["kind"] = json!(7), "invalid type: integer"),
        (
            |r| r["apiVersion"] = json!("admission.k8s.io/v2"),
            "admission.k8s.io/v2",
        ),
        (|r| r["request"] = json!(null), "no field \"request\""),
        (
            |r| r["request"]["uid"] = json!(""),
            "\"request.uid\" is empty",
        ),
        (
            |r| r["request"]["uid"] = json!("x".repeat(129)),
            "\"request.uid\" has 129 bytes",
        ),
        (
            |r| r["request"]["uid"] = json!("a\nb"),
            "\"request.uid\" has 3 bytes",
        ),
        (
            |r| r["request"]["kind"]["kind"] = json!("Scale"),
            "\"Scale\"",
        ),
        (
            |r| r["request"]["object"] = json!("x"),
            "\"request.object\" of a CREATE",
        ),
        (
            |r| r["request"]["operation"] = json!("UPDATE"),
            "\"request.oldObject\" of a UPDATE",
        ),
        (
            |r| r["request"]["operation"] = json!({}),
            "invalid type: map",
        ),
    ];
    for (change, expected) in cases {
        let error = parse(review(change).to_string().as_bytes())
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    for (body, expected) in [
        (&b""[..], "is empty"),
        (b" \n", "is empty"),
        (b"{\"kind\":", "EOF while parsing"),
        (b"\xff\xfe", "expected value"),
    ] {
        let error = parse(body).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    // Nested deeper than the parser goes: refused, and the stack holds.
    let deep = "[".repeat(100_000);
    assert!(parse(format!("{{\"a\":{deep}").as_bytes()).is_err());
}

#[test]
fn a_stranger_cannot_make_the_answer_long() {
    let long = review(|review| review["kind"] = json!("x".repeat(100_000)));
    let error = parse(long.to_string().as_bytes()).unwrap_err().to_string();
    assert!(error.len() < 400, "{}", error.len());
}

#[test]
fn a_stranger_cannot_make_the_log_long() {
    let long = "x".repeat(100_000);
    let request = request(|r| {
        r["uid"] = json!("x".repeat(128));
        r["name"] = json!(long);
        r["namespace"] = json!(format!("a\u{1b}[31m{long}"));
    });
    assert_eq!(request.uid.len(), 128);
    for shown in [request.name, request.namespace] {
        assert!(shown.len() <= 253, "{}", shown.len());
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }
}

#[test]
fn policies_are_asked_only_about_what_they_can_rule() {
    let needed = |change: fn(&mut Value)| {
        let request = request(change);
        (
            request.needs_policies(DEFAULTED),
            request.needs_policies(RULED),
        )
    };
    let all = (true, true);
    assert_eq!(needed(|_| {}), all);
    let resized =
        |request: &mut Value| updating(|old| old["spec"]["jobInstances"] = json!(2))(request);
    assert_eq!(needed(resized), all);
    for part in ["labels", "annotations"] {
        let mut relabelled = request(updating(|old| old["metadata"][part] = json!({"a": "b"})));
        assert!(relabelled.needs_policies(RULED), "{part}");
        assert!(!relabelled.needs_policies(DEFAULTED), "{part}");
        relabelled.object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(!relabelled.needs_policies(RULED), "{part}");
    }
    let none = (false, false);
    let released = |request: &mut Value| {
        updating(|old| old["metadata"]["finalizers"] = json!(["a/b"]))(request);
    };
    assert_eq!(needed(released), none);
    assert_eq!(needed(|r| r["operation"] = json!("DELETE")), none);
    let deleted = |request: &mut Value| {
        request["object"]["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    };
    assert_eq!(needed(deleted), none);
}
