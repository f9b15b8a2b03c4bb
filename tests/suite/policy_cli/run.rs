//! `policy run`: answers, their effect in the host, and guests that give no answer.

use serde_json::{Value, json};
use tests::guests::hostile;

use super::{Folder, assert_says};

#[test]
fn the_built_in_walk_chooses_and_is_followed() {
    let folder = Folder::new();
    let request = json!({
        "request": {"namespace": "n", "owner": "o", "ipus": 4, "gcds": 1},
        "controllers": [{"name": "pod1:8090", "totalIpus": 8, "usedIpus": 0, "largestFree": 8}],
    });
    folder.write("request.json", request.to_string());
    let line = "run ./serial-walk.wasm --request ./request.json";
    let report = folder.json(line);
    assert_eq!(report["world"], json!("placement"));
    assert_eq!(report["answer"], json!({"try": "pod1:8090"}));
    let host = json!({"verdict": "followed", "decision": {"try": "pod1:8090"}});
    assert_eq!(report["host"], host);
    for used in ["fuel", "memoryBytes"] {
        assert!(report["used"][used].as_u64() > Some(0), "{report}");
    }
    assert_eq!(report["used"]["fuel"], folder.json(line)["used"]["fuel"]);
}

#[test]
fn yaml_and_admission_reviews_are_requests() {
    let folder = Folder::new();
    folder.write("a.yaml", "operation: create\nobject: {spec: {}}\n");
    let request = json!({"uid": "1", "operation": "CREATE", "object": {"spec": {}}});
    let review = json!({"kind": "AdmissionReview", "request": request});
    folder.write("a.json", review.to_string());
    let [yaml, review] = ["./a.yaml", "./a.json"]
        .map(|file| folder.json(&format!("run ./validation.wasm --request {file}")));
    assert_eq!(yaml["answer"], review["answer"]);
    assert_eq!(yaml["host"]["verdict"], json!("refused"));
}

#[test]
fn an_invalid_answer_is_overruled() {
    let folder = Folder::new();
    folder.write("liar.wasm", hostile::placement());
    let report = folder.json("run ./liar.wasm");
    assert_eq!(report["answer"], json!({"try": "mars"}));
    let host = json!({"verdict": "overruled", "decision": {"try": "empty:8090"}});
    assert_eq!(report["host"]["verdict"], host["verdict"]);
    assert_eq!(report["host"]["decision"], host["decision"]);
}

#[test]
fn the_error_of_a_guest_without_an_answer_names_the_cause() {
    let folder = Folder::new();
    let object = json!({"operation": "create", "object": {"spec": "x".repeat(8192)}});
    folder.write("a.json", object.to_string());
    let limit = ipu_guest_host::Limits::default().memory;
    let too_much = format!("bytes of memory requested, and at most {limit} are allowed");
    for (body, cause) in [
        ("(loop (br 0))", "within its deadline of 1s"),
        (
            "(loop (drop (memory.grow (i32.const 16))) (br 0))",
            &*too_much,
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
        folder.write("guest.wasm", hostile::validation(body));
        let (printed, error) = folder.run("run ./guest.wasm --request ./a.json");
        let report: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(report["host"]["verdict"], json!("failed"), "{report}");
        assert_eq!(report["used"]["fuel"], Value::Null);
        assert_says(&error.unwrap(), &["guest.wasm gave no answer", cause]);
        assert_says(report["error"].as_str().unwrap(), &[cause]);
    }
}
