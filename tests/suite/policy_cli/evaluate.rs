//! `policy evaluate`: figures of policies on jobs of a real cluster, and on generated ones.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;
use tests::guests::hostile;

use super::{all_complain, policy, text, written};
use crate::sources::repository;
use crate::wasm::{examples, guests};

/// Controllers that are large enough for most of the real jobs.
const CONTROLLERS: &str = "[{name: pod, ipus: 16, count: 4}]";

/// One in this number of real jobs is replayed, because the test runs in a debug build. They are from 13 of 15
/// namespaces.
const STEP: usize = 30;

/// A part of the real jobs.
fn real_jobs() -> (TempDir, PathBuf) {
    let file = repository().join("tests/evaluation/msr-jobs.csv");
    let all = fs::read_to_string(file).unwrap();
    let (header, jobs) = all.split_once('\n').unwrap();
    assert_eq!(jobs.lines().count(), 15_264);
    let some: Vec<&str> = jobs.lines().step_by(STEP).collect();
    let text = format!("{header}\n{}\n", some.join("\n"));
    written("jobs.csv", text.as_bytes())
}

fn evaluated(arguments: &[&str]) -> Value {
    let all = [&["evaluate"][..], arguments, &["--json"]].concat();
    serde_json::from_str(&policy(&all).unwrap()).unwrap()
}

/// A figure of one policy: its value, bound or gap.
fn figure(policy: &Value, name: &str, field: &str) -> f64 {
    let mut figures = policy["figures"].as_array().unwrap().iter();
    let figure = figures.find(|figure| figure["name"] == name).unwrap();
    figure[field].as_f64().unwrap()
}

/// Asserts that a policy served all jobs that fit, and that no figure surpasses its bound.
fn assert_is_plausible(policy: &Value, jobs: u64) {
    let (ran, rejected) = (policy["ran"].as_u64(), policy["rejected"].as_u64());
    assert_eq!(ran.zip(rejected).map(|(a, b)| a + b), Some(jobs));
    assert!(ran > Some(500), "{policy}");
    assert_eq!(
        (&policy["waiting"], &policy["overruled"]),
        (&0.into(), &0.into())
    );
    assert_eq!(policy["namespaces"].as_array().unwrap().len(), 13);
    for name in ["allocation", "saturatedAllocation", "fairness"] {
        let value = figure(policy, name, "value");
        assert!(
            value > 0.0 && value <= figure(policy, name, "bound"),
            "{name}: {value}"
        );
    }
    for name in [
        "waitMean",
        "waitP99",
        "largeWaitMean",
        "boundedSlowdownMean",
        "boundedSlowdownP99",
        "lastEnd",
    ] {
        let value = figure(policy, name, "value");
        assert!(
            value > 0.0 && value >= figure(policy, name, "bound"),
            "{name}: {value}"
        );
    }
    let (p50, p99) = (
        figure(policy, "waitP50", "value"),
        figure(policy, "waitP99", "value"),
    );
    assert!(p50 <= p99, "{p50} {p99}");
}

#[test]
fn policies_are_compared_on_jobs_of_a_real_cluster() {
    let (_one, jobs) = real_jobs();
    let (_two, controllers) = written("controllers.yaml", CONTROLLERS.as_bytes());
    let (walk, best_fit, fragmentation) = (
        guests().join("serial-walk.wasm"),
        examples::built().join("best-fit.wasm"),
        guests().join("fragmentation.wasm"),
    );
    let report = evaluated(&[
        "built-in",
        "--compare",
        text(&walk),
        "--compare",
        text(&best_fit),
        "--compare",
        text(&fragmentation),
        "--jobs",
        text(&jobs),
        "--controllers",
        text(&controllers),
        "--load",
        "95",
    ]);
    assert_eq!(report["ipus"], 64);
    assert_eq!(report["large"], 8);
    let load = report["offeredLoad"].as_f64().unwrap();
    assert!((load - 0.95).abs() < 1e-3, "{load}");
    let policies = report["policies"].as_array().unwrap();
    for policy in policies {
        assert_is_plausible(policy, report["jobs"].as_u64().unwrap());
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
    let (_one, controllers) = written("controllers.yaml", CONTROLLERS.as_bytes());
    let fragmentation = guests().join("fragmentation.wasm");
    let arguments = [
        text(&fragmentation),
        "--generate",
        "5",
        "--count",
        "200",
        "--controllers",
        text(&controllers),
    ];
    let report = evaluated(&arguments);
    let estimated = &report["policies"][0];
    for figure in estimated["figures"].as_array().unwrap() {
        assert!(
            figure["bound"].is_f64() && figure["gap"].is_f64(),
            "{figure}"
        );
    }
    assert!(estimated["refused"].as_u64() > Some(0), "{estimated}");
    let exact = [&arguments[..], &["--exact-blocks"]].concat();
    let report = evaluated(&exact);
    assert_eq!(report["policies"][0]["refused"], 0, "{report}");
    let fair_share = [&arguments[..], &["--order", "fair-share"]].concat();
    let report = evaluated(&fair_share);
    assert!(
        report["policies"][0]["ran"].as_u64() > Some(100),
        "{report}"
    );
    let markdown = [&["evaluate"][..], &arguments, &["--markdown"]].concat();
    let printed = policy(&markdown).unwrap();
    assert!(
        printed.starts_with("| policy | allocation / gap | "),
        "{printed}"
    );
    assert_eq!(printed.lines().count(), 3, "{printed}");
}

#[test]
fn a_table_and_a_drawing_are_the_same_each_time() {
    let (folder, controllers) = written(
        "controllers.yaml",
        b"[{name: large, ipus: 256}, {name: small, ipus: 64, count: 4}]",
    );
    let best_fit = examples::built().join("best-fit.wasm");
    let drawing = folder.path().join("plot.svg");
    let arguments = [
        "evaluate",
        "built-in",
        "--compare",
        text(&best_fit),
        "--generate",
        "7",
        "--count",
        "300",
        "--controllers",
        text(&controllers),
        "--svg",
        text(&drawing),
    ];
    let printed = policy(&arguments).unwrap();
    for part in [
        "300 jobs on 5 controllers with 512 IPUs, offered load 90.0 %",
        "built-in",
        "best-fit.wasm",
        "allocation",
        "wait, p99",
        "fairness of namespaces",
        "large (128 IPUs or more)",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let drawn = fs::read_to_string(&drawing).unwrap();
    assert_eq!(drawn.matches("<polyline").count(), 4, "{drawn}");
    assert_eq!(policy(&arguments).unwrap(), printed);
    assert_eq!(fs::read_to_string(&drawing).unwrap(), drawn);
    let other = [&arguments[..5], &["8"], &arguments[6..]].concat();
    assert_ne!(policy(&other).unwrap(), printed);
}

#[test]
fn a_policy_that_gives_no_valid_decision_is_overruled() {
    let (_one, liar) = written("liar.wasm", &hostile::placement());
    let (_two, controllers) = written("controllers.yaml", CONTROLLERS.as_bytes());
    let report = evaluated(&[
        text(&liar),
        "--compare",
        "built-in",
        "--generate",
        "1",
        "--count",
        "50",
        "--controllers",
        text(&controllers),
    ]);
    let [liar, walk] = [0_usize, 1].map(|index| &report["policies"][index]);
    assert_eq!(liar["figures"], walk["figures"], "the serial walk decides");
    assert_eq!(liar["overruled"], liar["decisions"]);
    assert!(liar["firstOverruled"].is_string(), "{liar}");
}

#[test]
fn invalid_input_for_a_replay_is_named() {
    let (_one, jobs) = real_jobs();
    let (_two, broken) = written("broken.csv", b"namespace,ipus\n");
    let (_three, controllers) = written("controllers.yaml", CONTROLLERS.as_bytes());
    let (_four, none) = written("none.json", b"[]");
    let validation = guests().join("validation.wasm");
    let evaluate = |guest, jobs, controllers| {
        [
            "evaluate",
            guest,
            "--jobs",
            jobs,
            "--controllers",
            controllers,
        ]
    };
    let (jobs, controllers) = (text(&jobs), text(&controllers));
    all_complain(&[
        (
            &evaluate("built-in", text(&broken), controllers),
            &[
                "broken.csv has no jobs that can be replayed",
                "lacks the column arrival_seconds",
            ],
        ),
        (
            &evaluate("built-in", "nowhere.csv", controllers),
            &["failed to read nowhere.csv"],
        ),
        (
            &evaluate("built-in", jobs, text(&none)),
            &[
                "none.json lists no V-IPU controllers for a replay",
                "it lists 0 controllers",
            ],
        ),
        (
            &evaluate(text(&validation), jobs, controllers),
            &[
                "validation.wasm is no guest",
                "does not implement world placement",
            ],
        ),
        (
            &evaluate("nowhere.wasm", jobs, controllers),
            &["nowhere.wasm", "failed to read"],
        ),
    ]);
}
