//! The metrics of the processes, and their use in the chart's alerts, dashboard and runbook,
//! checked with promtool.

mod hardware;
mod reference;
mod served;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use cluster::command;
use serde_json::Value;
use tests::prometheus::program;

use self::reference::render;
use self::served::served;
use crate::sources::{pages_that_begin_with, repository};

fn chart(file: &str) -> String {
    let path = repository().join("charts/ipu-operator").join(file);
    fs::read_to_string(path).unwrap()
}

/// The files of the chart with rules for Prometheus.
const RULES: [&str; 2] = ["files/alerts.yaml", "files/hardware.yaml"];

/// The rules of a file.
fn rules(file: &str) -> Vec<Value> {
    let rules: Value = serde_saphyr::from_str(&chart(file)).unwrap();
    let groups = rules["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    rules.cloned().collect()
}

/// The alerts' names with their expressions.
fn alerts() -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let rules = RULES.into_iter().flat_map(rules);
    rules
        .filter_map(|rule| Some((text(&rule["alert"])?, text(&rule["expr"])?)))
        .collect()
}

/// The queries of the dashboard, also those in rows that are closed.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&chart("files/dashboard.json")).unwrap();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let panels = list(&dashboard["panels"]).into_iter();
    let panels = panels.flat_map(|panel| [list(&panel["panels"]), vec![panel]].concat());
    let targets = panels.flat_map(|panel| list(&panel["targets"]));
    targets
        .map(|target| target["expr"].as_str().unwrap().to_owned())
        .collect()
}

/// Several releases can share a cluster, and the figures of one must not hide those of another.
#[test]
fn every_alert_is_about_one_release() {
    for (alert, expression) in alerts() {
        let labels = expression.split(" by (").skip(1);
        let labels = labels.filter_map(|rest| rest.split(')').next());
        let mixed: Vec<_> = labels
            .filter(|labels| !labels.contains("namespace"))
            .collect();
        assert!(mixed.is_empty(), "{alert}: by {mixed:?}");
        let is_of_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let calls = expression
            .match_indices('(')
            .map(|(at, _)| &expression[..at]);
        let called = calls.filter_map(|before| before.rsplit(|letter| !is_of_word(letter)).next());
        let aggregations = ["max", "min", "sum", "count"];
        let without: Vec<_> = called.filter(|name| aggregations.contains(name)).collect();
        assert!(without.is_empty(), "{alert}: {without:?} of all releases");
    }
}

/// The names of the samples in a text of metrics.
fn names(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let name = |line: &str| line.split(['{', ' ']).next().unwrap_or_default().to_owned();
    lines.map(name).collect()
}

/// The operator's metrics that a query names.
fn asked_for(query: &str) -> BTreeSet<String> {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = query.split(|letter| !is_of_name(letter));
    words
        .filter(|word| word.starts_with("ipu_operator_"))
        .map(str::to_owned)
        .collect()
}

/// Converts the metrics for `promtool check metrics`, which does not know OpenMetrics: suffixes of
/// counters and infos are in the names of their families, and samples have no exemplars.
fn for_promtool(open: &str) -> String {
    let mut lines = Vec::new();
    let mut help = "";
    for line in open.lines() {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", _, text] => help = text,
            ["#", "TYPE", name, kind] => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", kind),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    _ => ("", kind),
                };
                lines.push(format!("# HELP {name}{suffix} {help}"));
                lines.push(format!("# TYPE {name}{suffix} {kind}"));
            }
            ["#", ..] => {}
            _ => lines.push(line.split(" # {").next().unwrap_or_default().to_owned()),
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

#[tokio::test]
async fn promtool_finds_nothing_wrong_with_names_and_format() {
    for text in served().await {
        let mut promtool = Command::new(program("promtool").unwrap())
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let text = for_promtool(&text);
        let mut input = promtool.stdin.take().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        drop(input);
        let said = promtool.wait_with_output().unwrap();
        let complaints = [said.stdout, said.stderr].concat();
        let complaints = String::from_utf8(complaints).unwrap();
        assert!(
            said.status.success() && complaints.is_empty(),
            "{complaints}"
        );
    }
}

#[test]
fn promtool_finds_the_alerts_firing_when_they_should_and_only_then() {
    let folder = tempfile::tempdir().unwrap();
    let promtool = program("promtool").unwrap();
    let in_folder = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    for file in RULES {
        let rules = in_folder(file.trim_start_matches("files/"), &chart(file));
        let mut check = Command::new(&promtool);
        check.args(["check", "rules", "--lint=all", "--lint-fatal"]);
        command::run(check.arg(&rules)).unwrap();
    }
    let plays = [
        ("alerts_test.yaml", include_str!("metrics/alerts_test.yaml")),
        (
            "hardware_test.yaml",
            include_str!("metrics/hardware_test.yaml"),
        ),
    ];
    for (name, text) in plays {
        let play = in_folder(name, text);
        command::run(Command::new(&promtool).args(["test", "rules"]).arg(&play)).unwrap();
    }
    let played = plays.map(|(_, text)| text).concat();
    for (alert, _) in alerts() {
        let fires = format!("alertname: {alert}\n        exp_alerts:");
        assert!(played.contains(&fires), "no test shows {alert} firing");
    }
}

#[tokio::test]
async fn alerts_and_dashboard_use_only_served_metrics_and_show_all_of_them() {
    let served: BTreeSet<String> = served().await.iter().flat_map(|text| names(text)).collect();
    let queries = queries();
    let shown: BTreeSet<String> = queries.iter().flat_map(|query| asked_for(query)).collect();
    let alerted = alerts()
        .into_iter()
        .flat_map(|(_, query)| asked_for(&query));
    let asked: BTreeSet<String> = shown.iter().cloned().chain(alerted).collect();
    let missing: Vec<_> = asked.difference(&served).collect();
    assert!(missing.is_empty(), "no process serves {missing:?}");
    // One of the three series of a histogram is enough.
    let of_family = |name: &str| {
        let mut parts = ["_bucket", "_count", "_sum"].iter();
        let family = parts.find_map(|part| name.strip_suffix(part));
        family.unwrap_or(name).to_owned()
    };
    let shown: BTreeSet<_> = shown.iter().map(|name| of_family(name)).collect();
    // Dashboards of other controllers show those with the names of Kubernetes' Go libraries.
    let served = served
        .iter()
        .filter(|name| name.starts_with("ipu_operator_"));
    let unseen = served.map(|name| of_family(name));
    let unseen: BTreeSet<_> = unseen.filter(|name| !shown.contains(name)).collect();
    assert!(unseen.is_empty(), "the dashboard does not show {unseen:?}");
}

#[tokio::test]
async fn the_reference_lists_what_is_served() {
    let made = render(&served().await);
    if std::env::var_os("UPDATE_CHART").is_some() {
        let path = repository().join("charts/ipu-operator/docs/metrics.md");
        fs::write(path, &made).unwrap();
    }
    assert!(
        chart("docs/metrics.md") == made,
        "charts/ipu-operator/docs/metrics.md does not match the served metrics; run \
         `UPDATE_CHART=1 cargo test --locked --workspace --test suite metrics`"
    );
}

#[test]
fn each_alert_has_its_entry_in_the_runbook_and_no_entry_is_without_alert() {
    let alerts: BTreeSet<_> = alerts().into_iter().map(|(name, _)| name).collect();
    // Alerts link to the first page, and that one to the others.
    let pages = pages_that_begin_with("runbook-");
    for text in [chart("docs/runbook.md"), pages.clone()] {
        let mut entries: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("## "))
            .collect();
        entries.sort_unstable();
        let alerts: Vec<_> = alerts.iter().map(String::as_str).collect();
        assert_eq!(entries, alerts);
    }
    for metric in asked_for(&pages) {
        let is_known = chart("files/dashboard.json").contains(&metric);
        assert!(
            is_known,
            "the runbook names {metric}, which the dashboard does not show"
        );
    }
}
