//! Three API servers behind one address, which are restarted one after the other, as an upgrade of
//! a control plane does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use cluster::control_plane::member::Member;
use cluster::relay::Relay;
use futures::TryStreamExt;
use futures::future::join_all;
use ipu_api::ipujob_status::JobState;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::task::JoinHandle;
use vipu_simulator::faults::Method;

use crate::processes::Installation;

/// Number of API servers. The test itself uses another one, so that it sees everything.
const MEMBERS: usize = 3;

/// The UIDs of Pods by their names.
type Uids = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

/// Collects all Pods that are ever made.
fn collect(pods: Api<Pod>) -> (Uids, JoinHandle<()>) {
    let uids = Uids::default();
    let seen = uids.clone();
    let changes = watcher(pods, watcher::Config::default()).applied_objects();
    let changes = changes.try_for_each(move |pod| {
        let mut seen = seen.lock().unwrap();
        let of_name = seen.entry(pod.name_any()).or_default();
        of_name.insert(pod.uid().unwrap());
        std::future::ready(Ok(()))
    });
    (uids, tokio::spawn(async move { changes.await.unwrap() }))
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_live_through_the_restart_of_each_api_server() {
    let mut installation = Installation::new().await;
    let members = (0..MEMBERS).map(|number| installation.plane.member(number));
    let members = join_all(members).await.into_iter();
    let mut members: Vec<_> = members.map(Result::unwrap).collect();
    let servers = members.iter().map(Member::address).collect();
    let relay = Relay::start(servers).await.unwrap();
    installation.reach_at(format!("https://{}", relay.address()));
    let proxy = installation.proxy("proxy", Vec::new()).await;
    let controller = installation.controller("controller", Vec::new()).await;
    let (uids, collects) = collect(installation.pods());

    let mut partitions = vec![installation.run_job("before").await];
    for (number, member) in members.iter_mut().enumerate() {
        relay.leave_out(Some(number));
        let connections = relay.connections();
        let job = format!("during-{number}");
        let (restarted, id) = tokio::join!(member.restart(), installation.run_job(&job));
        restarted.unwrap();
        partitions.push(id);
        relay.leave_out(None);
        println!(
            "{} new connections while API server {number} restarted",
            relay.connections() - connections
        );
        installation.ends(&format!("{job}-worker-0")).await;
        installation.once(&job, JobState::Completed).await;
    }
    partitions.push(installation.run_job("after").await);
    installation.once("before", JobState::Running).await;
    for process in [&proxy, &controller] {
        process.must_run();
    }

    collects.abort();
    let uids = uids.lock().unwrap().clone();
    assert_eq!(uids.len(), MEMBERS + 2, "{uids:?}");
    for (pod, uids) in uids {
        assert_eq!(uids.len(), 1, "{pod}: {uids:?}");
    }
    let calls = installation.simulator.server.calls(0).into_iter();
    let made = calls.filter(|call| call.method == Method::CreatePartition);
    let mut made: Vec<String> = made.map(|call| call.partition).collect();
    made.sort();
    partitions.sort();
    assert_eq!(made, partitions, "each partition that was made was used");
}
