//! A vipu-proxy, the controller of IPUJobs, and a reader of all places that show why a job waits.

use std::path::Path;

use cluster::http;
use cluster::wait::{Seen, eventually};
use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobCondition;
use ipu_api::ipupartition::IPUPartition;
use ipu_jobs::Shared;
use ipu_operator::exposition::Metrics;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::core::ApiResource;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::dashboard::fixture::Dashboard;
use crate::job::single;
use crate::job_fixture::settings;
use crate::partition::fixture::Fixture;
use crate::plugin::Plugin;

/// Reads the plugin of kubectl, the dashboard and the REST API of the proxy.
pub(super) struct Reader {
    plugin: Plugin,
    rest: u16,
    dashboard: Dashboard,
}

/// A fixture of partitions, with the controller of IPUJobs and a reader.
pub(super) struct Explained {
    pub(super) fixture: Fixture,
    pub(super) reader: Reader,
    controller: Option<JoinHandle<()>>,
    folder: TempDir,
}

impl Reader {
    /// A reader with the rights of an admin, of a proxy that serves its REST API on this port.
    pub(super) async fn new(kubeconfig: &Path, rest: u16) -> Self {
        let plugin = Plugin::of(kubeconfig).await;
        Self {
            dashboard: Dashboard::of(plugin.command(&["dashboard"])).await,
            plugin,
            rest,
        }
    }

    /// Returns the page of `kubectl ipu why`, once it contains all of this.
    pub(super) async fn why(&self, job: &str, parts: &[&str]) -> String {
        self.plugin.why(job, parts).await
    }

    /// Waits until `kubectl ipu why` shows this size as the largest that fits. 0: none.
    pub(super) async fn why_names_fit(&self, job: &str, ipus: u32) {
        eventually(&format!("why {job} names {ipus} IPUs"), async || {
            let page = self.plugin.run(&["why", job, "--output", "json"])?;
            let page: Value = serde_json::from_str(&page).map_err(|error| error.to_string())?;
            let capacity = &page["capacity"];
            let named = capacity["largestFit"]["ipus"].as_u64().unwrap_or(0);
            let is_so = capacity.is_object() && named == u64::from(ipus);
            if is_so { Ok(()) } else { Err(page.to_string()) }
        })
        .await;
    }

    /// Returns the answer of `/query`, once it is as wanted.
    pub(super) async fn query(
        &self,
        what: &str,
        body: &Value,
        is_wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        let url = format!("http://127.0.0.1:{}/query", self.rest);
        eventually(&format!("/query {body}: {what}"), async || {
            let answer = http::request("POST", &url, &body.to_string()).await;
            let text = answer.map_err(|error| error.to_string())?;
            let json: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            if is_wanted(&json) {
                Ok(json)
            } else {
                Err(text)
            }
        })
        .await
    }

    /// Returns the queue of the dashboard, once it is as wanted.
    pub(super) async fn queue(&self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        self.dashboard.once("queue", is_wanted).await
    }

    /// Waits until the dashboard shows a job among those that wait for something other than IPUs,
    /// with this text.
    pub(super) async fn queue_blocks(&self, job: &str, text: &str) {
        self.queue(|json| {
            let rows = json["blocked"]["rows"].as_array().cloned();
            let mut own = rows.into_iter().flatten().filter(|row| row["name"] == job);
            own.any(|row| contains(&row["message"], text))
        })
        .await;
    }
}

impl Explained {
    /// Starts V-IPU controllers of these sizes, and no process of the operator.
    pub(super) async fn prepare(sizes: &[u32]) -> Self {
        let fixture = Fixture::without_proxy(sizes).await;
        let reader = Reader::new(&fixture.kubeconfig, fixture.port).await;
        Self {
            fixture,
            reader,
            controller: None,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// A folder for built-in guests.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts the operator.
    pub(super) async fn start(&mut self) {
        self.fixture.start_proxy().await;
        let client = self.fixture.client.clone();
        self.controller = Some(tokio::spawn(async move {
            let metrics = Metrics::default().of_jobs();
            let (shared, stop) = (Shared::default(), CancellationToken::new());
            let run = ipu_jobs::run(client, settings(), shared, &metrics, stop);
            run.await.unwrap();
        }));
    }

    /// The user creates a job.
    pub(super) async fn submit(&self, job: &Value) {
        let job: DynamicObject = serde_json::from_value(job.clone()).unwrap();
        let created = self.jobs().create(&PostParams::default(), &job).await;
        created.unwrap();
    }

    /// Waits until a condition of a job is False, with this type and reason, and a message that
    /// contains this text.
    pub(super) async fn once_condition(&self, job: &str, condition: [&str; 3]) {
        once_condition(&self.jobs(), job, condition).await;
    }

    /// Waits until the status of a job's IPUPartition contains this reason to wait.
    pub(super) async fn once_partition_waits(&self, job: &str, text: &str) {
        let what = format!("an IPUPartition of {job} waits: {text}");
        eventually(&what, async || {
            let own = self.partitions_of(job).await.into_iter();
            let waiting = own.filter_map(|one| one.status).flat_map(|one| one.waiting);
            let reasons: Vec<_> = waiting.map(|one| one.reason).collect();
            Seen::when(reasons, |all| all.iter().any(|one| one.contains(text)))
        })
        .await;
    }

    /// Waits until the partition of a job is ready.
    pub(super) async fn once_served(&self, job: &str) {
        eventually(&format!("{job} has its partition"), async || {
            let own = self.partitions_of(job).await.pop();
            let status = own.and_then(|one| one.status).unwrap_or_default();
            Seen::when(status, |status| status.partition_id.is_some())
        })
        .await;
    }

    async fn partitions_of(&self, owner: &str) -> Vec<IPUPartition> {
        let partitions = self.fixture.partitions();
        let all = partitions.list(&ListParams::default()).await.unwrap();
        let mut own = all.items;
        own.retain(|one| one.spec.owner.name == owner);
        own
    }

    fn jobs(&self) -> Api<DynamicObject> {
        jobs(self.fixture.client.clone())
    }
}

impl Drop for Explained {
    fn drop(&mut self) {
        if let Some(controller) = &self.controller {
            controller.abort();
        }
    }
}

/// Waits until a condition of a job is False, with this type and reason, and a message that
/// contains this text. An empty reason matches any.
pub(super) async fn once_condition(
    jobs: &Api<DynamicObject>,
    job: &str,
    [type_, reason, text]: [&str; 3],
) {
    eventually(&format!("{job}: {type_}: {reason}: {text}"), async || {
        let found = jobs.get(job).await.unwrap();
        let conditions = found.data["status"]["conditions"].clone();
        let all: Vec<JobCondition> = serde_json::from_value(conditions).unwrap_or_default();
        let is_so = |one: &JobCondition| {
            let is_meant = one.type_ == type_ && one.status == "False";
            let has_reason = reason.is_empty() || one.reason == reason;
            is_meant && has_reason && one.message.contains(text)
        };
        Seen::when(all, |all| all.iter().any(is_so))
    })
    .await;
}

/// The IPUJobs of the namespace `default`, as any user sees them.
pub(super) fn jobs(client: kube::Client) -> Api<DynamicObject> {
    Api::namespaced_with(client, "default", &ApiResource::erase::<IPUJob>(&()))
}

/// A job of one worker on this number of IPUs, after defaulting.
pub(super) fn job(name: &str, ipus: u32) -> Value {
    let mut job = single(name);
    job["spec"]["ipusPerJobInstance"] = json!(ipus.to_string());
    job
}

/// Whether a JSON text contains this.
pub(super) fn contains(value: &Value, text: &str) -> bool {
    value.as_str().is_some_and(|found| found.contains(text))
}
