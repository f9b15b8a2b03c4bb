//! Files that are not valid guests: each is refused with its reason, and active guests continue.

use ipu_api::ipupolicy::Hook;
use ipu_guest_host::{BUILT_IN, GuestHost, Limits, ModuleConfig, OpenError};
use ipu_text::explain;
use serde_json::json;
use tests::guests::hostile;

use super::{create, guests, open, options};

/// Returns the reason why a module is refused as a guest for validation. The built-in guest
/// continues to answer.
async fn reason(policies: &GuestHost, bytes: &[u8]) -> String {
    let config = ModuleConfig {
        settings: "{}".to_owned(),
        ..ModuleConfig::default()
    };
    let prepared = policies.prepare(Hook::Validation, bytes.to_vec(), config);
    let error = prepared.await.map(drop).unwrap_err();
    let served = policies
        .validate(&BUILT_IN, &create(), &json!({}), None)
        .await
        .unwrap();
    assert_eq!(served.answer.violations[0].field, "spec");
    explain(&error)
}

#[tokio::test]
async fn a_file_that_is_not_a_policy_is_refused_with_the_reason() {
    let policies = open(options(&[Hook::Validation])).await;
    let placement = std::fs::read(guests().join("serial-walk.wasm")).unwrap();
    let mut cut = std::fs::read(guests().join("validation.wasm")).unwrap();
    cut.truncate(cut.len() / 2);
    let cases: [(&str, Vec<u8>, &str); 10] = [
        ("empty", Vec::new(), "failed to compile"),
        ("garbage", b"<html>404</html>".to_vec(), "failed to compile"),
        (
            "core module",
            hostile::component("(module)"),
            "failed to compile",
        ),
        ("cut short", cut, "failed to compile"),
        (
            "wrong world",
            placement,
            "it does not implement world validation",
        ),
        (
            "exports nothing",
            hostile::component("(component)"),
            "it does not implement world validation",
        ),
        (
            "forbidden imports",
            hostile::component(
                r#"(component
                  (import "wasi:filesystem/types@0.2.0" (instance))
                  (import "wasi:http/outgoing-handler@0.2.0" (instance))
                  (import "wasi:filesystem/types@0.3.0" (instance)))"#,
            ),
            "it imports wasi:http/outgoing-handler@0.2.0, wasi:filesystem/types@0.3.0, and",
        ),
        (
            "never starts",
            hostile::validation(
                "nop)) (i32.const 16)) (func $spin (loop (br 0))) (start $spin)
                 (func (result i32) (if (i32.const 0) (then nop",
            ),
            "its function validate-settings failed",
        ),
        (
            "traps on every request",
            hostile::validation("unreachable) (else unreachable"),
            "it failed on a sample request: the guest trapped",
        ),
        (
            "says that it fails on every request",
            hostile::validation(&hostile::always(hostile::FAIL)),
            "it failed on a sample request: the guest failed: no prices",
        ),
    ];
    for (name, bytes, expected) in cases {
        let reason = reason(&policies, &bytes).await;
        assert!(reason.contains(expected), "{name}: {reason}");
    }
}

#[tokio::test]
async fn a_file_over_the_limit_is_not_read() {
    let mut options = options(&[Hook::Validation]);
    options.limits = Limits {
        module: 1000,
        ..Limits::default()
    };
    let error = GuestHost::open(options).await.map(drop).unwrap_err();
    let OpenError::Module { source, .. } = error else {
        panic!("{error:?}");
    };
    assert!(source.to_string().contains("1000 bytes"), "{source}");
}

#[tokio::test]
async fn refused_settings_are_reported_with_the_reason() {
    let mut options = options(&[Hook::Validation]);
    options.settings = json!({ "maxIpusPerJob": 0 });
    let error = GuestHost::open(options).await.map(drop).unwrap_err();
    let OpenError::Module { source, .. } = &error else {
        panic!("{error:?}");
    };
    let cause = std::error::Error::source(source).expect("the guest says why");
    assert!(cause.to_string().contains("maxIpusPerJob is 0"), "{cause}");
}

#[tokio::test]
async fn a_missing_built_in_guest_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(&[Hook::Placement]);
    options.guests_dir = folder.path().to_owned();
    let error = GuestHost::open(options).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("serial-walk.wasm"), "{error}");
}
