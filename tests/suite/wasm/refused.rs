//! Files that do not become policies: each is refused with its reason, and the one before stays.

use ipu_operator::wasm::model::Slot;
use ipu_operator::wasm::{BUILT_IN, Limits, OpenError, Policies};
use serde_json::json;
use tests::guests::hostile;

use super::{create, guests, open, options};

/// The reason why a file is refused in the place of the built-in validation, which then answers.
async fn reason(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("validation.wasm"), bytes).unwrap();
    let mut options = options(&[Slot::Validation]);
    options.policies_dir = Some(folder.path().to_owned());
    let policies = open(options).await;
    let served = policies
        .validate(&BUILT_IN, &create(), &json!({}), None)
        .await
        .unwrap();
    assert_eq!(served.answer.violations[0].field, "spec");
    let problem = policies.problems().pop().expect("the file is refused");
    assert_eq!(problem.source, folder.path().join("validation.wasm"));
    problem.reason
}

#[tokio::test]
async fn what_is_no_policy_is_refused_with_its_reason() {
    let placement = std::fs::read(guests().join("serial-walk.wasm")).unwrap();
    let mut cut = std::fs::read(guests().join("validation.wasm")).unwrap();
    cut.truncate(cut.len() / 2);
    let cases: [(&str, Vec<u8>, &str); 9] = [
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
            "failed when it was tried on a sample request",
        ),
        (
            "traps on every request",
            hostile::validation("unreachable) (else unreachable"),
            "failed when it was tried on a sample request: the policy trapped",
        ),
    ];
    for (name, bytes, expected) in cases {
        let reason = reason(&bytes).await;
        assert!(reason.contains(expected), "{name}: {reason}");
    }
}

#[tokio::test]
async fn a_file_over_the_limit_is_not_read() {
    let mut options = options(&[Slot::Validation]);
    options.limits = Limits {
        module: 1000,
        ..Limits::default()
    };
    let error = Policies::open(options).await.map(drop).unwrap_err();
    let OpenError::Module { source, .. } = error else {
        panic!("{error:?}");
    };
    assert!(source.to_string().contains("1000 bytes"), "{source}");
}

#[tokio::test]
async fn settings_that_a_policy_does_not_take_are_told() {
    let mut options = options(&[Slot::Validation]);
    options.settings = json!({ "maxIpusPerJob": 0 });
    let error = Policies::open(options).await.map(drop).unwrap_err();
    let OpenError::Module { source, .. } = &error else {
        panic!("{error:?}");
    };
    let cause = std::error::Error::source(source).expect("the guest says why");
    assert!(cause.to_string().contains("maxIpusPerJob is 0"), "{cause}");
}

#[tokio::test]
async fn a_missing_built_in_guest_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(&[Slot::Placement]);
    options.guests_dir = folder.path().to_owned();
    let error = Policies::open(options).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("serial-walk.wasm"), "{error}");
}
