//! Many partitions at once on V-IPU controllers with capacity for a third of them.

use std::collections::BTreeSet;

use cluster::wait::{Seen, until};
use futures::StreamExt;
use ipu_api::ipupartition::PartitionPhase;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use vipu_simulator::faults::Method;

use super::fixture::{Fixture, id};
use crate::extent::full_or;

/// V-IPU controllers, in full and otherwise.
const CONTROLLERS: [usize; 2] = [16, 4];

/// Partitions for each V-IPU controller.
const PARTITIONS: usize = 62;

/// Time limit for all of them on a busy machine.
const PATIENCE: std::time::Duration = std::time::Duration::from_mins(15);

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_are_each_served_once_though_the_proxy_is_killed() {
    let [full, otherwise] = CONTROLLERS;
    let controllers = full_or(full, otherwise);
    let partitions = PARTITIONS * controllers;
    let mut fixture = Fixture::start(&vec![64; controllers]).await;
    let all = futures::stream::iter(0..partitions);
    all.for_each_concurrent(16, async |number| {
        let ipus = 1 << (number % 4);
        fixture.request(&format!("job-{number}"), ipus).await;
    })
    .await;

    // Nothing is removed before: with quick removals, the first controllers would have capacity for
    // all.
    until("every controller to be asked", PATIENCE, async || {
        let asked = (0..controllers).map(|pod| fixture.calls(pod, Method::CreatePartition));
        let asked: Vec<_> = asked.collect();
        Ok::<_, kube::Error>(Seen::when(asked, |asked| {
            asked.iter().all(|made| *made > 0)
        }))
    })
    .await
    .unwrap();
    let mut served = BTreeSet::new();
    for killed_at in [partitions / 4, partitions / 2, partitions] {
        let what = format!("{killed_at} partitions to be served");
        until(what, PATIENCE, async || {
            let api = fixture.partitions();
            for partition in api.list(&ListParams::default()).await? {
                let status = partition.status.clone().unwrap_or_default();
                let is_new = partition.metadata.deletion_timestamp.is_none();
                if is_new && status.phase == PartitionPhase::Ready {
                    assert!(served.insert(id(&partition)), "each id is used once");
                    let name = partition.name_any();
                    api.delete(&name, &DeleteParams::default()).await?;
                }
            }
            Ok::<_, kube::Error>(Seen::when(served.len(), |served| *served >= killed_at))
        })
        .await
        .unwrap();
        fixture.kill_proxy().await;
        fixture.start_proxy().await;
    }

    until("every IPUPartition to go", PATIENCE, async || {
        let left = fixture.partitions().list(&ListParams::default()).await?;
        Ok::<_, kube::Error>(Seen::when(left.items.len(), |left| *left == 0))
    })
    .await
    .unwrap();
    assert_eq!(served.len(), partitions);
    fixture
        .once_ids("nothing is left on any controller", |ids| {
            ids.iter().all(Vec::is_empty)
        })
        .await;
}
