//! Watches that are late: a decision on an old view must make nothing twice, and take nothing away that
//! is in use.

use std::sync::{Arc, Mutex};

use http::{Method, Request};
use kube::client::Body;
use kube::{Client, ResourceExt};
use tests::wait::{Seen, eventually};
use tokio_util::sync::CancellationToken;
use tower::service_fn;

use crate::job::{parallel, single};
use crate::stage::Stage;

/// What was asked of the API server, in order.
type Requests = Arc<Mutex<Vec<(Method, String)>>>;

/// A client whose watches of Pods hear nothing until `told`, and the requests that it makes.
fn late(client: &Client, told: &CancellationToken) -> (Client, Requests) {
    let requests = Requests::default();
    let (inner, told, seen) = (client.clone(), told.clone(), Arc::clone(&requests));
    let service = service_fn(move |request: Request<Body>| {
        let (inner, told) = (inner.clone(), told.clone());
        let uri = request.uri();
        let is_watch = uri
            .query()
            .is_some_and(|query| query.contains("watch=true"));
        let held_back = is_watch && uri.path() == "/api/v1/pods";
        let what = (request.method().clone(), uri.path().to_owned());
        seen.lock().unwrap().push(what);
        async move {
            if held_back {
                told.cancelled().await;
            }
            inner.send(request).await
        }
    });
    (Client::new(service, "default"), requests)
}

/// The places among all requests of those that did this to that kind.
fn places(requests: &Requests, method: &Method, kind: &str) -> Vec<usize> {
    let requests = requests.lock().unwrap();
    let all = requests.iter().enumerate();
    all.filter(|(_, (found, path))| found == method && path.split('/').any(|part| part == kind))
        .map(|(place, _)| place)
        .collect()
}

#[tokio::test]
async fn pods_that_the_watch_has_not_told_of_are_made_once_and_keep_their_partition() {
    let mut stage = Stage::new("late").await;
    let told = CancellationToken::new();
    let (client, requests) = late(&stage.client, &told);
    stage.start_with(client);
    stage.submit(&parallel("mpi")).await;
    stage.partition_ready(0).await;
    stage.pod_runs("mpi-worker-0").await;
    stage.pod_runs("mpi-worker-1").await;
    let first = stage.pod_exists("mpi-worker-0").await;

    // Each of these makes the controller look at the job again, with a view that lacks its Pods.
    stage.partition_ready(0).await;
    stage.delete("mpi").await;
    // What comes later has been looked at: so has this.
    stage.submit(&single("later")).await;
    eventually("a partition for the later job", async || {
        let all = stage.partitions().await;
        let mut owners = all.iter().map(|found| found.spec.owner.name.as_str());
        Seen::when(owners.any(|owner| owner == "later"), |asked| *asked)
    })
    .await;
    assert_eq!(places(&requests, &Method::POST, "pods").len(), 2);
    assert_eq!(places(&requests, &Method::DELETE, "ipupartitions"), [0; 0]);
    let still = stage.pod_exists("mpi-worker-0").await;
    assert_eq!(first.uid(), still.uid());

    told.cancel();
    stage.gone("mpi").await;
    let pods = places(&requests, &Method::DELETE, "pods");
    let partitions = places(&requests, &Method::DELETE, "ipupartitions");
    assert_eq!(places(&requests, &Method::POST, "pods").len(), 2);
    assert!(pods.last() < partitions.first(), "{pods:?} {partitions:?}");
    stage.kill().await;
}
