//! `policy test`: cases that pass, cases that fail, and files that are not valid cases.

use std::fs;

use insta::assert_snapshot;
use tests::guests::hostile;

use super::{Folder, assert_says};

const REQUEST: &str = "
request:
  request: {namespace: default, owner: mnist, ipus: 4, gcds: 1}
  controllers:
  - {name: 'pod1:8090', totalIpus: 16, usedIpus: 16, largestFree: 0}
  - {name: 'pod2:8090', totalIpus: 16, usedIpus: 0, largestFree: 16}
";

/// A case in JSON.
const TOO_LARGE: &str = r#"{
  "settings": {"anything": 1},
  "request": {
    "request": {"namespace": "n", "owner": "o", "ipus": 32, "gcds": 1},
    "controllers": [{"name": "a", "totalIpus": 16, "usedIpus": 0, "largestFree": 16}]
  },
  "expect": {"rejects": "16 IPUs in all"}
}"#;

/// A folder with folders of cases.
fn folder(cases: &[(&str, &str)]) -> Folder {
    let folder = Folder::new();
    for cases in ["good", "bad"] {
        fs::create_dir(folder.path(cases)).unwrap();
    }
    for (file, expect) in cases {
        folder.write(file, format!("{REQUEST}expect: {expect}\n"));
    }
    folder
}

#[test]
fn cases_that_fail_say_why_and_the_others_are_run() {
    let folder = folder(&[
        (
            "good/first-that-fits.yaml",
            "{chosen: 'pod2:8090', verdict: followed}",
        ),
        ("bad/a-passes.yaml", "{chosen: 'pod2:8090'}"),
        ("bad/b-other.yaml", "{chosen: 'pod1:8090'}"),
        ("bad/c-typo.yaml", "{choosen: 'pod1:8090'}"),
        ("bad/d-nothing.yaml", "{}"),
        ("bad/f-passes.yml", "{answer: {try: 'pod2:8090'}}"),
    ]);
    folder.write("good/too-large.json", TOO_LARGE);
    folder.write("good/README.md", "no case");
    folder.write("bad/e-broken.json", "{");
    assert_snapshot!(folder.transcript(&[
        "test ./serial-walk.wasm ./good",
        "test ./serial-walk.wasm ./good --junit ./good",
        "test ./serial-walk.wasm ./bad --junit ./report.xml",
    ]));
    let parts = [
        r#"tests="6""#,
        r#"failures="4""#,
        r#"<testcase name="a-passes""#,
        "expected controller &quot;pod1:8090&quot;",
    ];
    assert_says(&folder.read("report.xml"), &parts);
}

#[test]
fn a_guest_that_traps_fails_its_cases_and_no_more() {
    let folder = folder(&[]);
    folder.write("guest.wasm", hostile::validation("unreachable"));
    for (file, size, expect) in [
        ("bad/large.yaml", 8192, "{verdict: allowed}"),
        ("bad/large-and-known.yaml", 8192, "{error: trapped}"),
        ("bad/small.yaml", 1, "{violations: []}"),
    ] {
        let object = "x".repeat(size);
        let request = format!("request: {{operation: create, object: {{spec: {object}}}}}");
        folder.write(file, format!("{request}\nexpect: {expect}\n"));
    }
    let (printed, error) = folder.run("test ./guest.wasm ./bad");
    assert_says(&error.unwrap(), &["1 of 3 cases failed"]);
    let parts = [
        "case large ... FAILED",
        "case large-and-known ... ok",
        "case small ... ok",
    ];
    assert_says(&printed, &parts);
}
