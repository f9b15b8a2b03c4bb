//! `policy inspect`: valid components, and those that the operator would refuse.

use insta::assert_snapshot;
use release::guests::GUESTS;
use serde_json::{Value, json};
use tests::guests::hostile;

use super::{all_complain, policy, text, written};
use crate::wasm::guests;

/// The output without the digests, which differ after every change of a guest.
fn inspected(name: &str, bytes: &[u8]) -> String {
    let (_folder, file) = written(name, bytes);
    let printed = policy(&["inspect", text(&file)]).unwrap();
    printed
        .lines()
        .filter(|line| !line.starts_with("digest"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn a_guest_that_fits_is_shown_with_its_functions() {
    assert_snapshot!(inspected("a.wasm", &hostile::placement()));
}

#[test]
fn obstacles_are_named() {
    let wrong = hostile::component(
        r#"(component
          (import "wasi:http/outgoing-handler@0.2.0" (instance))
          (import "acme:database/sql@1.0.0" (instance)))"#,
    );
    assert_snapshot!(inspected("wrong.wasm", &wrong));
}

#[test]
fn json_contains_the_same() {
    for guest in GUESTS {
        let file = guests().join(format!("{}.wasm", guest.name));
        let printed = policy(&["inspect", text(&file), "--json"]).unwrap();
        let value: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(value["world"], json!(guest.hook.world()));
        assert_eq!(value["accepted"], json!(true), "{value}");
        assert_eq!(value["lacks"], json!([]));
        assert_eq!(
            value["size"].as_u64().unwrap(),
            std::fs::metadata(&file).unwrap().len()
        );
        let plain = policy(&["inspect", text(&file)]).unwrap();
        for part in ["digest", "package"] {
            assert!(plain.contains(value[part].as_str().unwrap()), "{plain}");
        }
    }
}

#[test]
fn a_file_that_is_not_a_component_is_refused() {
    let (_one, empty) = written("empty.wasm", b"");
    let (_two, core) = written("core.wasm", &hostile::component("(module)"));
    let (_three, huge) = written("huge.wasm", b"");
    let sparse = std::fs::OpenOptions::new().write(true).open(&huge);
    sparse.unwrap().set_len(100 << 20).unwrap();
    all_complain(&[
        (&["inspect", "nowhere.wasm"], &["failed to read the file"]),
        (&["inspect", text(&empty)], &["the file is empty"]),
        (
            &["inspect", text(&core)],
            &["it is a core module", "policy componentize"],
        ),
        (
            &["inspect", text(&huge)],
            &["huge.wasm is no guest", "more than the 33554432 bytes"],
        ),
    ]);
}
