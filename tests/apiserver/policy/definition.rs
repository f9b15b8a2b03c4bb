//! IPUPolicies that the API server refuses by the rules of their definition.

use serde_json::{Value, json};

use super::fixture::{Fixture, at_most, of_registry};

/// An invalid spec, and a part of the refusal.
type Case = (Value, &'static str);

fn invalid_modules(digest: &str, image: &Value) -> [Case; 6] {
    [
        (json!({"hook": "Other", "module": image}), "hook"),
        (
            json!({"hook": "Validation", "module": {}}),
            "exactly one of",
        ),
        (
            json!({"hook": "Validation", "module": {"digest": digest, "image": {"file": "a.wasm"},
                "configMap": {"name": "a", "key": "b"}}}),
            "exactly one of",
        ),
        (
            json!({"hook": "Validation", "module": {"configMap": {"name": "a", "key": "b"}}}),
            "module.digest is missing",
        ),
        (
            json!({"hook": "Validation", "module": {"digest": "sha256:1", "image": {"file": "a"}}}),
            "digest",
        ),
        (
            json!({"hook": "Validation", "module": {"image": {"file": "../etc/passwd"}}}),
            "file",
        ),
    ]
}

fn invalid_registries(digest: &str) -> [Case; 5] {
    let oci = |oci: Value| of_registry(digest, oci);
    [
        (
            oci(json!({"reference": "policy:1"})),
            "reference has the host of a registry",
        ),
        (
            oci(json!({"reference": "r.io/a:1", "signature": {"keys": []}})),
            "keys",
        ),
        (
            oci(json!({"reference": "r.io/a:1", "signature": {"keys": [{}]}})),
            "each of keys needs exactly one of",
        ),
        (
            oci(json!({"reference": "r.io/a:1", "certificateAuthorities": {}})),
            "certificateAuthorities needs exactly one of",
        ),
        (
            oci(json!({"reference": "r.io/a:1", "plainHttp": true,
                "certificateAuthorities": {"pem": "x"}})),
            "plainHttp has no certificate",
        ),
    ]
}

fn invalid_options(image: &Value) -> [Case; 8] {
    [
        (
            json!({"hook": "Defaulting", "module": image, "untilActive": "Wait"}),
            "untilActive is only for Validation",
        ),
        (
            json!({"hook": "Validation", "module": image, "untilActive": "Pass"}),
            "untilActive",
        ),
        (
            json!({"hook": "Placement", "module": image, "onError": "Fail"}),
            "onError",
        ),
        (
            json!({"hook": "Defaulting", "module": image, "onError": "Wait"}),
            "onError",
        ),
        (
            json!({"hook": "Validation", "module": image, "onError": "Fallback"}),
            "onError",
        ),
        (
            json!({"hook": "Placement", "module": image, "match": {"objectSelector": {}}}),
            "objectSelector",
        ),
        (
            json!({"hook": "Validation", "module": image, "shadow": {"sharePercent": 5}}),
            "mode",
        ),
        (
            json!({"hook": "Validation", "module": image, "order": 5000}),
            "order",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_definition_refuses_invalid_policies() {
    let fixture = Fixture::start().await;
    let digest = format!("sha256:{}", "a".repeat(64));
    let image = json!({"image": {"file": "validation.wasm"}});
    let cases = invalid_modules(&digest, &image).into_iter();
    let cases = cases.chain(invalid_registries(&digest));
    for (spec, words) in cases.chain(invalid_options(&image)) {
        let refused = fixture
            .apply("bad", spec.clone())
            .await
            .unwrap_err()
            .to_string();
        assert!(refused.contains(words), "{spec}: {refused}");
    }
    let refused = fixture.apply("built-in", at_most(4)).await.unwrap_err();
    assert!(
        refused.to_string().contains("give it another name"),
        "{refused}"
    );
    fixture.apply("mine", at_most(4)).await.unwrap();
    let moved = json!({"hook": "Defaulting", "module": image});
    let refused = fixture.apply("mine", moved).await.unwrap_err();
    assert!(
        refused.to_string().contains("hook cannot change"),
        "{refused}"
    );
}
