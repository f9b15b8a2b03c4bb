//! Both processes' metrics after every counted event has happened once.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ipu_api::ipujob_status::IPUJobStatus;
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::metrics::SkipReason;
use ipu_guest_host::{GuestHost, GuestHostOptions};
use ipu_operator::exposition::Metrics;
use ipu_partitions::Guarded;
use ipu_partitions::accounting::{AccountStore, ControllerUse};
use ipu_partitions::controllers::ControllerPool;
use ipu_partitions::metrics::Sources;
use ipu_partitions::metrics::machines::Machines;
use ipu_partitions::nodes::nodes;
use ipu_partitions::store::watch::watched;
use ipu_policies::active_policies::ActivePolicies;
use ipu_policies::namespace_usage::namespaces;
use ipu_ports::certificates::issue::issue;
use ipu_runtime::scope::Scope;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::{Body, Client};
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use tower::{Layer, service_fn};
use vipu_client::controllers::KEY;
use vipu_client::{Deadlines, Registry};
use vipu_simulator::pod::PartitionSpec;
use vipu_simulator::{Options, Simulator, World};

/// The texts of the controller and of the proxy, in OpenMetrics.
pub(super) async fn served() -> [String; 2] {
    let simulator = Simulator::start(Options::quick("pod1", 16)).await.unwrap();
    let metrics = Metrics::default();
    happen(&metrics).await;
    let guests = guests().await;
    let controller = metrics.of_controller(guests.clone());
    let proxy = metrics.of_proxy(guests, sources(&simulator).await);
    [
        controller.text().await.unwrap(),
        proxy.text().await.unwrap(),
    ]
}

async fn happen(metrics: &Metrics) {
    let second = Duration::from_secs(1);
    metrics
        .admission
        .record("validation", "allowed", Some("uid"), second);
    metrics
        .guests
        .record_call(Hook::Placement, Some("sha256:0"), None, second);
    metrics.guests.record_wait(Hook::Placement, second);
    metrics
        .guests
        .count_skipped(Hook::Placement, SkipReason::Busy);
    metrics.guests.count_swap(Hook::Placement);
    metrics.guests.count_fallback("mine");
    metrics.guests.count_unanswered("mine");
    let certificate = issue(&["a.example.com".to_owned()], Timestamp::UNIX_EPOCH).unwrap();
    metrics.certificates.record("a", &certificate);
    metrics.refused.connection("rest", "address");
    metrics.refused.request("rest", "rate");
    metrics.of_jobs().reconciles.begin().end(Some("Write"));
    let status = |more: Value| {
        let mut status = json!({"desiredReplicas": 1, "lastMessage": ""});
        let fields = more.as_object().unwrap().clone();
        status.as_object_mut().unwrap().extend(fields);
        serde_json::from_value::<IPUJobStatus>(status).unwrap()
    };
    let job = json!({"metadata": {
        "name": "j", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T12:00:00Z",
    }});
    let ended = json!({
        "iPUPartitionCreated": true, "restartCount": 1, "completionTime": "2026-01-01T12:01:00Z",
        "conditions": [{"type": "Running", "status": "True"}],
    });
    let job = serde_json::from_value(job).unwrap();
    let now: Timestamp = "2026-01-01T12:01:00Z".parse().unwrap();
    metrics
        .jobs
        .record_status(&job, &status(json!({})), &status(ended), now);
    metrics.jobs.listed("Pod", true);
    let answers = service_fn(async |_: http::Request<Body>| {
        Ok::<_, tower::BoxError>(http::Response::new(Body::empty()))
    });
    let client = Client::new(metrics.api.layer(answers), "default");
    let request = http::Request::get("/api/v1/pods").body(Body::empty());
    client.send(request.unwrap()).await.unwrap();
}

async fn guests() -> ActivePolicies {
    let policies = GuestHost::open(GuestHostOptions::default());
    ActivePolicies::new(policies.await.unwrap())
}

async fn sources(simulator: &Simulator) -> Sources {
    let registry = Arc::new(Registry::new(Deadlines::default()));
    let list = format!("{}:ipunode=any", simulator.address);
    let object = ConfigMap {
        data: Some([(KEY.to_owned(), list)].into()),
        ..ConfigMap::default()
    };
    let objects = futures::stream::iter([Ok::<_, Infallible>(Some(object))]);
    registry.follow(objects).await;
    let partition: Guarded = serde_json::from_value(json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
        "metadata": {"name": "p", "uid": "u", "creationTimestamp": "2026-01-01T12:00:00Z"},
        "spec": {
            "owner": {"apiVersion": "v1", "kind": "K", "namespace": "n", "name": "o", "uid": "u"},
            "slot": 0, "ipus": 4, "gcds": 1,
        },
        "status": {
            "phase": "Ready", "partitionId": "p-1", "controller": simulator.controller("any"),
        },
    }))
    .unwrap();
    let made = PartitionSpec {
        id: "p-1".to_owned(),
        ipus: 4,
        ..PartitionSpec::default()
    };
    let make = |world: &mut World, now| world.pod.take(&made, now);
    simulator.server.with(make).unwrap();
    let (namespaces, _) = namespaces();
    let (partitions, watch) = watched(namespaces.clone(), Scope::default());
    for event in [Event::Init, Event::InitApply(partition), Event::InitDone] {
        watch.apply_event(event);
    }
    let pool = ControllerPool::new(registry, nodes().0, partitions.clone());
    Sources {
        partitions,
        pool: Arc::new(pool),
        namespaces,
        accounts: accounts(),
        machines: Some(Machines::default()),
    }
}

/// The accounts of a controller that has answered one call.
fn accounts() -> AccountStore {
    let answered = ControllerUse {
        total: Some(16),
        ..ControllerUse::default()
    };
    let observed = BTreeMap::from([("pod1:8090".to_owned(), answered)]);
    let store = AccountStore::default();
    let now = "2026-01-01T12:00:00Z".parse().unwrap();
    store.accounts().observe(&observed, |_| false, now);
    store
}
