//! `policy run`: answers, their effect in the host, and guests that give no answer.

use serde_json::{Value, json};

use super::{all_complain, failing, policy, text, written};
use crate::wasm::guests;
use tests::guests::hostile;

fn ran(arguments: &[&str]) -> Value {
    let printed = policy(&[&["run"], arguments].concat()).unwrap();
    serde_json::from_str(&printed).unwrap()
}

fn placement_call(controller: &str) -> Value {
    json!({
        "request": {"namespace": "n", "owner": "o", "ipus": 4, "gcds": 1},
        "controllers": [
            {"name": controller, "totalIpus": 8, "usedIpus": 0, "largestFree": 8},
        ],
    })
}

#[test]
fn the_built_in_walk_chooses_and_is_followed() {
    let walk = guests().join("serial-walk.wasm");
    let (_folder, request) = written(
        "request.json",
        placement_call("pod1:8090").to_string().as_bytes(),
    );
    let report = ran(&[text(&walk), "--request", text(&request)]);
    assert_eq!(report["world"], json!("placement"));
    assert_eq!(report["answer"], json!({"try": "pod1:8090"}));
    assert_eq!(
        report["host"],
        json!({"verdict": "followed", "decision": {"try": "pod1:8090"}})
    );
    for used in ["fuel", "memoryBytes"] {
        assert!(report["used"][used].as_u64().unwrap() > 0, "{report}");
    }
    let again = ran(&[text(&walk), "--request", text(&request)]);
    assert_eq!(report["used"]["fuel"], again["used"]["fuel"]);
}

#[test]
fn yaml_and_admission_reviews_are_requests() {
    let validation = guests().join("validation.wasm");
    let (_one, yaml) = written("a.yaml", b"operation: create\nobject: {spec: {}}\n");
    let review = json!({
        "kind": "AdmissionReview",
        "request": {"uid": "1", "operation": "CREATE", "object": {"spec": {}}},
    });
    let (_two, review) = written("a.json", review.to_string().as_bytes());
    let reports = [&yaml, &review].map(|file| ran(&[text(&validation), "--request", text(file)]));
    assert_eq!(reports[0]["answer"], reports[1]["answer"]);
    assert_eq!(reports[0]["host"]["verdict"], json!("refused"));
}

#[test]
fn an_invalid_answer_is_overruled() {
    let (_one, liar) = written("liar.wasm", &hostile::placement());
    let report = ran(&[text(&liar)]);
    assert_eq!(report["answer"], json!({"try": "mars"}));
    assert_eq!(report["host"]["verdict"], json!("overruled"));
    assert_eq!(report["host"]["decision"], json!({"try": "empty:8090"}));
}

#[test]
fn the_error_of_a_guest_without_an_answer_names_the_cause() {
    let object = json!({"operation": "create", "object": {"spec": "x".repeat(8192)}});
    let (_one, request) = written("a.json", object.to_string().as_bytes());
    let limit = ipu_guest_host::Limits::default().memory;
    let too_much = format!("bytes of memory requested, and at most {limit} are allowed");
    for (body, cause) in [
        ("(loop (br 0))", "within its deadline of 1s"),
        (
            "(loop (drop (memory.grow (i32.const 16))) (br 0))",
            too_much.as_str(),
        ),
        (
            "unreachable",
            "the guest trapped: wasm trap: wasm `unreachable`",
        ),
        (
            "(return (call $recurse (i32.const 0)))",
            "call stack exhausted",
        ),
    ] {
        let (_two, guest) = written("guest.wasm", &hostile::validation(body));
        let arguments = ["run", text(&guest), "--request", text(&request)];
        let (printed, complaint) = failing(&arguments);
        let report: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(report["host"]["verdict"], json!("failed"), "{report}");
        assert_eq!(report["used"]["fuel"], Value::Null);
        assert!(
            complaint.contains("guest.wasm gave no answer"),
            "{complaint}"
        );
        assert!(complaint.contains(cause), "{cause}: {complaint}");
        assert!(
            report["error"].as_str().unwrap().contains(cause),
            "{report}"
        );
    }
}

#[test]
fn bad_requests_and_files_are_named() {
    let walk = guests().join("serial-walk.wasm");
    let validation = guests().join("validation.wasm");
    let (_one, broken) = written("broken.json", b"{\"request\": ");
    let (_two, other) = written("other.json", b"{\"operation\": \"create\", \"object\": {}}");
    let (_three, yaml) = written("broken.yaml", b"a: [");
    let (_four, latin) = written("latin.json", b"\"\xe4\"");
    let (_five, huge) = written("huge.json", b"");
    let sparse = std::fs::OpenOptions::new().write(true).open(&huge);
    sparse.unwrap().set_len(9 << 20).unwrap();
    let asked = |request| ["run", text(&walk), "--request", request];
    all_complain(&[
        (&asked("nowhere.json"), &["failed to read nowhere.json"]),
        (&asked(text(&broken)), &["broken.json is not JSON", "EOF"]),
        (&asked(text(&yaml)), &["broken.yaml is not YAML"]),
        (&asked(text(&latin)), &["latin.json", "UTF-8"]),
        (
            &asked(text(&huge)),
            &["huge.json is larger than the limit of 8388608"],
        ),
        (
            &asked(text(&other)),
            &[
                "other.json is no request",
                "\"request\": {…}, \"controllers\"",
            ],
        ),
        (
            &["run", text(&walk), "--world", "validation"],
            &["does not implement world validation"],
        ),
        (
            &[
                "run",
                text(&validation),
                "--settings",
                "{\"maxIpusPerJob\": 0}",
            ],
            &["does not accept its settings", "maxIpusPerJob is 0"],
        ),
        (&["run", text(&broken)], &["text and not WebAssembly"]),
    ]);
}
