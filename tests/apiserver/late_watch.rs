//! Late watches, and lists that never end: a decision on a stale cache creates nothing twice, and
//! deletes nothing that is in use.

use std::sync::{Arc, Mutex};

use cluster::wait::{Seen, eventually};
use http::{Method, Request};
use ipu_guest_host::{GuestHost, GuestHostOptions};
use ipu_policies::active_policies::ActivePolicies;
use kube::client::Body;
use kube::{Client, ResourceExt};
use tokio_util::sync::CancellationToken;
use tower::service_fn;

use crate::job::{parallel, single};
use crate::job_fixture::JobFixture;

/// The requests to the API server, in their order.
type Requests = Arc<Mutex<Vec<(Method, String)>>>;

/// Marks the moment in the list of requests at which a delayed one continues.
const LET_THROUGH: &str = "let-through";

/// A client whose watches of Pods, or lists of Pods, get no response until `released` is cancelled,
/// and its requests.
fn late(client: &Client, released: &CancellationToken, of_watches: bool) -> (Client, Requests) {
    let requests = Requests::default();
    let (inner, released, seen) = (client.clone(), released.clone(), Arc::clone(&requests));
    let service = service_fn(move |request: Request<Body>| {
        let (inner, released) = (inner.clone(), released.clone());
        let uri = request.uri();
        let is_watch = uri
            .query()
            .is_some_and(|query| query.contains("watch=true"));
        let is_delayed = is_watch == of_watches && uri.path() == "/api/v1/pods";
        let what = (request.method().clone(), uri.path().to_owned());
        let is_trial = uri.query().is_some_and(|query| query.contains("dryRun="));
        if !is_trial {
            seen.lock().unwrap().push(what);
        }
        let seen = Arc::clone(&seen);
        async move {
            if is_delayed {
                released.cancelled().await;
                let what = (Method::GET, LET_THROUGH.to_owned());
                seen.lock().unwrap().push(what);
            }
            inner.send(request).await
        }
    });
    (Client::new(service, "default"), requests)
}

/// Returns the positions of the requests with this verb for that kind.
fn places(requests: &Requests, method: &Method, kind: &str) -> Vec<usize> {
    let requests = requests.lock().unwrap();
    let all = requests.iter().enumerate();
    all.filter(|(_, (found, path))| found == method && path.split('/').any(|part| part == kind))
        .map(|(place, _)| place)
        .collect()
}

#[tokio::test]
async fn pods_that_the_watch_has_not_reported_are_created_once_and_keep_their_partition() {
    let mut fixture = JobFixture::new("late").await;
    let released = CancellationToken::new();
    let (client, requests) = late(&fixture.client, &released, true);
    fixture.start_with(client);
    fixture.submit(&parallel("mpi")).await;
    fixture.partition_ready(0).await;
    fixture.pod_runs("mpi-worker-0").await;
    fixture.pod_runs("mpi-worker-1").await;
    let first = fixture.pod_exists("mpi-worker-0").await;

    // Each of these triggers a reconcile of the job, with a cache that lacks its Pods.
    fixture.partition_ready(0).await;
    fixture.delete("mpi").await;
    // A later change was reconciled, so this one was, too.
    fixture.submit(&single("later")).await;
    eventually("a partition for the later job", async || {
        let all = fixture.partitions().await;
        let mut owners = all.iter().map(|found| found.spec.owner.name.as_str());
        Seen::when(owners.any(|owner| owner == "later"), |asked| *asked)
    })
    .await;
    // Both workers and the launcher.
    assert_eq!(places(&requests, &Method::POST, "pods").len(), 3);
    assert_eq!(places(&requests, &Method::DELETE, "ipupartitions"), [0; 0]);
    let still = fixture.pod_exists("mpi-worker-0").await;
    assert_eq!(first.uid(), still.uid());

    released.cancel();
    fixture.once_gone("mpi").await;
    let pods = places(&requests, &Method::DELETE, "pods");
    let partitions = places(&requests, &Method::DELETE, "ipupartitions");
    assert_eq!(places(&requests, &Method::POST, "pods").len(), 3);
    assert!(pods.last() < partitions.first(), "{pods:?} {partitions:?}");
    fixture.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_pods_cannot_be_listed_no_job_is_read_and_a_metric_names_the_kind() {
    let mut fixture = JobFixture::new("unlisted").await;
    let released = CancellationToken::new();
    let (client, requests) = late(&fixture.client, &released, false);
    fixture.start_with(client);
    fixture.submit(&single("web")).await;
    let policies = GuestHost::open(GuestHostOptions::default());
    let guests = ActivePolicies::new(policies.await.unwrap());
    let exposed = fixture.metrics.of_controller(guests);
    let once = async |kinds: [(&str, u8); 6], what: &str| {
        eventually(what, async || {
            let text = exposed.text().await.unwrap();
            let is_so = kinds.iter().all(|(kind, complete)| {
                let line = format!("ipu_operator_watch_listed{{kind=\"{kind}\"}} {complete}\n");
                text.contains(&line)
            });
            Seen::when(is_so, |is_so| *is_so)
        })
        .await;
    };
    let listed = |jobs: u8, pods: u8| {
        let others = ["IPUPartition", "ServiceAccount", "Role", "RoleBinding"];
        let [partition, account, role, binding] = others.map(|kind| (kind, 1));
        let (jobs, pods) = (("IPUJob", jobs), ("Pod", pods));
        [partition, account, role, binding, jobs, pods]
    };
    once(listed(0, 0), "all but Pods and IPUJobs are listed").await;
    released.cancel();
    once(listed(1, 1), "everything is listed").await;
    fixture.partition_ready(0).await;
    fixture.pod_runs("web-worker-0").await;
    fixture.row("web", "Running 1 1", "").await;

    // The controller has requested nothing of them before, except whether IPUJobs can be listed.
    let let_through = places(&requests, &Method::GET, LET_THROUGH);
    let jobs = places(&requests, &Method::GET, "ipujobs");
    assert!(jobs[1] > let_through[0], "{jobs:?} {let_through:?}");
    fixture.delete("web").await;
    fixture.once_gone("web").await;
    fixture.kill().await;
}
