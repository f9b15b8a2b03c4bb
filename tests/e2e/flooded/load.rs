//! The load: one process for each of several Pods, in the network and the cgroups of that Pod. Each
//! Pod has its own address, and no more processor time than Pods without requests.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command};

use cluster::wait::{Seen, until};
use harness::operator_process::{OperatorProcess, ProcessError};
use harness::simulator_image;
use libtest_mimic::Failed;
use tempfile::TempDir;
use tests::flood::{Kind, Targets};

use super::{PROBES, Running};
use crate::fixture::{Fixture, PATIENCE};

/// Number of Pods. Together, the shares of their addresses exceed the total limit of any port.
const PODS: usize = 9;

/// The requests of a process so far.
type Sent = BTreeMap<Kind, u64>;

/// The processes in the order of their start, and their reports.
pub(super) struct Flood {
    children: Vec<Child>,
    reports: TempDir,
}

impl Flood {
    pub(super) async fn begin(fixture: &Fixture, pods: &[Running]) -> Result<Self, Failed> {
        let targets = serde_json::to_string(&targets(pods))?;
        let mut flood = Self {
            children: Vec::new(),
            reports: tempfile::tempdir()?,
        };
        for number in 0..PODS {
            let process = pod(fixture, &name(number)).await?;
            let network = format!("--net=/proc/{}/ns/net", process.pid);
            let child = Command::new("nsenter")
                .args([&network, "--"])
                .arg(std::env::current_exe()?)
                .args(["flood", &process.pid.to_string(), &targets])
                .stdout(File::create(flood.reports.path().join(name(number)))?)
                .spawn()?;
            flood.children.push(child);
        }
        Ok(flood)
    }

    /// Requests of the load that have ended so far, without connections that send nothing.
    pub(super) fn ended(&self) -> Result<u64, Failed> {
        let mut ended = 0;
        for number in 0..self.children.len() {
            let sent = last(&self.reports.path().join(name(number)))?;
            // A process that has just started has printed none.
            let requests = sent
                .into_iter()
                .flatten()
                .filter(|(kind, _)| *kind != Kind::Idle);
            ended += requests.map(|(_, count)| count).sum::<u64>();
        }
        Ok(ended)
    }

    /// Ends the load. Returns its results.
    pub(super) fn end(&mut self) -> Result<Sent, Failed> {
        let mut sent = Sent::new();
        for (number, child) in self.children.iter_mut().enumerate() {
            if let Some(status) = child.try_wait()? {
                return Err(format!("the load {number} ended by itself: {status}").into());
            }
            child.kill()?;
            child.wait()?;
            let last = last(&self.reports.path().join(name(number)))?;
            for (kind, count) in last.ok_or("a load printed no counts")? {
                *sent.entry(kind).or_default() += count;
            }
        }
        Ok(sent)
    }

    /// Deletes the Pods.
    pub(super) async fn delete(fixture: &Fixture) -> Result<(), Failed> {
        let names: Vec<_> = (0..PODS).map(name).collect();
        let mut delete = vec!["delete", "pod", "--wait=false", "--ignore-not-found"];
        delete.extend(names.iter().map(String::as_str));
        fixture.kubectl(&delete).await?;
        Ok(())
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It has ended already unless the test failed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn name(number: usize) -> String {
    format!("flood-{number}")
}

/// Reads the last report of a process, if there is one. The last line can be incomplete.
fn last(reports: &Path) -> Result<Option<Sent>, Failed> {
    let reports = std::fs::read_to_string(reports)?;
    let mut lines = reports.lines().rev();
    Ok(lines.find_map(|line| serde_json::from_str(line).ok()))
}

/// Runs a Pod without rights. Returns its process.
async fn pod(fixture: &Fixture, name: &str) -> Result<OperatorProcess, Failed> {
    let image = format!("--image={}", simulator_image::NAME);
    let overrides =
        r#"--overrides={"apiVersion": "v1", "spec": {"automountServiceAccountToken": false}}"#;
    let run = ["run", name, &image, "--image-pull-policy=Never", overrides];
    fixture.kubectl(&run).await?;
    let process = until("the Pod that loads to run", PATIENCE, || async {
        Ok::<_, ProcessError>(Seen::Yes(OperatorProcess::of_pod("/vipu-simulator", name)?))
    });
    Ok(process.await?)
}

fn targets(pods: &[Running]) -> Targets {
    let all = |component: &str, port: u16| -> Vec<SocketAddr> {
        let pods = pods.iter().filter(|pod| pod.component == component);
        pods.map(|pod| pod.at(port)).collect()
    };
    let with = |addresses: Vec<_>, path: &str| {
        let with = move |address| (address, path.to_owned());
        addresses.into_iter().map(with).collect::<Vec<_>>()
    };
    let every_port = pods.iter().flat_map(|pod| {
        let ports = pod.ports.iter().chain([&PROBES]);
        ports.map(|port| pod.at(*port)).collect::<Vec<_>>()
    });
    Targets {
        idle: every_port.collect(),
        webhooks: all("controller", 9443),
        guarded: [
            with(all("vipu-proxy", 8443), "/partitions"),
            with(all("controller", 8443), "/metrics"),
        ]
        .concat(),
        queries: all("vipu-proxy", 8080),
        partitions: all("vipu-proxy", 8443),
    }
}
