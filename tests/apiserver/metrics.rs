//! The metrics on a real API server, read with real tokens and rights: with a client, and with a
//! real Prometheus.
#![cfg(test)]

mod hardware;
mod prometheus;
mod reader;

use std::fs;
use std::path::PathBuf;

use cluster::wait::{Seen, eventually};
use ipu_guest_host::{GuestHost, GuestHostOptions};
use ipu_operator::exposition::endpoint;
use ipu_policies::active_policies::ActivePolicies;
use ipu_ports::certificates::Source;
use ipu_ports::certificates::served::ServedCertificates;
use ipu_ports::limits::METRICS;
use ipu_ports::serve::Port;
use ipu_runtime::release::ReleaseOptions;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::prometheus::Prometheus;
use self::reader::{Reader, may_read, token};
use crate::job::single;
use crate::job_fixture::JobFixture;
use crate::partition::fixture::{self, Fixture, free_port};
use crate::webhook::fixture::release;

/// Serves the controller's metrics with the CA of its own Secret, on this port.
async fn serve_metrics(fixture: &JobFixture, port: u16) {
    let policies = GuestHost::open(GuestHostOptions::default());
    let guests = ActivePolicies::new(policies.await.unwrap());
    let exposed = fixture.metrics.of_controller(guests);
    let client = fixture.client.clone();
    let refused = fixture.metrics.refused.clone();
    let port = Port::listen(port, METRICS, &refused).unwrap();
    let release = ReleaseOptions {
        namespace: fixture.namespace.clone(),
        ..release(PathBuf::new(), "ipu-operator-controller-manager-0")
    };
    tokio::spawn(async move {
        let (manager, stop) = (
            endpoint::certificate_manager(client, &release, Source::Made),
            CancellationToken::new(),
        );
        let limits = (METRICS.port, refused);
        let manager = (manager, ServedCertificates::default());
        let serving = endpoint::of_controller(port, manager, exposed, limits, stop);
        serving.await.unwrap();
    });
}

async fn run_job(fixture: &JobFixture, name: &str) {
    fixture.submit(&single(name)).await;
    fixture.partition_ready(0).await;
    fixture.pod_runs(&format!("{name}-worker-0")).await;
    fixture.row(name, "Running 1 1", "").await;
    fixture.pod_ends(&format!("{name}-worker-0"), 0).await;
    fixture.row(name, "Completed 0 1", "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_with_the_right_sees_the_phases_of_jobs_in_metrics() {
    let mut fixture = JobFixture::new("metrics").await;
    let (port, service) = (free_port(), "ipu-operator-controller-manager-metrics");
    serve_metrics(&fixture, port).await;
    fixture.start();
    run_job(&fixture, "counted").await;

    let client = &fixture.client;
    let namespace = &fixture.namespace;
    let ca = reader::ca(client, namespace, &format!("{service}-tls")).await;
    let server = format!("{service}.{namespace}.svc");
    let to = |token: &str| Reader::new(port, &server, &ca, token);
    let nobody = to(&token(client, "metrics-nobody").await);
    let (status, text) = nobody.read().await;
    assert_eq!(status, 403, "{text}");
    assert!(text.contains("metrics-reader"), "{text}");
    let (status, text) = to("made-up").read().await;
    assert_eq!(status, 401, "{text}");

    may_read(client, "metrics-reader").await;
    let token = token(client, "metrics-reader").await;
    let wanted = [
        "\nipu_operator_jobs{phase=\"Completed\"} 1\n",
        "\nipu_operator_jobs{phase=\"Running\"} 0\n",
        "\nipu_operator_jobs_finished_total{phase=\"Completed\"} 1\n",
        "\nipu_operator_job_time_to_partition_seconds_count 1\n",
        "\nipu_operator_job_time_to_running_seconds_count 1\n",
        "\nipu_operator_reconcile_queue_depth{controller=\"ipujob\"} 0\n",
    ];
    let reader = to(&token);
    eventually("the metrics count the job", async || {
        let (status, text) = reader.read().await;
        let missing = wanted.iter().filter(|line| !text.contains(**line));
        let missing: Vec<_> = missing.collect();
        Seen::when((status, missing, text.clone()), |(status, missing, _)| {
            *status == 200 && missing.is_empty()
        })
    })
    .await;
    prometheus_reads(port, &server, &ca, &token).await;
}

/// A real Prometheus reads them as the ServiceMonitor configures, with exemplars.
async fn prometheus_reads(port: u16, server: &str, ca: &str, token: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let (ca, token) = (file("ca.crt", ca), file("token", token));
    let config = json!({"scrape_configs": [{
        "job_name": "ipu-operator", "scheme": "https", "scrape_interval": "1s",
        "tls_config": {"ca_file": ca, "server_name": server},
        "authorization": {"credentials_file": token},
        "static_configs": [{"targets": [format!("127.0.0.1:{port}")]}],
    }]});
    let config = file("prometheus.yaml", &config.to_string());
    let prometheus = Prometheus::start(folder.path(), &config);
    let ask = async |what: &str| prometheus.ask(what).await;
    let completed = "query?query=ipu_operator_jobs%7Bphase%3D%22Completed%22%7D";
    let found = eventually("Prometheus has the metric of the job", async || {
        ask(completed).await
    })
    .await;
    assert_eq!(found["result"][0]["value"][1], json!("1"), "{found}");
    let exemplars = "query_exemplars?query=ipu_operator_job_time_to_running_seconds_bucket\
        &start=0&end=4102444800";
    let found = eventually("Prometheus has the exemplar", async || ask(exemplars).await).await;
    let labels = &found[0]["exemplars"][0]["labels"];
    assert_eq!(labels["job"], json!("counted"), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_reports_partitions_and_ipus_beside_its_rest_api() {
    let fixture = Fixture::start(&[16]).await;
    let partition = fixture.request("measured", 4).await;
    let partition = fixture
        .once_in(&partition, ipu_api::ipupartition::PartitionPhase::Ready)
        .await;
    let (service, namespace) = ("ipu-operator-vipu-proxy", fixture::NAMESPACE);
    let ca = reader::ca(&fixture.client, namespace, &format!("{service}-tls")).await;
    may_read(&fixture.client, "metrics-reader").await;
    let token = token(&fixture.client, "metrics-reader").await;
    let server = format!("{service}.{namespace}.svc");
    let reader = Reader::new(fixture.secure_port, &server, &ca, &token);
    let controller = fixture::controller(&partition);
    let of = |name: &str, value: u32| {
        format!("\nipu_operator_{name}{{vipu_controller=\"{controller}\"}} {value}\n")
    };
    let wanted = [
        of("vipu_ipus", 16),
        of("vipu_ipus_used", 4),
        of("vipu_ipus_largest_free", 8),
        of("vipu_controller_up", 1),
        format!(
            "\nipu_operator_partitions{{phase=\"Ready\",vipu_controller=\"{controller}\"}} 1\n"
        ),
        "\nipu_operator_leader{lease=\"vipu-proxy\"} 1\n".to_owned(),
        "\nipu_operator_namespace_ipus{owner_namespace=\"default\"} 4\n".to_owned(),
        "\nipu_operator_reconcile_total{controller=\"ipupartition\",result=\"success\"} "
            .to_owned(),
    ];
    eventually("the metrics count the partition", async || {
        let (status, text) = reader.read().await;
        let missing = wanted.iter().filter(|line| !text.contains(*line));
        let missing: Vec<_> = missing.collect();
        Seen::when((status, missing, text.clone()), |(status, missing, _)| {
            *status == 200 && missing.is_empty()
        })
    })
    .await;
}
