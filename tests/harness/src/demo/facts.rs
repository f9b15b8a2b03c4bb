//! Checks of the demo's jobs on typed objects.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use cluster::wait::{Seen, until};
use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobState;
use ipu_api::ipupartition::{IPUPartition, PartitionPhase};
use ipu_api::labels;
use ipu_api::naming;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;

use super::{DemoError, Operated};

/// A job of the demo, as in its file.
#[derive(Clone, Debug)]
pub struct JobFact {
    /// Namespace; `default` if the file names none.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Number of worker Pods.
    pub workers: u32,
}

impl JobFact {
    /// Reads the first IPUJob of an example file.
    pub fn of_file(path: &Path) -> Result<Self, DemoError> {
        let said = |problem: String| DemoError::Check(format!("{}: {problem}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| said(error.to_string()))?;
        let job: IPUJob = serde_saphyr::from_str(&text).map_err(|error| said(error.to_string()))?;
        let workers = job.spec.workers_per_job_instance.as_deref().unwrap_or("1");
        Ok(Self {
            namespace: job
                .metadata
                .namespace
                .unwrap_or_else(|| "default".to_owned()),
            name: job.metadata.name.unwrap_or_default(),
            workers: workers
                .parse()
                .map_err(|error| said(format!("workers: {error}")))?,
        })
    }
}

/// Reads the cluster of the demo.
pub struct Facts<'a> {
    operated: &'a Operated,
}

impl<'a> Facts<'a> {
    /// Returns the checks of one cluster.
    pub fn new(operated: &'a Operated) -> Self {
        Self { operated }
    }

    /// Waits until a job is Completed. A job that has Failed ends the wait at once.
    pub async fn completed(&self, job: &JobFact, patience: Duration) -> Result<(), DemoError> {
        let jobs: Api<IPUJob> = Api::namespaced(self.operated.client.clone(), &job.namespace);
        let end = until(format!("{} to end", job.name), patience, || async {
            let status = jobs.get(&job.name).await?.status.unwrap_or_default();
            Ok::<_, kube::Error>(match status.launcher_status {
                JobState::Completed => Seen::Yes(Ok(())),
                JobState::Failed => Seen::Yes(Err(status.last_message)),
                state => Seen::NotYet(format!("{state:?}: {}", status.last_message)),
            })
        })
        .await?;
        end.map_err(|message| DemoError::Check(format!("{} Failed: {message}", job.name)))
    }

    /// Waits until the launcher's main container runs or has ended.
    pub async fn launcher_started(
        &self,
        job: &JobFact,
        patience: Duration,
    ) -> Result<(), DemoError> {
        let pods: Api<Pod> = Api::namespaced(self.operated.client.clone(), &job.namespace);
        let launcher = naming::launcher(&job.name);
        until(format!("Pod {launcher} to run"), patience, || async {
            let status = pods.get_opt(&launcher).await?.and_then(|pod| pod.status);
            let phase = status.and_then(|status| status.phase).unwrap_or_default();
            Ok::<_, kube::Error>(Seen::when(phase, |phase| {
                ["Running", "Succeeded", "Failed"].contains(&phase.as_str())
            }))
        })
        .await?;
        Ok(())
    }

    /// Waits until the first partition of a job is Ready and its first worker is on a node. Returns
    /// the controller and the node.
    pub async fn placed(
        &self,
        job: &JobFact,
        patience: Duration,
    ) -> Result<(String, String), DemoError> {
        let pods: Api<Pod> = Api::namespaced(self.operated.client.clone(), &job.namespace);
        let worker = naming::worker(&job.name, 0);
        let found = until(format!("{} to be placed", job.name), patience, || async {
            let node = pods
                .get_opt(&worker)
                .await?
                .and_then(|pod| pod.spec)
                .and_then(|spec| spec.node_name);
            let controller = self.controller_of(job).await?;
            Ok::<_, kube::Error>(match (controller, node) {
                (Some(controller), Some(node)) => Seen::Yes((controller, node)),
                other => Seen::NotYet(format!("{other:?}")),
            })
        })
        .await?;
        Ok(found)
    }

    /// Checks that the launcher's log has one rank for each worker Pod, that each rank has its own
    /// GCD, and that all ranks have the partition of the job.
    pub fn ranks_ran_on_their_workers(&self, job: &JobFact, log: &str) -> Result<(), DemoError> {
        let mut gcds = BTreeSet::new();
        for index in 0..job.workers {
            let worker = naming::worker(&job.name, index);
            // A rank prints its name in one line, and its partition and GCD in the following lines.
            let said = log
                .split("rank ")
                .find(|said| said.contains(&format!(" on {worker} ")))
                .ok_or_else(|| DemoError::Check(format!("no rank ran on {worker}")))?;
            let gcd = value_of(said, "IPUOF_VIPU_API_GCD_ID=")
                .ok_or_else(|| DemoError::Check(format!("no GCD in: {said}")))?;
            value_of(said, "IPUOF_VIPU_API_PARTITION_ID=")
                .ok_or_else(|| DemoError::Check(format!("no partition in: {said}")))?;
            gcds.insert(gcd.to_owned());
        }
        if gcds.len() == job.workers as usize {
            return Ok(());
        }
        Err(DemoError::Check(format!("the ranks share GCDs: {gcds:?}")))
    }

    /// Waits until the API server has no IPUJob, no Pod of a job and no IPUPartition.
    pub async fn nothing_in_the_api(&self, patience: Duration) -> Result<(), DemoError> {
        let client = &self.operated.client;
        let jobs: Api<IPUJob> = Api::all(client.clone());
        let partitions: Api<IPUPartition> = Api::all(client.clone());
        let pods: Api<Pod> = Api::all(client.clone());
        let of_jobs = ListParams::default().labels(labels::JOB_UID_LABEL);
        until("the API to have no object of a job", patience, || async {
            let left = [
                (
                    "IPUJobs",
                    jobs.list(&ListParams::default()).await?.items.len(),
                ),
                ("Pods", pods.list(&of_jobs).await?.items.len()),
                (
                    "IPUPartitions",
                    partitions.list(&ListParams::default()).await?.items.len(),
                ),
            ];
            Ok::<_, kube::Error>(Seen::when(left, |left| {
                left.iter().all(|(_, count)| *count == 0)
            }))
        })
        .await?;
        Ok(())
    }

    async fn controller_of(&self, job: &JobFact) -> Result<Option<String>, kube::Error> {
        let partitions: Api<IPUPartition> = Api::all(self.operated.client.clone());
        let all = partitions.list(&ListParams::default()).await?;
        Ok(all
            .items
            .into_iter()
            .filter(|partition| {
                partition.spec.owner.name == job.name
                    && partition.spec.owner.namespace == job.namespace
            })
            .filter_map(|partition| partition.status)
            .filter(|status| status.phase == PartitionPhase::Ready)
            .find_map(|status| status.controller)
            .map(|controller| controller.name))
    }
}

/// Checks the six columns of `kubectl get ipujobs`, in their order.
pub(super) fn six_columns(table: &str) -> Result<(), DemoError> {
    let header: Vec<&str> = table
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let wanted = ["NAME", "STATUS", "CURRENT", "DESIRED", "LASTMESSAGE", "AGE"];
    if header == wanted {
        return Ok(());
    }
    Err(DemoError::Check(format!(
        "the columns are {header:?}, not {wanted:?}"
    )))
}

/// Returns the word after `key`, up to the next blank.
fn value_of<'a>(said: &'a str, key: &str) -> Option<&'a str> {
    said.split(key)
        .nth(1)?
        .split_whitespace()
        .next()
        .filter(|value| !value.is_empty())
}
