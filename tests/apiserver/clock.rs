//! Clocks that are an hour off: the operator uses the API server's time, regardless of the clock of
//! its machine.

use std::collections::HashSet;

use cluster::progress::Progress;
use cluster::settings::Settings;
use cluster::tools::debian;
use cluster::wait::{Seen, eventually};
use ipu_api::ipujob_status::JobState;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::job::single;
use crate::processes::{Environment, Installation, RELEASE};

/// Offset of a clock in seconds: one hour, and a little more than the backdating of certificates.
const HOUR: i64 = 3720;

/// Much less than that, and much more than any step of a test takes.
const NEAR: SignedDuration = SignedDuration::from_mins(20);

/// The time limits of the jobs, in seconds: less than an hour, and more than a test takes.
const LIMIT: i64 = 1800;

impl Installation {
    /// Returns the Lease of `controller-manager` or `vipu-proxy`.
    async fn lease(&self, process: &str) -> Lease {
        self.lease_if_any(process).await.unwrap()
    }

    /// Waits until this one leads.
    async fn leads(&self, process: &str, name: &str) {
        eventually(&format!("{name} leads"), async || {
            // The Lease does not exist before the first leader.
            let lease = self
                .lease_if_any(process)
                .await
                .and_then(|lease| lease.spec);
            let holder = lease.and_then(|lease| lease.holder_identity);
            Seen::when(holder, |holder| holder.as_deref() == Some(name))
        })
        .await;
    }

    async fn lease_if_any(&self, process: &str) -> Option<Lease> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), RELEASE);
        leases
            .get_opt(&format!("{RELEASE}-{process}"))
            .await
            .unwrap()
    }
}

/// A process whose clock is this number of seconds ahead. Its monotonic clock is unchanged, as on a
/// machine with a wrong time.
fn ahead(seconds: i64) -> Environment {
    let settings = Settings::from_env().unwrap();
    let library = debian::faketime(&settings, &Progress::start()).unwrap();
    vec![
        ("LD_PRELOAD", library.into()),
        ("FAKETIME", format!("{seconds:+}s").into()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
    ]
}

/// A job that ends, and a completed job that is deleted, long before an hour is over.
fn limited(name: &str) -> Value {
    let mut job = single(name);
    job["spec"]["activeDeadlineSeconds"] = json!(LIMIT);
    job["spec"]["ttlSecondsAfterFinished"] = json!(LIMIT);
    let pod = &mut job["spec"]["workers"]["template"]["spec"];
    pod["terminationGracePeriodSeconds"] = json!(1);
    job
}

fn is_near(what: &str, written: Option<Time>, now: Timestamp) {
    let written = written.unwrap().0;
    let off = now.duration_since(written).abs();
    assert!(off < NEAR, "{what} is {written}, at {now}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_wrong_clock_webhooks_are_trusted_and_times_are_those_of_the_api_server() {
    for seconds in [HOUR, -HOUR] {
        let installation = Installation::new().await;
        let proxy = installation.proxy("proxy", ahead(seconds)).await;
        // The process creates the certificate, and the API server decides whether it is valid now.
        let controller = installation.controller("controller", ahead(seconds)).await;
        installation.submit(&limited("job")).await;
        installation.runs("job-worker-0").await;
        installation.once("job", JobState::Running).await;
        installation.ends("job-worker-0").await;
        let status = installation.once("job", JobState::Completed).await;
        let now = installation.jobs().get("job").await.unwrap();
        let now = now.creation_timestamp().unwrap().0;
        is_near("startTime", status.start_time, now);
        is_near("completionTime", status.completion_time, now);
        let renewed = installation.lease("controller-manager").await.spec.unwrap();
        is_near("renewTime", renewed.renew_time.map(|at| Time(at.0)), now);
        eventually("the partition is released", async || {
            Seen::when(installation.partitions().await, Vec::is_empty)
        })
        .await;
        for process in [&controller, &proxy] {
            process.says("the clock of the API server is ahead").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_with_different_clocks_have_one_leader_and_the_next_one_ends_nothing_early() {
    let installation = Installation::new().await;
    let first_proxy = installation.proxy("proxy-behind", ahead(-HOUR)).await;
    let first = installation.controller("behind", ahead(-HOUR)).await;
    installation.leads("controller-manager", "behind").await;
    for job in ["runs", "done", "stranded", "probe-1", "probe-2"] {
        installation.submit(&limited(job)).await;
        installation.runs(&format!("{job}-worker-0")).await;
        installation.once(job, JobState::Running).await;
    }
    installation.ends("done-worker-0").await;
    installation.once("done", JobState::Completed).await;
    let preserved = Preserved::now(&installation).await;

    // Both run, and one waits as long as the other renews the Lease.
    let second_proxy = installation.proxy("proxy-ahead", ahead(HOUR)).await;
    let second = installation.replica("ahead", ahead(HOUR)).await;
    renewals_by(&installation, "behind").await;
    drop((first, first_proxy));
    installation.leads("controller-manager", "ahead").await;
    installation.leads("vipu-proxy", "proxy-ahead").await;
    preserved
        .check_after_reconcile(&installation, "probe-1")
        .await;

    let _third_proxy = installation.proxy("proxy-behind", ahead(-HOUR)).await;
    let _third = installation.replica("behind-again", ahead(-HOUR)).await;
    renewals_by(&installation, "ahead").await;
    drop((second, second_proxy));
    installation
        .leads("controller-manager", "behind-again")
        .await;
    installation.leads("vipu-proxy", "proxy-behind").await;
    preserved
        .check_after_reconcile(&installation, "probe-2")
        .await;
}

/// Waits until the same holder has renewed the Lease this number of times.
async fn renewals_by(installation: &Installation, name: &str) {
    let mut renewals = HashSet::new();
    eventually(&format!("{name} renews"), async || {
        let lease = installation.lease("controller-manager").await.spec.unwrap();
        assert_eq!(lease.holder_identity.as_deref(), Some(name));
        renewals.insert(lease.renew_time.unwrap().0);
        Seen::when(renewals.len(), |seen| *seen > 4)
    })
    .await;
}

/// Objects that no clock may remove.
struct Preserved {
    worker: Pod,
    stranded: Pod,
    partitions: Vec<(String, Option<String>)>,
}

impl Preserved {
    /// The node becomes unreachable now, and a Pod on it is deleted.
    async fn now(installation: &Installation) -> Self {
        bind(&installation.client, "stranded-worker-0").await;
        stop_answering(&installation.client).await;
        let (pods, params) = (installation.pods(), DeleteParams::default());
        pods.delete("stranded-worker-0", &params).await.unwrap();
        let mut preserved = Self {
            worker: pods.get("runs-worker-0").await.unwrap(),
            stranded: pods.get("stranded-worker-0").await.unwrap(),
            partitions: installation.partitions().await,
        };
        preserved
            .partitions
            .retain(|(job, _)| ["runs", "stranded"].contains(&job.as_str()));
        assert_eq!(preserved.partitions.len(), 2);
        preserved
    }

    /// Deletes the job `probe`, which is gone only if the leader reconciles. These objects are
    /// unchanged then.
    async fn check_after_reconcile(&self, installation: &Installation, probe: &str) {
        let deleted = installation
            .jobs()
            .delete(probe, &DeleteParams::default())
            .await;
        deleted.unwrap();
        eventually(&format!("{probe} is gone"), async || {
            Seen::when(
                installation.jobs().get_opt(probe).await.unwrap(),
                Option::is_none,
            )
        })
        .await;
        installation.once("runs", JobState::Running).await;
        installation.once("done", JobState::Completed).await;
        for pod in [&self.worker, &self.stranded] {
            let found = installation.pods().get(&pod.name_any()).await.unwrap();
            assert_eq!(found.uid(), pod.uid(), "{}", pod.name_any());
        }
        let now = installation.partitions().await;
        for partition in &self.partitions {
            assert!(now.contains(partition), "{partition:?}: {now:?}");
        }
    }
}

/// Acts as the scheduler: assigns a node to a Pod.
async fn bind(client: &Client, pod: &str) {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
        "target": {"kind": "Node", "name": "node1"},
    });
    let path = format!("/api/v1/namespaces/default/pods/{pod}/binding");
    let request = http::Request::post(path).body(binding.to_string().into_bytes());
    client.request_text(request.unwrap()).await.unwrap();
}

/// Acts as the node controller: reports that the node was unreachable for too long.
async fn stop_answering(client: &Client) {
    let now = Timestamp::now();
    let conditions = json!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": now}]);
    let status = Patch::Merge(json!({"status": {"conditions": conditions}}));
    let nodes: Api<Node> = Api::all(client.clone());
    let params = PatchParams::default();
    nodes.patch_status("node1", &params, &status).await.unwrap();
}
