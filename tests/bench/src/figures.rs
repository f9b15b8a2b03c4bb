//! Measures the operator in the demo's cluster: memory, and the time from a process's start to
//! ready.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use cluster::http::{HttpError, request};
use cluster::wait::{Seen, WaitedTooLong, until};
use harness::operator::NAMESPACE;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};

use harness::operator_process::{OperatorProcess, ProcessError};

/// Clock ticks of /proc in a second: fixed by the kernel's interface to programs.
const TICKS_PER_SECOND: f64 = 100.0;

/// The figures of one of the operator's two processes.
#[derive(Clone, Debug)]
pub struct Figures {
    /// `controller` or `vipu-proxy`.
    pub process: &'static str,
    /// Resident memory, in KiB.
    pub resident_kib: u64,
    /// From the start of the process to its first good answer on the readiness port, in seconds.
    pub ready_after: f64,
}

/// An error of a measurement.
#[derive(Debug, thiserror::Error)]
pub enum FiguresError {
    /// The process was not found, or its figures could not be read.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The API server failed.
    #[error("failed to list the operator's Pods")]
    Pods(#[source] kube::Error),
    /// A condition was not met in time.
    #[error(transparent)]
    Waited(#[from] WaitedTooLong),
    /// A Pod or a figure is missing.
    #[error("{0}")]
    Missing(String),
}

/// Measures both processes. Each is killed once, to measure its start. The kubelet restarts it in
/// the same Pod.
pub async fn measure(client: &Client) -> Result<Vec<Figures>, FiguresError> {
    let mut figures = Vec::new();
    for (process, component, port, path) in [
        ("controller", "controller-manager", 8081, "/readyz"),
        ("vipu-proxy", "vipu-proxy", 8081, "/readyz"),
    ] {
        let (pod, ip) = pod_of(client, component).await?;
        let running = OperatorProcess::find(process, Some(&pod))?;
        let resident_kib = running.resident_kib()?;
        let address = SocketAddr::new(ip, port);
        running.kill()?;
        figures.push(Figures {
            process,
            resident_kib,
            ready_after: ready_after(process, &pod, running, address, path).await?,
        });
    }
    Ok(figures)
}

async fn ready_after(
    process: &'static str,
    pod: &str,
    before: OperatorProcess,
    address: SocketAddr,
    path: &'static str,
) -> Result<f64, FiguresError> {
    let patience = Duration::from_mins(2);
    let begun = until(format!("{process} to start again"), patience, || async {
        Ok::<_, ProcessError>(match OperatorProcess::find(process, Some(pod)) {
            Ok(found) if found != before => Seen::Yes(found),
            other => Seen::NotYet(format!("{other:?}")),
        })
    })
    .await?;
    let ready_at = until(format!("{process} to be ready"), patience, || async {
        request("GET", &format!("http://{address}{path}"), "").await?;
        Ok::<_, HttpError>(Seen::Yes(uptime()))
    })
    .await?;
    #[expect(
        clippy::cast_precision_loss,
        reason = "clock ticks since boot are far below 2^52"
    )]
    let started_at = begun.started as f64 / TICKS_PER_SECOND;
    let ready_at = ready_at.ok_or_else(|| FiguresError::Missing("/proc/uptime".to_owned()))?;
    Ok(ready_at - started_at)
}

fn uptime() -> Option<f64> {
    fs::read_to_string("/proc/uptime")
        .ok()?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// The first Pod of a component: its name and its address.
async fn pod_of(
    client: &Client,
    component: &str,
) -> Result<(String, std::net::IpAddr), FiguresError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let found = pods
        .list(&ListParams::default())
        .await
        .map_err(FiguresError::Pods)?;
    found
        .items
        .into_iter()
        .filter(|pod| {
            pod.metadata
                .name
                .as_ref()
                .is_some_and(|name| name.contains(component))
        })
        .find_map(|pod| Some((pod.metadata.name?, pod.status?.pod_ip?.parse().ok()?)))
        .ok_or_else(|| FiguresError::Missing(format!("no Pod of {component} with an address")))
}
