//! Generates the reference of the metrics from the output of the processes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// A row of the reference.
#[derive(Clone, Debug, Default)]
struct Metric {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
    processes: BTreeSet<&'static str>,
}

/// The text before the table.
const INTRODUCTION: &str = "\
# Metrics

Generated from what the processes serve; do not edit.

Both processes serve `/metrics` over TLS in OpenMetrics, with exemplars: the controller at the Service
`<fullname>-controller-manager-metrics`, port 8443, the proxy at `<fullname>-vipu-proxy`, port 443. A reader needs the
ClusterRole `<release>-metrics-reader`; [the runbook](runbook.md) shows how to read them by hand, and what to do about each
alert. The chart's values `metrics.serviceMonitor`, `metrics.prometheusRule` and `metrics.dashboard` add the
objects for the Prometheus operator and Grafana. [Hardware metrics](hardware-metrics.md) are those of V-IPU controllers
and IPU-Machines.

- A histogram has the series `_bucket`, `_count` and `_sum`.
- Labels with values from outside are bounded: the 50 namespaces with most IPUs, and 64 digests and policies, have names of
  their own; the others are `_other`. Of partitions and their IPU-Machines, there are at most 4,096 series.
- The names that begin with `leader_election`, `rest_client` and `workqueue` are those of Kubernetes' Go libraries, for
  dashboards that show every controller of a cluster. The same figures have names of the operator, too.
- Process `controller` is the controller-manager, `vipu-proxy` the proxy.

| metric | type | labels | process | meaning |
| --- | --- | --- | --- | --- |
";

/// Labels of a histogram's own series.
const OF_HISTOGRAMS: [&str; 1] = ["le"];

/// Renders the document from the texts of both processes.
pub(super) fn render(served: &[String; 2]) -> String {
    let mut metrics = BTreeMap::<String, Metric>::new();
    for (process, text) in ["controller", "vipu-proxy"].into_iter().zip(served) {
        read(&mut metrics, process, text);
    }
    let mut document = INTRODUCTION.to_owned();
    for (name, metric) in metrics {
        let labels = metric.labels.iter().map(|label| format!("`{label}`"));
        let labels = labels.collect::<Vec<_>>().join(", ");
        let processes = metric.processes.into_iter().collect::<Vec<_>>().join(", ");
        let (kind, help) = (metric.kind, metric.help);
        let suffix = match &*kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let row = format!("| `{name}{suffix}` | {kind} | {labels} | {processes} | {help} |");
        let _ = writeln!(document, "{}", row.replace("|  |", "| |"));
    }
    document
}

fn read(metrics: &mut BTreeMap<String, Metric>, process: &'static str, text: &str) {
    let mut family = String::new();
    for line in text.lines() {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", name, help] => {
                name.clone_into(&mut family);
                let metric = metrics.entry(family.clone()).or_default();
                help.trim_end_matches('.').clone_into(&mut metric.help);
                metric.processes.insert(process);
            }
            ["#", "TYPE", name, kind] => {
                kind.clone_into(&mut metrics.entry(name.to_owned()).or_default().kind);
            }
            ["#", ..] => {}
            _ => {
                let metric = metrics.entry(family.clone()).or_default();
                metric.labels.extend(labels(line));
            }
        }
    }
}

/// The names of a sample's labels.
fn labels(sample: &str) -> Vec<String> {
    let sample = sample.split(" # {").next().unwrap_or_default();
    let Some((_, rest)) = sample.split_once('{') else {
        return Vec::new();
    };
    let Some((inside, _)) = rest.rsplit_once('}') else {
        return Vec::new();
    };
    let names = inside.split("\",").filter_map(|pair| pair.split_once('='));
    let names = names.map(|(name, _)| name.to_owned());
    names
        .filter(|name| !OF_HISTOGRAMS.contains(&&**name))
        .collect()
}
