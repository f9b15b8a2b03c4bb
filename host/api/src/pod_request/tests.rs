//! Valid requests, and the errors of invalid ones.

use serde_json::json;

use super::*;

fn pod(annotations: &Value, limits: &[Value]) -> Value {
    let containers: Vec<Value> = limits
        .iter()
        .map(|limit| json!({"name": "a", "resources": {"limits": {"graphcore.ai/ipu": limit}}}))
        .collect();
    let mut containers = json!(containers);
    for container in containers.as_array_mut().unwrap() {
        let limits = &mut container["resources"]["limits"];
        if limits["graphcore.ai/ipu"].is_null() {
            *limits = json!({"cpu": "1"});
        }
    }
    json!({"metadata": {"annotations": annotations}, "spec": {"containers": containers}})
}

fn new(ipus: u32, container: Option<usize>, is_annotated: bool) -> PodRequest {
    PodRequest::New(NewPartition {
        ipus,
        container,
        is_annotated,
    })
}

#[test]
fn the_size_is_a_limit_or_an_annotation_or_both() {
    let annotated = json!({"graphcore.ai/ipu": "4"});
    let cases = [
        (pod(&json!(null), &[json!(null)]), None),
        (
            pod(&json!(null), &[json!(null), json!("16")]),
            Some(new(16, Some(1), false)),
        ),
        (pod(&json!({}), &[json!(2)]), Some(new(2, Some(0), false))),
        (pod(&annotated, &[json!(null)]), Some(new(4, None, true))),
        (pod(&annotated, &[json!("4")]), Some(new(4, Some(0), true))),
        (
            pod(
                &json!({"graphcore.ai/ipu": "4", "graphcore.ai/gcd": "0"}),
                &[],
            ),
            Some(new(4, None, true)),
        ),
        (json!({}), None),
    ];
    for (pod, expected) in cases {
        assert_eq!(PodRequest::of(&pod), Ok(expected), "{pod}");
    }
}

#[test]
fn a_size_is_read_by_its_value() {
    for (size, expected) in [
        (json!("4"), 4),
        (json!(4), 4),
        (json!(4.0), 4),
        (json!("4e0"), 4),
        (json!("4000m"), 4),
        (json!("1Ki"), 1024),
        (json!("1k"), 1000),
    ] {
        let limited = pod(&json!(null), std::slice::from_ref(&size));
        let expected = Ok(Some(new(expected, Some(0), false)));
        assert_eq!(PodRequest::of(&limited), expected, "{size}");
    }
    let both = pod(&json!({"graphcore.ai/ipu": "4"}), &[json!("4000m")]);
    assert_eq!(PodRequest::of(&both), Ok(Some(new(4, Some(0), true))));
}

#[test]
fn a_limit_of_zero_requests_nothing() {
    let init = json!({"spec": {
        "containers": [{"name": "a"}],
        "initContainers": [{"name": "b", "resources": {"limits": {"graphcore.ai/ipu": "0"}}}],
    }});
    let annotated = json!({"graphcore.ai/ipu": "4"});
    for (pod, expected) in [
        (pod(&json!(null), &[json!("0")]), None),
        (pod(&json!(null), &[json!(0)]), None),
        (init, None),
        (
            pod(&json!(null), &[json!("0"), json!("4"), json!("0")]),
            Some(new(4, Some(1), false)),
        ),
        (pod(&annotated, &[json!("0")]), Some(new(4, None, true))),
    ] {
        assert_eq!(PodRequest::of(&pod), Ok(expected), "{pod}");
    }
}

/// The Pod as the API server has it.
fn stored(pod: &Value) -> Pod {
    serde_json::from_value(pod.clone()).unwrap()
}

#[test]
fn a_stored_pod_requests_what_its_json_does() {
    let init = json!({"spec": {
        "containers": [{"name": "a"}],
        "initContainers": [
            {"name": "b"}, {"name": "c", "resources": {"limits": {"graphcore.ai/ipu": "4"}}},
        ],
    }});
    let shared = json!({"graphcore.ai/partition": "notebook", "graphcore.ai/gcd": "3"});
    let different = json!({"graphcore.ai/ipu": "8"});
    for pod in [
        json!({}),
        pod(&json!({}), &[json!(null)]),
        pod(&json!({"graphcore.ai/ipu": "four"}), &[]),
        pod(&json!({"graphcore.ai/ipu": "4"}), &[json!("4")]),
        pod(&json!({}), &[json!(null), json!("16")]),
        pod(&json!({}), &[json!("1k")]),
        pod(&json!({}), &[json!("0"), json!("4.5")]),
        pod(&json!({}), &[json!("4"), json!("4")]),
        pod(&different, &[json!("4")]),
        pod(&shared, &[json!(null)]),
        pod(&shared, &[json!("4")]),
        init,
    ] {
        assert_eq!(
            PodRequest::of_pod(&stored(&pod)),
            PodRequest::of(&pod),
            "{pod}"
        );
    }
}

#[test]
fn an_existing_partition_is_named_with_a_gcd() {
    for (gcd, expected) in [(json!(null), 0), (json!("3"), 3)] {
        let mut annotations = json!({"graphcore.ai/partition": "notebook"});
        if !gcd.is_null() {
            annotations["graphcore.ai/gcd"] = gcd;
        }
        let request = PodRequest::of(&pod(&annotations, &[json!(null)])).unwrap();
        assert_eq!(request.as_ref().map(PodRequest::gcd), Some(expected));
        let Some(PodRequest::Existing(existing)) = request else {
            panic!("{request:?}");
        };
        assert_eq!(existing.name, "notebook");
    }
}

/// Checks the field of each error, and two parts of its message.
fn check(cases: &[(Value, &str, [&str; 2])]) {
    for (pod, field, parts) in cases {
        let error = PodRequest::of(pod).unwrap_err();
        assert_eq!(error.field, *field);
        for part in parts {
            assert!(error.message.contains(part), "{part}: {error}");
        }
    }
}

#[test]
fn an_invalid_limit_is_reported_with_field_rule_and_remedy() {
    let init = json!({"spec": {
        "containers": [{"name": "a"}],
        "initContainers": [{"name": "b", "resources": {"limits": {"graphcore.ai/ipu": "4"}}}],
    }});
    check(&[
        (
            pod(&json!(null), &[json!("4500m")]),
            "spec.containers[0].resources.limits[graphcore.ai/ipu]",
            ["\"4500m\"", "from 1"],
        ),
        (
            pod(&json!(null), &[json!("5G")]),
            "spec.containers[0].resources.limits[graphcore.ai/ipu]",
            ["\"5G\"", "such as \"4\""],
        ),
        (
            pod(&json!(null), &[json!("4"), json!("4")]),
            "spec.containers[1].resources.limits[graphcore.ai/ipu]",
            ["only one container", "remove one limit"],
        ),
        (
            init,
            "spec.initContainers[0].resources.limits[graphcore.ai/ipu]",
            ["init container", "move the limit"],
        ),
    ]);
}

#[test]
fn an_invalid_annotation_is_reported_with_rule_and_remedy() {
    let long = "9".repeat(99);
    check(&[
        (
            pod(&json!({"graphcore.ai/ipu": "four"}), &[]),
            "metadata.annotations[graphcore.ai/ipu]",
            ["\"four\"", "such as \"4\""],
        ),
        (
            pod(&json!({"graphcore.ai/ipu": "0"}), &[]),
            "metadata.annotations[graphcore.ai/ipu]",
            ["\"0\"", "from 1"],
        ),
        (
            pod(&json!({"graphcore.ai/ipu": long}), &[]),
            "metadata.annotations[graphcore.ai/ipu]",
            ["9…", "such as \"4\""],
        ),
        (
            pod(&json!({"graphcore.ai/ipu": "8"}), &[json!("4")]),
            "metadata.annotations[graphcore.ai/ipu]",
            ["\"8\" differs", "give the same number"],
        ),
        (
            pod(
                &json!({"graphcore.ai/ipu": "8", "graphcore.ai/gcd": "1"}),
                &[],
            ),
            "metadata.annotations[graphcore.ai/gcd]",
            ["only GCD 0", "remove the annotation"],
        ),
        (
            pod(
                &json!({"graphcore.ai/partition": "a", "graphcore.ai/gcd": "-1"}),
                &[],
            ),
            "metadata.annotations[graphcore.ai/gcd]",
            ["\"-1\"", "from 0"],
        ),
        (
            pod(&json!({"graphcore.ai/partition": "../a"}), &[]),
            "metadata.annotations[graphcore.ai/partition]",
            ["\"../a\"", "kubectl get ipupartitions"],
        ),
        (
            pod(&json!({"graphcore.ai/partition": "a"}), &[json!("4")]),
            "metadata.annotations[graphcore.ai/partition]",
            ["excludes graphcore.ai/ipu", "remove one"],
        ),
    ]);
}
