//! `policy test`: cases that pass, cases that fail, and files that are not valid cases.

use std::path::Path;

use super::{all_complain, failing, policy, text, written};
use crate::wasm::guests;
use tests::guests::hostile;

const REQUEST: &str = "
request:
  request: {namespace: default, owner: mnist, ipus: 4, gcds: 1}
  controllers:
  - {name: 'pod1:8090', totalIpus: 16, usedIpus: 16, largestFree: 0}
  - {name: 'pod2:8090', totalIpus: 16, usedIpus: 0, largestFree: 16}
";

fn write(folder: &Path, name: &str, expect: &str) {
    std::fs::write(folder.join(name), format!("{REQUEST}expect: {expect}\n")).unwrap();
}

/// The output without the path. It does not contain the duration of the run.
fn shown(printed: &str, file: &Path) -> String {
    printed.replace(text(file), "serial-walk.wasm")
}

#[test]
fn passing_cases_are_listed() {
    let walk = guests().join("serial-walk.wasm");
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        "first-that-fits.yaml",
        "{chosen: 'pod2:8090', verdict: followed}",
    );
    std::fs::write(
        folder.path().join("too-large.json"),
        r#"{
          "settings": {"anything": 1},
          "request": {
            "request": {"namespace": "n", "owner": "o", "ipus": 32, "gcds": 1},
            "controllers": [{"name": "a", "totalIpus": 16, "usedIpus": 0, "largestFree": 16}]
          },
          "expect": {"rejects": "16 IPUs in all"}
        }"#,
    )
    .unwrap();
    std::fs::write(folder.path().join("README.md"), "no case").unwrap();
    let printed = policy(&["test", text(&walk), text(folder.path())]).unwrap();
    insta::assert_snapshot!(shown(&printed, &walk));
}

#[test]
fn cases_that_fail_say_why_and_the_others_are_run() {
    let walk = guests().join("serial-walk.wasm");
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a-passes.yaml", "{chosen: 'pod2:8090'}");
    write(folder.path(), "b-other.yaml", "{chosen: 'pod1:8090'}");
    write(folder.path(), "c-typo.yaml", "{choosen: 'pod1:8090'}");
    write(folder.path(), "d-nothing.yaml", "{}");
    std::fs::write(folder.path().join("e-broken.json"), "{").unwrap();
    write(
        folder.path(),
        "f-passes.yml",
        "{answer: {try: 'pod2:8090'}}",
    );
    let junit = folder.path().join("report.xml");
    let (printed, complaint) = failing(&[
        "test",
        text(&walk),
        text(folder.path()),
        "--junit",
        text(&junit),
    ]);
    let printed = printed.replace(text(folder.path()), "cases");
    insta::assert_snapshot!(shown(&printed, &walk));
    assert!(complaint.contains("4 of 6 cases failed"), "{complaint}");
    let report = std::fs::read_to_string(&junit).unwrap();
    for part in [
        r#"tests="6""#,
        r#"failures="4""#,
        r#"<testcase name="a-passes""#,
        "expected controller &quot;pod1:8090&quot;",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
}

#[test]
fn a_guest_that_traps_fails_its_cases_and_no_more() {
    let (_one, guest) = written("guest.wasm", &hostile::validation("unreachable"));
    let folder = tempfile::tempdir().unwrap();
    let case = |name: &str, size: usize, expect: &str| {
        let padding = "x".repeat(size);
        let text = format!(
            "request: {{operation: create, object: {{spec: {padding}}}}}\nexpect: {expect}\n"
        );
        std::fs::write(folder.path().join(name), text).unwrap();
    };
    case("large.yaml", 8192, "{verdict: allowed}");
    case("large-and-known.yaml", 8192, "{error: trapped}");
    case("small.yaml", 1, "{violations: []}");
    let (printed, complaint) = failing(&["test", text(&guest), text(folder.path())]);
    assert!(complaint.contains("1 of 3 cases failed"), "{complaint}");
    for part in [
        "case large ... FAILED",
        "case large-and-known ... ok",
        "case small ... ok",
    ] {
        assert!(printed.contains(part), "{printed}");
    }
}

#[test]
fn a_run_without_cases_is_no_success() {
    let walk = guests().join("serial-walk.wasm");
    let empty = tempfile::tempdir().unwrap();
    let (_one, core) = written("core.wasm", &hostile::component("(module)"));
    let nowhere = empty.path().join("nowhere");
    let good = tempfile::tempdir().unwrap();
    write(good.path(), "a.yaml", "{chosen: 'pod2:8090'}");
    all_complain(&[
        (
            &["test", text(&walk), text(empty.path())],
            &["there is no case in", "ends in .yaml, .yml or .json"],
        ),
        (
            &["test", text(&walk), text(&nowhere)],
            &["failed to read", "nowhere"],
        ),
        (
            &["test", text(&core), text(good.path())],
            &["it is a core module"],
        ),
        (
            &[
                "test",
                text(&walk),
                text(good.path()),
                "--junit",
                text(good.path()),
            ],
            &["failed to write", "Is a directory"],
        ),
    ]);
}
