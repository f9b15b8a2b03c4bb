//! Two proxies: one creates partitions, both respond to users, and either can die at any time.

use std::collections::BTreeSet;
use std::time::Duration;

use cluster::wait::{Seen, eventually, within};
use ipu_api::ipupartition::{IPUPartition, PartitionPhase};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::Api;
use vipu_simulator::faults::Method;

use super::fixture::{Fixture, NAMESPACE, Replica, free_port, id};

/// Rounds in which the leader is killed.
const ROUNDS: usize = 4;

/// Requested partitions per round.
const EACH: usize = 4;

/// Median of the time until the other replica leads.
const LEADS: Duration = Duration::from_secs(3);

/// Returns the holder of the Lease.
async fn leader(fixture: &Fixture) -> Option<String> {
    let leases = Api::<Lease>::namespaced(fixture.client.clone(), NAMESPACE);
    let lease = leases.get_opt("ipu-operator-vipu-proxy").await.unwrap();
    let holder = lease.and_then(|lease| lease.spec?.holder_identity);
    holder.filter(|holder| !holder.is_empty())
}

/// Waits until one of these two leads, and returns it.
async fn once_one_leads(fixture: &Fixture, names: &[String; 2]) -> usize {
    eventually("one of the two leads", async || {
        let holder = leader(fixture).await;
        let which = names.iter().position(|name| Some(name) == holder.as_ref());
        which.ok_or(format!("{holder:?} leads"))
    })
    .await
}

async fn answers(port: u16) {
    eventually("it answers over REST", async || {
        let url = format!("http://127.0.0.1:{port}/stats");
        Seen::when(cluster::http::request("GET", &url, "").await, Result::is_ok)
    })
    .await
    .unwrap();
}

/// Waits until all are ready, and checks that no two have the same id. Returns the ids.
async fn distinct_ids(fixture: &Fixture, wanted: &[IPUPartition]) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for partition in wanted {
        let ready = fixture.once_in(partition, PartitionPhase::Ready).await;
        assert!(ids.insert(id(&ready)), "{} has it too", ready.name_any());
    }
    ids
}

/// Checks that no controller was requested twice to create a partition with the same id.
fn check_requests(fixture: &Fixture) {
    for (pod, simulator) in fixture.pods.iter().enumerate() {
        let calls = simulator.server.calls(0).into_iter();
        let made: Vec<String> = calls
            .filter(|call| call.method == Method::CreatePartition)
            .map(|call| call.partition)
            .collect();
        let once: BTreeSet<&String> = made.iter().collect();
        assert_eq!(
            once.len(),
            made.len(),
            "an id was requested twice on controller {pod}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_made_once_while_the_leader_is_killed_again_and_again() {
    let fixture = Fixture::without_proxy(&[16, 16, 16]).await;
    let ports = [free_port(), free_port()];
    let mut names = ["vipu-proxy-a".to_owned(), "vipu-proxy-b".to_owned()];
    let mut replicas: [Option<Replica>; 2] = [None, None];
    for (index, replica) in replicas.iter_mut().enumerate() {
        *replica = Some(
            fixture
                .replica(&names[index], [ports[index], free_port()])
                .await,
        );
    }
    let mut wanted = Vec::new();
    for round in 0..ROUNDS {
        let leads = once_one_leads(&fixture, &names);
        let leads = within("a replica leads", LEADS, leads).await;
        for number in 0..EACH {
            wanted.push(fixture.request(&format!("p-{round}-{number}"), 2).await);
        }
        replicas[leads].take().unwrap().kill().await;
        answers(ports[1 - leads]).await;
        // A new Pod has another name, so the Lease of the killed one must expire first.
        names[leads] = format!("vipu-proxy-{round}");
        replicas[leads] = Some(
            fixture
                .replica(&names[leads], [ports[leads], free_port()])
                .await,
        );
        answers(ports[leads]).await;
        if round % 2 == 1 {
            let gone = wanted.remove(0);
            fixture.delete(&gone).await;
        }
    }
    let ids = distinct_ids(&fixture, &wanted).await;
    fixture
        .once_ids("every partition has an IPUPartition", |found| {
            found.iter().flatten().cloned().collect::<BTreeSet<_>>() == ids
        })
        .await;
    check_requests(&fixture);
    for partition in &wanted {
        fixture.delete(partition).await;
    }
    fixture
        .once_ids("nothing is left", |ids| ids.iter().all(Vec::is_empty))
        .await;
}
