//! `policy replay`: the requests for which two components answer differently, always with the same
//! text.

use insta::assert_snapshot;
use ipu_api::guest::admission::Verdict;
use ipu_api::guest::digest::ModuleDigest;
use ipu_api::guest::placement::Decision;
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::policy_request::{Answer, PolicyRequest};
use ipu_guest_host::record::Record;
use serde_json::{Value, json};
use tests::guests::hostile;

use super::{Folder, assert_says};

/// Records of requests with the answers of the time, as an operator would write them.
fn recorded(records: &[(Hook, Value, Answer)], digest: &str) -> String {
    let lines = records.iter().map(|(hook, request, answer)| {
        let question = PolicyRequest::parse(*hook, request.clone()).unwrap();
        Record::of(&question, &Ok(answer.clone()), ModuleDigest::new(digest)).line()
    });
    lines.collect()
}

fn tried(ipus: u32, controller: &str) -> (Hook, Value, Answer) {
    let request = json!({
        "request": {"namespace": "n", "owner": "o", "ipus": ipus, "gcds": 1},
        "controllers": [
            {"name": "mars", "totalIpus": 16, "usedIpus": 12, "largestFree": 4},
            {"name": "pod1", "totalIpus": 16, "usedIpus": 0, "largestFree": 16},
        ],
    });
    let decision = Answer::Decision(Decision::Try(controller.to_owned()));
    (Hook::Placement, request, decision)
}

/// The validation of an object that was allowed.
fn allowed(object: &Value) -> (Hook, Value, Answer) {
    let request = json!({"operation": "create", "object": object});
    (
        Hook::Validation,
        request,
        Answer::Verdict(Verdict::default()),
    )
}

/// The digest of a guest in a folder.
fn digest(folder: &Folder, file: &str) -> String {
    let value = folder.json(&format!("inspect {file} --json"));
    value["digest"].as_str().unwrap().to_owned()
}

#[test]
fn differences_are_reported_and_the_same_each_time() {
    let folder = Folder::new();
    folder.write("liar.wasm", hostile::placement());
    let records = [
        tried(4, "mars"),
        tried(8, "mars"),
        allowed(&json!({})),
        tried(32, "pod1"),
    ];
    let digest = digest(&folder, "./serial-walk.wasm");
    folder.write("recorded.jsonl", recorded(&records, &digest));
    let replay = "replay ./serial-walk.wasm ./liar.wasm ./recorded.jsonl";
    let replays = folder.transcript(&[
        replay,
        "replay ./serial-walk.wasm ./serial-walk.wasm ./recorded.jsonl --exit-code",
    ]);
    assert_snapshot!(replays);
    let (printed, error) = folder.run(&format!("{replay} --exit-code"));
    assert_eq!(printed, folder.policy(replay));
    assert_says(&error.unwrap(), &["2 answers differ"]);
}

#[test]
fn a_guest_that_never_ends_is_ended_by_fuel_at_the_same_place() {
    let folder = Folder::new();
    folder.write("calm.wasm", hostile::validation("nop"));
    folder.write("loop.wasm", hostile::validation("(loop (br 0))"));
    let record = allowed(&json!({"spec": "x".repeat(8192)}));
    folder.write("recorded.jsonl", recorded(&[record], "sha256:1"));
    let replay = "replay ./calm.wasm ./loop.wasm ./recorded.jsonl --fuel 100000";
    assert_snapshot!(folder.transcript(&[replay]));
    assert_eq!(folder.policy(replay), folder.policy(replay));
}

#[test]
fn the_candidate_may_have_other_settings() {
    let folder = Folder::new();
    let job = json!({
        "metadata": {"name": "a", "namespace": "n"},
        "spec": {
            "jobInstances": 1, "ipusPerJobInstance": "64", "workersPerJobInstance": "2",
            "launcher": {"command": ["mpirun"]},
            "workers": {"template": {"spec": {"containers": [{"name": "w", "image": "i",
                "env": [{"name": "TOKEN", "value": "a-long-secret"}]}]}}},
        },
    });
    let records = recorded(&[allowed(&job)], &digest(&folder, "./validation.wasm"));
    assert!(!records.contains("a-long-secret"), "{records}");
    folder.write("recorded.jsonl", records);
    let replay = "replay ./validation.wasm ./validation.wasm ./recorded.jsonl";
    let printed = folder.policy(&format!("{replay} --settings-b {{\"maxIpusPerJob\":32}}"));
    let parts = [
        "\"allowed\" → \"refused\"",
        "/answer/violations/0: added",
        "1 different answers",
    ];
    assert_says(&printed, &parts);
    assert!(
        !printed.contains("differ from the recorded ones"),
        "{printed}"
    );
}
