//! Runs one simulated V-IPU controller until it gets SIGTERM or Ctrl-C.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use vipu_simulator::pod::Timings;
use vipu_simulator::tls::TlsFiles;
use vipu_simulator::{Options, Simulator};

/// A simulated V-IPU controller: the user API on one port, orders for faults on another, and
/// exporters of IPU-Machines.
#[derive(Parser)]
struct Cli {
    /// Name of the pod, which is also the name of its allocation.
    #[arg(long, default_value = "pod1")]
    name: String,
    /// IPUs of the pod.
    #[arg(long, default_value_t = 16)]
    ipus: u32,
    /// Name of a cluster of the pod. Several clusters have equal shares of the IPUs. Missing: one
    /// with the pod's name.
    #[arg(long = "cluster")]
    clusters: Vec<String>,
    /// Address of the V-IPU user API (gRPC).
    #[arg(long, default_value = "0.0.0.0:8090")]
    listen: SocketAddr,
    /// Address for orders of faults (HTTP); start with `GET /state`.
    #[arg(long, default_value = "0.0.0.0:8091")]
    control: SocketAddr,
    /// Address of the exporter of the first IPU-Machine (HTTP, `/metrics`). The others have the
    /// ports after it. Missing: no exporters.
    #[arg(long)]
    exporters: Option<SocketAddr>,
    /// Milliseconds from CreatePartition to ACTIVE.
    #[arg(long, default_value_t = 1000)]
    forming_ms: u64,
    /// Milliseconds from RemovePartition until the partition is gone.
    #[arg(long, default_value_t = 300)]
    removing_ms: u64,
    /// Milliseconds from ResetPartition to ACTIVE.
    #[arg(long, default_value_t = 500)]
    resetting_ms: u64,
    /// File that stores the partitions, so that they outlive this process.
    #[arg(long)]
    partitions_file: Option<PathBuf>,
    /// The server's certificate (PEM). With it, the user API uses TLS.
    #[arg(long, requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key (PEM).
    #[arg(long, requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The CA (PEM) of callers' certificates. With it, callers need a certificate.
    #[arg(long, requires = "tls_cert")]
    client_ca: Option<PathBuf>,
    /// Serve only callers that send this as the gRPC metadata `user-id`.
    #[arg(long)]
    require_user_id: Option<String>,
    /// Serve only callers that send this as the gRPC metadata `api-key`.
    #[arg(long)]
    require_api_key: Option<String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let required = [
        ("user-id", cli.require_user_id),
        ("api-key", cli.require_api_key),
    ];
    let required = required
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let tls = cli.tls_cert.zip(cli.tls_key);
    let simulator = Simulator::start(Options {
        name: cli.name,
        ipus: cli.ipus,
        clusters: cli.clusters,
        listen: cli.listen,
        control: cli.control,
        timings: Timings {
            forming_ms: cli.forming_ms,
            removing_ms: cli.removing_ms,
            resetting_ms: cli.resetting_ms,
        },
        file: cli.partitions_file,
        tls: tls.map(|(certificate, key)| TlsFiles {
            certificate,
            key,
            client_ca: cli.client_ca,
        }),
        required: required.collect(),
    })
    .await?;
    if let Some(first) = cli.exporters {
        for exporter in simulator.export(first).await? {
            tracing::info!(machine = exporter.machine, address = %exporter.address, "exports");
        }
    }
    tracing::info!(api = %simulator.address, control = %simulator.control, "ready");
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result?,
        _ = terminate.recv() => {}
    }
    Ok(())
}
