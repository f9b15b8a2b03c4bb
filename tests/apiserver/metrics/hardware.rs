//! The metrics of the hardware by owner: the operator, the exporters of simulated IPU-Machines, and
//! a real Prometheus with the targets and the rules of the chart.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use cluster::wait::{Seen, eventually};
use ipu_api::ipupartition::{IPUPartition, PartitionPhase};
use serde_json::{Value, json};

use super::prometheus::Prometheus;
use super::reader::{self, may_read, token};
use crate::chart::arguments::rendered;
use crate::partition::fixture::{self, Fixture};

/// Power of an IPU-Machine with this number of IPUs in partitions, by the simulator.
fn watts(ipus: u32) -> f64 {
    f64::from(120 + 55 * ipus)
}

async fn ready(fixture: &Fixture, owner: &str, ipus: u32) -> IPUPartition {
    let partition = fixture.request(owner, ipus).await;
    fixture.once_in(&partition, PartitionPhase::Ready).await
}

/// Writes a file that is YAML because it is JSON.
fn file(folder: &Path, name: &str, content: &Value) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, content.to_string()).unwrap();
    path
}

/// Starts a Prometheus with the chart's ScrapeConfig and rules for the exporters, which also reads
/// the proxy.
async fn prometheus(fixture: &Fixture, folder: &Path) -> Prometheus {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let exporters = fixture.pods[0].export(any).await.unwrap().into_iter();
    let targets = exporters.map(
        |exporter| json!({"machine": exporter.machine, "address": exporter.address.to_string()}),
    );
    let metrics = json!({
        "enabled": true, "targets": targets.collect::<Vec<_>>(), "scrapeConfig": {"interval": "1s"},
    });
    let values = json!({
        "hardware": {"metrics": metrics}, "metrics": {"prometheusRule": {"enabled": true}},
    });
    let values = file(folder, "values.yaml", &values);
    let of_chart = |template| rendered(template, values.to_str()).remove(0)["spec"].take();
    let (scrape, rules) = (
        of_chart("hardware-scrapeconfig"),
        of_chart("hardware-rules"),
    );
    let rules = file(folder, "rules.yaml", &rules);
    let config = json!({
        "global": {"evaluation_interval": "1s"},
        "rule_files": [rules],
        "scrape_configs": [scrape_proxy(fixture, folder).await, {
            // As the Prometheus operator translates a ScrapeConfig.
            "job_name": "hardware",
            "metrics_path": scrape["metricsPath"],
            "scrape_interval": scrape["scrapeInterval"],
            "static_configs": scrape["staticConfigs"],
        }],
    });
    Prometheus::start(folder, &file(folder, "prometheus.yaml", &config))
}

/// The configuration to read the proxy, with the namespace that the ServiceMonitor adds.
async fn scrape_proxy(fixture: &Fixture, folder: &Path) -> Value {
    let (service, namespace) = ("ipu-operator-vipu-proxy", fixture::NAMESPACE);
    let ca = reader::ca(&fixture.client, namespace, &format!("{service}-tls")).await;
    may_read(&fixture.client, "hardware-reader").await;
    let token = token(&fixture.client, "hardware-reader").await;
    let [ca, token] = [("ca.crt", ca), ("token", token)].map(|(name, text)| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    });
    json!({
        "job_name": "ipu-operator", "scheme": "https", "scrape_interval": "1s",
        "tls_config": {"ca_file": ca, "server_name": format!("{service}.{namespace}.svc")},
        "authorization": {"credentials_file": token},
        "static_configs": [{
            "targets": [format!("127.0.0.1:{}", fixture.secure_port)],
            "labels": {"namespace": "ipu"},
        }],
    })
}

/// Waits until a recorded metric has these values by owner, and no others.
async fn once_recorded(prometheus: &Prometheus, metric: &str, expected: &[(&str, f64)]) {
    let expected: BTreeMap<_, _> = expected
        .iter()
        .map(|(owner, value)| ((*owner).to_owned(), *value))
        .collect();
    eventually(&format!("{metric} is {expected:?}"), async || {
        let data = match prometheus.ask(&format!("query?query={metric}")).await {
            Seen::Yes(data) => data,
            Seen::NotYet(seen) => return Seen::NotYet(seen),
            Seen::Refused(error) => return Seen::Refused(error),
        };
        let samples = data["result"].as_array().unwrap().iter();
        let by_owner = samples.map(|sample| {
            assert_eq!(sample["metric"]["owner_kind"], "Notebook", "{sample}");
            assert_eq!(sample["metric"]["owner_namespace"], "default", "{sample}");
            let owner = sample["metric"]["owner"].as_str().unwrap();
            let value = sample["value"][1].as_str().unwrap();
            (owner.to_owned(), value.parse().unwrap())
        });
        let by_owner: BTreeMap<String, f64> = by_owner.collect();
        Seen::when(by_owner, |seen| *seen == expected)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_knows_power_and_temperature_of_each_owners_machines() {
    let fixture = Fixture::start(&[16]).await;
    let folder = tempfile::tempdir().unwrap();
    // Two whole IPU-Machines, and two halves of the third one. The fourth one is idle.
    ready(&fixture, "large", 8).await;
    ready(&fixture, "half", 2).await;
    let other = ready(&fixture, "other-half", 2).await;
    let prometheus = prometheus(&fixture, folder.path()).await;

    let (power, shared) = (
        "owner:ipu_machine_power_watts:sum",
        "owner:ipu_machines_shared:count",
    );
    let expected = [
        ("large", 2.0 * watts(4)),
        ("half", watts(4)),
        ("other-half", watts(4)),
    ];
    once_recorded(&prometheus, power, &expected).await;
    let expected = [("half", 1.0), ("other-half", 1.0)];
    once_recorded(&prometheus, shared, &expected).await;
    let temperature = "owner:ipu_machine_temperature_celsius:max";
    let expected = [("large", 41.0), ("half", 41.0), ("other-half", 41.0)];
    once_recorded(&prometheus, temperature, &expected).await;

    fixture.delete(&other).await;
    let expected = [("large", 2.0 * watts(4)), ("half", watts(2))];
    once_recorded(&prometheus, power, &expected).await;
    // Every IPU-Machine of a partition has a target.
    let unknown = "query?query=count(ipu_operator_partition_machine_ipus%20unless%20on(machine)%20up)or%20vector(0)";
    let unknown = eventually("the targets are up", async || prometheus.ask(unknown).await).await;
    assert_eq!(unknown["result"][0]["value"][1], json!("0"), "{unknown}");
}
