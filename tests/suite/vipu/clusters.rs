//! Partitions are created in the cluster and allocation that the entry of their V-IPU controller
//! names.

use std::collections::BTreeMap;

use futures::stream;
use k8s_openapi::api::core::v1::ConfigMap;
use vipu_client::controllers::KEY;
use vipu_client::{Deadlines, Registry};
use vipu_simulator::{Options, Simulator};

use super::partition;

/// A pod of 16 IPUs in two clusters.
async fn divided() -> Simulator {
    let options = Options {
        clusters: ["c1", "c2"].map(str::to_owned).to_vec(),
        ..Options::quick("pod1", 16)
    };
    Simulator::start(options).await.unwrap()
}

/// Lists a controller with these options after its node label.
async fn list(registry: &Registry, simulator: &Simulator, options: &str) {
    let text = format!("{}:ipunode=pod1{options}", simulator.address);
    let list = ConfigMap {
        data: Some(BTreeMap::from([(KEY.to_owned(), text)])),
        ..ConfigMap::default()
    };
    let objects = stream::iter([Ok::<_, std::io::Error>(Some(list))]);
    registry.follow(objects).await;
}

/// Creates a partition through the registry's client. Returns its cluster, or the answer of the
/// controller.
async fn create(registry: &Registry, simulator: &Simulator, id: &str) -> Result<String, String> {
    let client = registry.client(&simulator.controller("pod1")).unwrap();
    let created = client.create(&partition(id, 2)).await;
    created.map_err(|error| error.reason())?;
    let made = simulator
        .server
        .with(|world, now| world.pod.partition(id, now).cloned());
    Ok(made.unwrap().cluster)
}

#[tokio::test]
async fn the_entry_of_a_controller_names_the_cluster_of_its_partitions() {
    let simulator = divided().await;
    let registry = Registry::new(Deadlines::default());
    list(&registry, &simulator, ":cluster=c2").await;
    assert_eq!(
        create(&registry, &simulator, "p-1").await.as_deref(),
        Ok("c2")
    );
    // The client stays, and takes the change.
    list(&registry, &simulator, ":cluster=c1:allocation=pod1").await;
    assert_eq!(
        create(&registry, &simulator, "p-2").await.as_deref(),
        Ok("c1")
    );
}

#[tokio::test]
async fn a_wrong_name_is_refused_by_the_controller() {
    let simulator = divided().await;
    let registry = Registry::new(Deadlines::default());
    for (options, reason) in [
        (":cluster=c3", "there is no cluster \"c3\""),
        (":cluster=c1:allocation=a9", "there is no allocation \"a9\""),
        ("", "the request names none"),
    ] {
        list(&registry, &simulator, options).await;
        let refused = create(&registry, &simulator, "p-1").await.unwrap_err();
        assert!(refused.contains(reason), "{options}: {refused}");
    }
}
