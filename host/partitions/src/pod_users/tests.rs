//! Lists of Pods of a fake API server: which Pods they select, and how much they read.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use ipu_ledger::observations::live_pods;
use kube::client::Body;
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

use super::*;

const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const LABELLED: &str = "labelSelector=graphcore.ai%2Fpartition-id%3Dp-";
const UNLABELLED: &str = "labelSelector=%21graphcore.ai%2Fpartition-id&";

/// A Pod with fields that cannot be read, of the owner with this UID.
fn pod(number: usize, owner: &str) -> Value {
    let late = json!({"manager": "somebody", "time": "9999-12-31T23:59:59Z"});
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": {
            "name": format!("pod-{number}"), "namespace": "n", "managedFields": [late],
            "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": owner}],
        },
    })
}

fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let mut parameters = query.split('&').filter_map(|one| one.split_once('='));
    parameters.find_map(|(key, value)| (key == name).then_some(value))
}

/// A page of the Pods that a query selects.
fn page(pods: &[Value], query: &str) -> Value {
    let number = |name: &str| parameter(query, name).map(|value| value.parse::<usize>().unwrap());
    let from = number("continue").unwrap_or(0);
    let until = pods.len().min(from + number("limit").unwrap_or(pods.len()));
    let token = (until < pods.len()).then(|| until.to_string());
    json!({
        "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"continue": token.unwrap_or_default()}, "items": pods[from..until],
    })
}

/// A cluster with these Pods with an id, and these without one. Its API server notes the queries.
fn cluster(labelled: Vec<Value>, unlabelled: Vec<Value>) -> (PodUsers, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let queries = Arc::clone(&asked);
    let service = service_fn(move |request: Request<Body>| {
        assert_eq!(request.headers()["accept"], METADATA);
        let uri = request.uri();
        let query = uri.query().unwrap_or_default();
        let pods = if query.contains(UNLABELLED) {
            &unlabelled
        } else {
            assert!(query.contains(LABELLED), "{query}");
            &labelled
        };
        queries.lock().unwrap().push(uri.to_string());
        let body = Body::from(page(pods, query).to_string().into_bytes());
        std::future::ready(Response::builder().body(body).map_err(BoxError::from))
    });
    (PodUsers::new(Client::new(service, "default")), asked)
}

fn partition() -> IPUPartition {
    serde_json::from_value(json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
        "metadata": {"name": "n.mnist-0", "uid": "u"},
        "spec": {
            "owner": {
                "apiVersion": "v1", "kind": "K", "namespace": "n", "name": "mnist", "uid": "owner",
            },
            "slot": 0, "ipus": 4, "gcds": 1,
        },
    }))
    .unwrap()
}

fn named(numbers: &[usize]) -> Vec<String> {
    let names = numbers.iter().map(|number| format!("n/pod-{number}"));
    names.collect()
}

#[tokio::test]
async fn of_many_pods_with_an_id_a_few_are_read_and_the_message_says_so() {
    let many = (0..300).map(|number| pod(number, "any")).collect();
    let (users, asked) = cluster(many, Vec::new());
    let found = users.of_owner(&partition(), "p-own").await.unwrap();
    assert_eq!(found, named(&[0, 1, 2, 3, 4]));
    assert_eq!(live_pods(&found), "at least 5 live Pods");
    let orphaned = users.of_orphan("p-gone").await.unwrap();
    assert_eq!(orphaned, found);
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 6, "{asked:?}");
    assert!(asked.iter().all(|query| query.contains("&limit=2")));
}

/// A Pod with unreadable fields is a user like others, and a Pod that is being deleted still uses
/// its partition.
#[tokio::test]
async fn the_api_server_leaves_out_pods_that_have_ended_and_orphans_are_used_on_nodes_only() {
    let (users, asked) = cluster(vec![pod(0, "any"), pod(1, "any")], Vec::new());
    let found = users.of_owner(&partition(), "p-own").await.unwrap();
    assert_eq!(found, named(&[0, 1]));
    assert_eq!(live_pods(&found), "2 live Pods");
    assert_eq!(users.of_orphan("p-gone").await.unwrap(), found);
    let live = "status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed&";
    let asked = asked.lock().unwrap();
    let of_owner = format!("/api/v1/namespaces/n/pods?&fieldSelector={live}");
    assert!(asked[0].starts_with(&of_owner), "{}", asked[0]);
    let of_orphan = format!("/api/v1/pods?&fieldSelector=spec.nodeName%21%3D%2C{live}");
    assert!(asked[1].starts_with(&of_orphan), "{}", asked[1]);
}

#[tokio::test]
async fn the_pods_of_the_owner_use_an_adopted_partition_without_an_id() {
    let id = naming::adoptable_partition(&partition().spec.owner, 0);
    let is_of_owner = |number: usize| number == 3 || number >= 12;
    let unlabelled = (0..300).map(|number| {
        let owner = if is_of_owner(number) {
            "owner"
        } else {
            "other"
        };
        pod(number, owner)
    });
    let (users, asked) = cluster(vec![pod(1000, "any")], unlabelled.collect());
    let found = users.of_owner(&partition(), &id).await.unwrap();
    assert_eq!(found, named(&[1000, 3, 12, 13, 14, 15]));
    // One page with the label, and two without it.
    assert_eq!(asked.lock().unwrap().len(), 3);
    // It was created by this operator, whose Pods have the id.
    let own = users.of_owner(&partition(), "p-own").await.unwrap();
    assert_eq!(own, named(&[1000]));
    assert_eq!(asked.lock().unwrap().len(), 4);
}

#[tokio::test]
async fn no_more_lists_are_read_at_the_same_time_than_the_bound_allows() {
    let (users, _) = cluster(vec![pod(0, "any")], Vec::new());
    let taken = users.pods.acquire_many(PODS).await.unwrap();
    let orphaned = users.of_orphan("p-gone");
    let waiting = tokio::time::timeout(Duration::from_millis(50), orphaned);
    assert!(waiting.await.is_err(), "it waits until a list ends");
    drop(taken);
    assert_eq!(users.of_orphan("p-gone").await.unwrap(), named(&[0]));
}
