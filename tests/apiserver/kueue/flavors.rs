//! A flavor for the nodes of one V-IPU controller: its jobs run there, and leave no trace of it
//! after their eviction.

use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobState;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tests::kueue::objects::{cluster_queue, resource_flavor};
use vipu_simulator::Simulator;

use super::fixture::{Fixture, QUEUE};

/// Returns the number of partitions of a V-IPU controller.
fn partitions(simulator: &Simulator) -> usize {
    let server = &simulator.server;
    server.with(|world, now| world.pod.partitions(now).count())
}

/// The value of the node label of a V-IPU controller.
fn ipunode(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    spec.node_selector.as_ref()?.get("ipunode").cloned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flavor_leads_to_one_controller_and_ends_with_the_admission() {
    let queue = cluster_queue(QUEUE, &[("second", 4), ("first", 4)]);
    let mut fixture = Fixture::with_queue(queue).await;
    fixture.run_pods(false);
    let mut second = resource_flavor("second", &[("ipunode", "pod2")]);
    second["spec"]["tolerations"] = json!([{"key": "ipu", "operator": "Exists"}]);
    fixture.apply(&second).await;
    let first = resource_flavor("first", &[("ipunode", "pod1")]);
    fixture.apply(&first).await;

    let template = |job: &IPUJob| job.spec.workers.template.0.clone();
    fixture.submit("one", 4).await;
    fixture.once_running("one").await;
    let found = fixture.once("one", "is admitted", |one| one.is("Admitted"));
    assert_eq!(found.await.flavor("worker"), Some("second"));
    let counts = [&fixture.installation.simulator, &fixture.other].map(partitions);
    assert_eq!(counts, [0, 1]);
    let pod = fixture.pod("one-worker-0").await;
    assert_eq!(ipunode(&pod).as_deref(), Some("pod2"));
    let tolerations = pod.spec.unwrap().tolerations.unwrap_or_default();
    assert!(
        tolerations
            .iter()
            .any(|one| one.key.as_deref() == Some("ipu")),
        "{tolerations:?}"
    );

    // The first flavor is used up: the next job gets the other one.
    fixture.submit("two", 4).await;
    fixture.once_running("two").await;
    let found = fixture.once("two", "is admitted", |one| one.is("Admitted"));
    assert_eq!(found.await.flavor("worker"), Some("first"));
    let counts = [&fixture.installation.simulator, &fixture.other].map(partitions);
    assert_eq!(counts, [1, 1]);

    fixture.set_active("one", false).await;
    fixture.once_released("one").await;
    let evicted = fixture.installation.jobs().get("one").await.unwrap();
    assert!(!template(&evicted).to_string().contains("ipunode"));
    assert_eq!(evicted.status.and_then(|status| status.admission), None);
    fixture.installation.once("one", JobState::Suspended).await;

    // Evicted from one flavor, it may get another one.
    fixture.submit("three", 4).await;
    fixture.once_running("three").await;
    fixture.end("two").await;
    fixture.set_active("one", true).await;
    fixture.once_running("one").await;
    let pod = fixture.pod("one-worker-0").await;
    assert_eq!(ipunode(&pod).as_deref(), Some("pod1"));
}
