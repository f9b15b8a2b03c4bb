//! A collector that demands TLS and a client certificate, and processes that learn about it from
//! the standard variables.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tokio::process::Command;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use super::*;

/// The test that a process runs alone.
const ALONE: &str = "telemetry::trace::tests::secured::spans_go_where_the_variables_say";

/// Writes a CA that only this test knows, and a certificate of it for both ends.
fn write_files(folder: &Path) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ClientAuth,
        ExtendedKeyUsagePurpose::ServerAuth,
    ];
    let certificate = params.signed_by(&key, &issuer).unwrap().pem();
    let files = [
        ("ca.crt", ca),
        ("tls.crt", certificate),
        ("tls.key", key.serialize_pem()),
    ];
    for (name, content) in files {
        fs::write(folder.join(name), content).unwrap();
    }
}

/// Starts a collector with these files. Returns its address.
async fn start_collector(collector: &Collector, folder: &Path) -> String {
    let file = |name| fs::read(folder.join(name)).unwrap();
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(file("tls.crt"), file("tls.key")))
        .client_ca_root(Certificate::from_pem(file("ca.crt")));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let service = TraceServiceServer::new(collector.clone());
    let mut server = Server::builder().tls_config(tls).unwrap();
    let serving = server.add_service(service);
    tokio::spawn(serving.serve_with_incoming(TcpIncoming::from(listener)));
    format!("https://localhost:{port}")
}

/// Runs the test below in a process with these variables.
async fn run_alone(variables: &[(&str, String)]) {
    let mut alone = Command::new(env::current_exe().unwrap());
    alone
        .args(["--exact", ALONE])
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdout(Stdio::null());
    assert!(alone.status().await.unwrap().success());
}

/// Alone, this process has the variables of the test below. Among the other tests it has none, and
/// sends nothing.
#[tokio::test(flavor = "multi_thread")]
async fn spans_go_where_the_variables_say() {
    let variable = |name: &str| env::var(name).ok();
    let found = Destination::find(&TraceOptions::default(), variable).unwrap();
    let endpoint = found.as_ref().map(|found| found.endpoint.clone());
    assert_eq!(endpoint, variable("OTEL_EXPORTER_OTLP_ENDPOINT"));
    if let Some(found) = found {
        let working = tokio::task::spawn_blocking(move || work(&found, "controller"));
        working.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_standard_variables_secure_describe_and_sample() {
    let folder = tempfile::tempdir().unwrap();
    write_files(folder.path());
    let collector = Collector::default();
    let address = start_collector(&collector, folder.path()).await;
    let file = |name| folder.path().join(name).display().to_string();
    let mut variables = vec![
        ("OTEL_EXPORTER_OTLP_ENDPOINT", address),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", file("tls.crt")),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", file("tls.key")),
    ];
    // No public CA has issued the certificate of the collector.
    run_alone(&variables).await;
    assert!(collector.spans().is_empty());

    let attributes = "deployment.environment.name=lab,k8s.node.name=n2";
    let texts_of = |name, value: &str| (name, value.to_owned());
    variables.extend([
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", file("ca.crt")),
        texts_of("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=ml"),
        texts_of("OTEL_RESOURCE_ATTRIBUTES", attributes),
        texts_of("OTEL_RESOURCE_ATTRIBUTES_POD_NAME", "controller-1"),
        texts_of("OTEL_RESOURCE_ATTRIBUTES_NAMESPACE_NAME", "ipu-operator"),
        texts_of("OTEL_RESOURCE_ATTRIBUTES_NODE_NAME", "n1"),
    ]);
    run_alone(&variables).await;
    let tenants = collector.tenants.lock().unwrap().clone();
    assert!(!tenants.is_empty());
    assert!(tenants.iter().all(|tenant| tenant.as_deref() == Some("ml")));
    let expected = [
        ("service.name", "ipu-operator-controller"),
        ("k8s.pod.name", "controller-1"),
        ("k8s.namespace.name", "ipu-operator"),
        ("k8s.node.name", "n2"),
        ("deployment.environment.name", "lab"),
    ];
    assert_eq!(
        described(&collector, &expected.map(|(key, _)| key)),
        expected.map(|(_, value)| value)
    );
    assert_eq!(collector.spans().len(), 3);

    variables.extend([
        texts_of("OTEL_SERVICE_NAME", "mine"),
        texts_of("OTEL_TRACES_SAMPLER", "traceidratio"),
        texts_of("OTEL_TRACES_SAMPLER_ARG", "0"),
    ]);
    run_alone(&variables).await;
    assert_eq!(collector.spans().len(), 3);
    variables.pop();
    variables.push(texts_of("OTEL_TRACES_SAMPLER_ARG", "1"));
    run_alone(&variables).await;
    assert_eq!(described(&collector, &["service.name"]), ["mine"]);
}

/// Attributes of the process that sent the last spans.
fn described(collector: &Collector, keys: &[&str]) -> Vec<String> {
    let received = collector.spans.lock().unwrap();
    let resource = received.last().unwrap().resource.clone();
    texts(&resource.unwrap().attributes, keys)
}
