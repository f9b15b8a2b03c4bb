//! `policy replay`: the requests for which two components answer differently, always with the same
//! text.

use std::path::{Path, PathBuf};

use ipu_guest_host::model::{Decision, Hook, ModuleDigest};
use ipu_guest_host::policy_request::{Answer, PolicyRequest};
use ipu_guest_host::record::Record;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{all_complain, failing, policy, text, written};
use crate::wasm::guests;
use tests::guests::hostile;

/// Records of requests with the answers of the time, as an operator would write them.
fn recorded(records: &[(Hook, Value, Answer)], digest: &str) -> (TempDir, PathBuf) {
    let lines = records.iter().map(|(hook, request, answer)| {
        let question = PolicyRequest::parse(*hook, request.clone()).unwrap();
        Record::of(&question, &Ok(answer.clone()), ModuleDigest::new(digest)).line()
    });
    written("recorded.jsonl", lines.collect::<String>().as_bytes())
}

fn placement_call(ipus: u32) -> Value {
    json!({
        "request": {"namespace": "n", "owner": "o", "ipus": ipus, "gcds": 1},
        "controllers": [
            {"name": "mars", "totalIpus": 16, "usedIpus": 12, "largestFree": 4},
            {"name": "pod1", "totalIpus": 16, "usedIpus": 0, "largestFree": 16},
        ],
    })
}

fn tried(ipus: u32, controller: &str) -> (Hook, Value, Answer) {
    let decision = Answer::Decision(Decision::Try(controller.to_owned()));
    (Hook::Placement, placement_call(ipus), decision)
}

/// The output without digests and fuel, which differ after every change of a guest.
fn steady(printed: &str) -> String {
    let lines = printed.lines();
    lines
        .filter(|line| {
            !["a  sha", "b  sha", "fuel: "]
                .iter()
                .any(|word| line.starts_with(word))
        })
        .collect::<Vec<_>>()
        .join("\n")
}

fn digest(file: &Path) -> String {
    let printed = policy(&["inspect", text(file), "--json"]).unwrap();
    let value: Value = serde_json::from_str(&printed).unwrap();
    value["digest"].as_str().unwrap().to_owned()
}

#[test]
fn differences_are_reported_and_the_same_each_time() {
    let walk = guests().join("serial-walk.wasm");
    let (_one, liar) = written("liar.wasm", &hostile::placement());
    let other_hook = (
        Hook::Validation,
        json!({"operation": "create", "object": {}}),
        Answer::Verdict(ipu_guest_host::model::Verdict::default()),
    );
    let records = [
        tried(4, "mars"),
        tried(8, "mars"),
        other_hook,
        tried(32, "pod1"),
    ];
    let (_two, file) = recorded(&records, &digest(&walk));
    let arguments = ["replay", text(&walk), text(&liar), text(&file)];
    let printed = policy(&arguments).unwrap();
    insta::assert_snapshot!(steady(&printed));
    assert_eq!(policy(&arguments).unwrap(), printed);
    let with_code = [&arguments[..], &["--exit-code"]].concat();
    let (again, complaint) = failing(&with_code);
    assert_eq!(again, printed);
    assert!(complaint.contains("2 answers differ"), "{complaint}");
    let same = [
        "replay",
        text(&walk),
        text(&walk),
        text(&file),
        "--exit-code",
    ];
    let printed = policy(&same).unwrap();
    assert!(
        printed.contains("3 same answers, 0 different answers"),
        "{printed}"
    );
}

#[test]
fn a_guest_that_never_ends_is_ended_by_fuel_at_the_same_place() {
    let (_one, calm) = written("a.wasm", &hostile::validation("nop"));
    let (_two, looping) = written("b.wasm", &hostile::validation("(loop (br 0))"));
    let object = json!({"spec": "x".repeat(8192)});
    let verdict = Answer::Verdict(ipu_guest_host::model::Verdict::default());
    let request = json!({"operation": "create", "object": object});
    let (_three, file) = recorded(&[(Hook::Validation, request, verdict)], "sha256:1");
    let arguments = [
        "replay",
        text(&calm),
        text(&looping),
        text(&file),
        "--fuel",
        "100000",
    ];
    let printed = policy(&arguments).unwrap();
    insta::assert_snapshot!(steady(&printed));
    assert_eq!(policy(&arguments).unwrap(), printed);
}

#[test]
fn the_candidate_may_have_other_settings() {
    let validation = guests().join("validation.wasm");
    let job = json!({
        "metadata": {"name": "a", "namespace": "n"},
        "spec": {
            "jobInstances": 1, "ipusPerJobInstance": "64", "workersPerJobInstance": "2",
            "launcher": {"command": ["mpirun"]},
            "workers": {"template": {"spec": {"containers": [{"name": "w", "image": "i",
                "env": [{"name": "TOKEN", "value": "a-long-secret"}]}]}}},
        },
    });
    let request = json!({"operation": "create", "object": job});
    let verdict = Answer::Verdict(ipu_guest_host::model::Verdict::default());
    let records = [(Hook::Validation, request, verdict)];
    let (_one, file) = recorded(&records, &digest(&validation));
    assert!(
        !std::fs::read_to_string(&file)
            .unwrap()
            .contains("a-long-secret")
    );
    let settings = r#"{"maxIpusPerJob": 32}"#;
    let arguments = ["replay", text(&validation), text(&validation), text(&file)];
    let printed = policy(&[&arguments[..], &["--settings-b", settings]].concat()).unwrap();
    for part in [
        "\"allowed\" → \"refused\"",
        "/answer/violations/0: added",
        "1 different answers",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert!(
        !printed.contains("differ from the recorded ones"),
        "{printed}"
    );
}

#[test]
fn invalid_records_are_named_by_their_line() {
    let walk = guests().join("serial-walk.wasm");
    let validation = guests().join("validation.wasm");
    let (_one, good) = recorded(&[tried(4, "mars")], "sha256:1");
    let good_line = std::fs::read_to_string(&good).unwrap();
    let (_two, broken) = written(
        "broken.jsonl",
        format!("{good_line}\n{{\"hook\"").as_bytes(),
    );
    let (_three, latin) = written("latin.jsonl", b"\xe4\n");
    let replay = |a, b, file| ["replay", a, b, file];
    let walks = |file| replay(text(&walk), text(&walk), file);
    all_complain(&[
        (
            &walks(text(&broken)),
            &[
                "line 3 of",
                "broken.jsonl cannot be replayed",
                "it is not a record",
            ],
        ),
        (&walks(text(&latin)), &["failed to read", "UTF-8"]),
        (&walks("nowhere.jsonl"), &["failed to read nowhere.jsonl"]),
        (
            &replay(text(&walk), text(&validation), text(&good)),
            &[
                "validation.wasm is no guest",
                "does not implement world placement",
            ],
        ),
    ]);
}
