//! `policy evaluate`: figures of policies on jobs of a real cluster, and on generated ones.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use tests::guests::hostile;

use super::{Folder, assert_says};
use crate::sources::repository;
use crate::wasm::examples;

/// One in this number of real jobs is replayed, because the test runs in a debug build. They are
/// from 13 of 15 namespaces.
const STEP: usize = 30;

/// A folder with four controllers, which are large enough for most of the real jobs.
fn folder() -> Folder {
    let folder = Folder::new();
    symlink(
        examples::built().join("best-fit.wasm"),
        folder.path("best-fit.wasm"),
    )
    .unwrap();
    folder.write("liar.wasm", hostile::placement());
    folder.write("controllers.yaml", "[{name: pod, ipus: 16, count: 4}]");
    folder
}

/// A part of the real jobs.
fn real_jobs() -> String {
    let all = fs::read_to_string(repository().join("tests/evaluation/msr-jobs.csv")).unwrap();
    let (header, jobs) = all.split_once('\n').unwrap();
    assert_eq!(jobs.lines().count(), 15_264);
    let some: Vec<&str> = jobs.lines().step_by(STEP).collect();
    format!("{header}\n{}\n", some.join("\n"))
}

/// A figure of one policy: its value, bound or gap.
fn figure(policy: &Value, name: &str, field: &str) -> f64 {
    let mut figures = policy["figures"].as_array().unwrap().iter();
    let figure = figures.find(|figure| figure["name"] == name).unwrap();
    figure[field].as_f64().unwrap()
}

/// Asserts that a policy served all jobs that fit, and that no figure surpasses its bound.
fn assert_is_plausible(policy: &Value, jobs: &Value) {
    let (ran, rejected) = (policy["ran"].as_u64(), policy["rejected"].as_u64());
    assert_eq!(
        ran.zip(rejected).map(|(ran, rejected)| ran + rejected),
        jobs.as_u64()
    );
    assert!(ran > Some(500), "{policy}");
    assert_eq!(
        json!([policy["waiting"], policy["overruled"]]),
        json!([0, 0])
    );
    assert_eq!(policy["namespaces"].as_array().unwrap().len(), 13);
    let (value, bound) = (
        |name| figure(policy, name, "value"),
        |name| figure(policy, name, "bound"),
    );
    for name in ["allocation", "saturatedAllocation", "fairness"] {
        assert!(
            0.0 < value(name) && value(name) <= bound(name),
            "{name}: {policy}"
        );
    }
    let waits = ["waitMean", "waitP99", "largeWaitMean"];
    let others = ["boundedSlowdownMean", "boundedSlowdownP99", "lastEnd"];
    for name in waits.into_iter().chain(others) {
        assert!(
            0.0 < value(name) && bound(name) <= value(name),
            "{name}: {policy}"
        );
    }
    assert!(value("waitP50") <= value("waitP99"), "{policy}");
}

#[test]
fn policies_are_compared_on_jobs_of_a_real_cluster() {
    let folder = folder();
    folder.write("jobs.csv", real_jobs());
    let others = ["serial-walk", "best-fit", "fragmentation"];
    let others: String = others
        .map(|name| format!(" --compare ./{name}.wasm"))
        .concat();
    let report = folder.json(&format!(
        "evaluate built-in{others} --jobs ./jobs.csv --controllers ./controllers.yaml --load 95 --json"
    ));
    assert_eq!(json!([report["ipus"], report["large"]]), json!([64, 8]));
    let load = report["offeredLoad"].as_f64().unwrap();
    assert!((load - 0.95).abs() < 1e-3, "{load}");
    let policies = report["policies"].as_array().unwrap();
    for policy in policies {
        assert_is_plausible(policy, &report["jobs"]);
    }
    // The component of the serial walk decides as the native one.
    let mut component = policies[1].clone();
    assert!(component["digest"].as_str().unwrap().starts_with("sha256:"));
    component["digest"] = Value::Null;
    component["policy"] = "built-in".into();
    assert_eq!(component, policies[0]);
    for other in &policies[2..] {
        assert_ne!(other["figures"], policies[0]["figures"]);
    }
}

#[test]
fn every_figure_has_a_bound_and_exact_blocks_are_never_refused() {
    let folder = folder();
    let line =
        "evaluate ./fragmentation.wasm --generate 5 --count 200 --controllers ./controllers.yaml";
    let policy = |options| folder.json(&format!("{line} --json{options}"))["policies"][0].clone();
    let estimated = policy("");
    for figure in estimated["figures"].as_array().unwrap() {
        assert!(
            figure["bound"].is_f64() && figure["gap"].is_f64(),
            "{figure}"
        );
    }
    assert!(estimated["refused"].as_u64() > Some(0), "{estimated}");
    assert_eq!(policy(" --exact-blocks")["refused"], 0);
    // Another choice of the controllers leaves other blocks.
    let lowest = policy(" --block-choice lowest");
    assert_ne!(lowest["figures"], estimated["figures"]);
    assert!(policy(" --order fair-share")["ran"].as_u64() > Some(100));
    let printed = folder.policy(&format!("{line} --markdown"));
    assert!(
        printed.starts_with("| policy | allocation / gap | "),
        "{printed}"
    );
    assert_eq!(printed.lines().count(), 3, "{printed}");
}

#[test]
fn a_table_and_a_drawing_are_the_same_each_time() {
    let folder = folder();
    folder.write(
        "controllers.yaml",
        "[{name: large, ipus: 256}, {name: small, ipus: 64, count: 4}]",
    );
    let evaluate = |seed: u8| {
        let printed = folder.policy(&format!(
            "evaluate built-in --compare ./best-fit.wasm --generate {seed} --count 300 \
             --controllers ./controllers.yaml --svg ./plot.svg"
        ));
        (printed, folder.read("plot.svg"))
    };
    let (printed, drawn) = evaluate(7);
    let parts = [
        "300 jobs on 5 controllers with 512 IPUs, offered load 90.0 %",
        "built-in",
        "best-fit.wasm",
        "allocation",
        "wait, p99",
        "fairness of namespaces",
        "large (128 IPUs or more)",
    ];
    assert_says(&printed, &parts);
    assert_eq!(drawn.matches("<polyline").count(), 4, "{drawn}");
    assert_eq!(evaluate(7), (printed.clone(), drawn));
    assert_ne!(evaluate(8).0, printed);
}

#[test]
fn a_policy_that_gives_no_valid_decision_is_overruled() {
    let report = folder().json(
        "evaluate ./liar.wasm --compare built-in --generate 1 --count 50 --controllers ./controllers.yaml --json",
    );
    let [liar, walk] = [0_usize, 1].map(|index| &report["policies"][index]);
    assert_eq!(liar["figures"], walk["figures"], "the serial walk decides");
    assert_eq!(liar["overruled"], liar["decisions"]);
    assert!(liar["firstOverruled"].is_string(), "{liar}");
}
