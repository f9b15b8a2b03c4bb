//! The vipu-proxy alone: its process on an API server without the chart, and simulated controllers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cluster::control_plane::{ControlPlane, free_ports};
use cluster::http;
use cluster::settings::Settings;
use cluster::supervisor::Supervisor;
use cluster::wait::{Seen, WaitedTooLong, until};
use futures::{StreamExt, TryStreamExt, stream};
use ipu_api::ipupartition::{IPUPartition, PartitionPhase};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::Value;
use vipu_simulator::Simulator;

use super::super::bare::define;
use super::super::consumption::Consumption;
use super::super::product::{
    RELEASE, consumption, job, labelled_node, log_of, once_ready, program,
};
use super::super::submit::{jobs, submit};
use super::super::vipu_controllers::{entries, label, simulators};
use super::super::{LoadError, PATIENCE, SUBMITTED_AT_ONCE, api};
use super::partition_of;

/// Name of the process.
const NAME: &str = "vipu-proxy";

/// Duration of the measurement of the idle process.
const REST: Duration = Duration::from_mins(3);

/// Number of starts, if another process takes one of the chosen ports.
const TRIES: usize = 3;

/// The process, and its requirements.
pub(super) struct Proxy {
    // Fields drop in this order: the program ends before its servers.
    programs: Supervisor,
    pub(super) client: Client,
    pub(super) simulators: Vec<Simulator>,
    port: u16,
    log: PathBuf,
    pub(super) plane: ControlPlane,
    _scratch: tempfile::TempDir,
}

impl Proxy {
    /// Starts a proxy with this number of controllers, with this number of IPUs each. It is ready
    /// to create partitions.
    pub(super) async fn start(controllers: usize, ipus: u32) -> Result<Self, LoadError> {
        Self::start_on(api_server().await?, controllers, ipus).await
    }

    /// Starts it on this API server.
    pub(super) async fn start_on(
        (plane, client): (ControlPlane, Client),
        controllers: usize,
        ipus: u32,
    ) -> Result<Self, LoadError> {
        let settings = Settings::from_env()?;
        let simulators = simulators(controllers, ipus).await?;
        for index in 0..controllers {
            labelled_node(&client, &label(index)).await?;
        }
        install(&client, &simulators).await?;
        let scratch = tempfile::tempdir().map_err(failed)?;
        let mut tries = 1;
        let (programs, port) = loop {
            match start(&settings, &plane, scratch.path()).await {
                Err(LoadError::Ended { .. }) if tries < TRIES => tries += 1,
                result => break result?,
            }
        };
        Ok(Self {
            programs,
            client,
            simulators,
            port,
            log: log_of(NAME, scratch.path()),
            plane,
            _scratch: scratch,
        })
    }

    /// Requests all of these partitions, several at a time, and waits until they are ready.
    pub(super) async fn record(&self, wanted: &[Value]) -> Result<(), LoadError> {
        futures::try_join!(self.ask_for(wanted), self.once_ready(wanted))?;
        Ok(())
    }

    /// Creates an IPUJob for each of these numbers, and returns the partition that each requests.
    /// No controller reconciles the jobs: the proxy only reads them.
    pub(super) async fn of_jobs(&self, numbers: Range<usize>) -> Result<Vec<Value>, LoadError> {
        let jobs = jobs(&self.client, "graphcore.ai", "v1alpha1", "IPUJob");
        let name = |number: usize| format!("owner-{number}");
        let first = numbers.start;
        submit(&jobs, numbers.len(), |number| job(&name(first + number))).await?;
        let made = jobs.list_metadata(&ListParams::default()).await;
        let made = made.map_err(api("list the jobs"))?;
        let uids: HashMap<String, String> = made
            .iter()
            .filter_map(|job| Some((job.name_any(), job.uid()?)))
            .collect();
        let kind = (ipu_api::API_VERSION, "IPUJob");
        let wanted = numbers.map(|number| {
            let name = name(number);
            let uid = uids.get(&name);
            let uid = uid.ok_or_else(|| LoadError::Missing(format!("{name} was not made")))?;
            Ok(partition_of(kind, (&name, uid), number))
        });
        wanted.collect()
    }

    /// The object of the partition of this owner.
    pub(super) async fn object_of(&self, owner: &str) -> Result<Value, LoadError> {
        let found = self.partitions().list(&ListParams::default()).await;
        let found = found.map_err(api("list the IPUPartitions"))?;
        let mut of_owner = found.iter().filter(|one| one.spec.owner.name == owner);
        let missing = || LoadError::Missing(format!("{owner} has no IPUPartition"));
        let object = serde_json::to_value(of_owner.next().ok_or_else(missing)?);
        object.map_err(|error| LoadError::Missing(error.to_string()))
    }

    pub(super) fn consumption(&self) -> Result<Consumption, LoadError> {
        consumption(&self.programs, NAME)
    }

    /// Its median usage in the next three minutes. In this time, the API server closes idle
    /// connections, after 90 s, and there may be two sweeps.
    pub(super) async fn idle_consumption(&self) -> Result<Consumption, LoadError> {
        let begun = Instant::now();
        let mut seen = Vec::new();
        until("three idle minutes", PATIENCE, async || {
            seen.push(self.consumption()?);
            Ok::<_, LoadError>(if begun.elapsed() >= REST {
                Seen::Yes(())
            } else {
                Seen::NotYet(format!("{} readings", seen.len()))
            })
        })
        .await?;
        seen.sort_unstable_by_key(|one| one.resident_kib);
        Ok(seen[seen.len() / 2])
    }

    /// Queries the free capacity for partitions of this size.
    pub(super) async fn query(&self, ipus: u32) -> Result<(), LoadError> {
        let url = format!("http://127.0.0.1:{}/query", self.port);
        let body = format!("{{\"size\": {ipus}}}");
        http::request("POST", &url, &body).await?;
        Ok(())
    }

    /// Waits for a sweep that finds this number of partitions, and returns its duration.
    pub(super) async fn once_swept(&self, partitions: usize) -> Result<Duration, LoadError> {
        let no_log = |error| LoadError::Missing(format!("{}: {error}", self.log.display()));
        let mut log = File::open(&self.log).map_err(no_log)?;
        let (mut unread, mut last) = (Vec::new(), None);
        let what = format!("a sweep of {partitions} partitions");
        let took = until(what, PATIENCE, async || {
            // The log of many partitions is long, so this reads it once. Its last line may be
            // incomplete.
            log.read_to_end(&mut unread)?;
            let whole = unread.iter().rposition(|byte| *byte == b'\n');
            let lines: Vec<u8> = unread.drain(..whole.map_or(0, |end| end + 1)).collect();
            let mut sweeps = lines.split(|byte| *byte == b'\n').filter_map(swept);
            last = sweeps.next_back().or(last);
            Ok::<_, std::io::Error>(match last {
                Some((found, took)) if found == partitions => Seen::Yes(took),
                other => Seen::NotYet(format!("{other:?}")),
            })
        });
        Ok(took.await?)
    }

    fn partitions(&self) -> Api<IPUPartition> {
        Api::all(self.client.clone())
    }

    /// Requests all of these partitions, several at a time.
    pub(super) async fn ask_for(&self, wanted: &[Value]) -> Result<(), LoadError> {
        let partitions = self.partitions();
        stream::iter(wanted)
            .map(Ok)
            .try_for_each_concurrent(SUBMITTED_AT_ONCE, |object| {
                let object = serde_json::from_value(object.clone());
                let partitions = partitions.clone();
                async move {
                    let object: IPUPartition = object.map_err(kube::Error::SerdeError)?;
                    let made = partitions.create(&PostParams::default(), &object).await;
                    made.map(drop)
                }
            })
            .await
            .map_err(api("ask for a partition"))
    }

    /// Follows the partitions until all of these are ready.
    async fn once_ready(&self, wanted: &[Value]) -> Result<(), LoadError> {
        let names = wanted
            .iter()
            .filter_map(|one| one["metadata"]["name"].as_str());
        let mut missing: HashSet<&str> = names.collect();
        let follow = async {
            let changes = watcher(self.partitions(), watcher::Config::default())
                .default_backoff()
                .applied_objects();
            let mut changes = std::pin::pin!(changes);
            while !missing.is_empty() {
                let Some(change) = changes.next().await else {
                    break;
                };
                // The watch restarts by itself. A permanent failure ends with the timeout.
                let Ok(object) = change else { continue };
                let status = object.status.as_ref();
                if status.is_some_and(|status| status.phase == PartitionPhase::Ready) {
                    missing.remove(object.name_any().as_str());
                }
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, follow).await;
        in_time.map_err(|_| WaitedTooLong {
            what: format!("{} partitions to be ready", wanted.len()),
            waited: PATIENCE,
            last: format!("{} are not", missing.len()),
        })?;
        Ok(())
    }
}

/// Starts the process on free ports, and waits until it is ready. Returns its port without TLS.
async fn start(
    settings: &Settings,
    plane: &ControlPlane,
    scratch: &Path,
) -> Result<(Supervisor, u16), LoadError> {
    let [port, secure, probes] = free_ports().map_err(failed)?;
    let args = [
        format!("--port={port}"),
        format!("--secure-port={secure}"),
        format!("--probe-port={probes}"),
        "--log-format=json".to_owned(),
        "--log-level=info,ipu_partitions::sweep=debug".to_owned(),
    ];
    let program = program(NAME, &args, settings, plane, scratch);
    let programs = Supervisor::start(vec![program]).map_err(failed)?;
    once_ready(probes, &programs, scratch).await?;
    Ok((programs, port))
}

fn failed(source: std::io::Error) -> LoadError {
    LoadError::Start("the vipu-proxy", source)
}

/// An API server that serves IPUPartitions, and a client of it.
pub(super) async fn api_server() -> Result<(ControlPlane, Client), LoadError> {
    let plane = ControlPlane::start().await?;
    let client = plane.client().await?;
    for definition in [ipu_api::crd::ipujob(), ipu_api::crd::ipupartition()] {
        define(&client, &definition).await?;
    }
    Ok((plane, client))
}

/// The release's namespace and the admin's list of controllers: the only parts of the chart that
/// the proxy needs.
async fn install(client: &Client, simulators: &[Simulator]) -> Result<(), LoadError> {
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(RELEASE.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let made = namespaces.create(&PostParams::default(), &namespace).await;
    made.map_err(api("make a namespace"))?;
    let list = ConfigMap {
        metadata: ObjectMeta {
            name: Some(format!("{RELEASE}-vipu-controllers")),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(
            "controllers.yaml".to_owned(),
            entries(simulators).join(","),
        )])),
        ..ConfigMap::default()
    };
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), RELEASE);
    let made = maps.create(&PostParams::default(), &list).await;
    made.map(drop).map_err(api("list the controllers"))
}

/// The number of partitions that a sweep found on controllers, and its duration, if a line of the
/// log reports one.
fn swept(line: &[u8]) -> Option<(usize, Duration)> {
    let line: Value = serde_json::from_slice(line).ok()?;
    if line["message"] != "swept" {
        return None;
    }
    let found = usize::try_from(line["partitions"].as_u64()?).ok()?;
    let took = Duration::try_from_secs_f64(line["seconds"].as_f64()?).ok()?;
    Some((found, took))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_found_in_the_log() {
        let line =
            br#"{"level":"DEBUG","message":"swept","objects":7,"partitions":7,"seconds":0.25}"#;
        assert_eq!(swept(line), Some((7, Duration::from_millis(250))));
        assert_eq!(swept(br#"{"message":"starting"}"#), None);
        assert_eq!(swept(b"not JSON"), None);
    }
}
