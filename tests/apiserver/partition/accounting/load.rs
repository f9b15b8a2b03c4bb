//! Users of many short-lived IPUPartitions: they run Pods on some of them, and release them
//! depending on when the accounts are written. Other partitions fail or are reset.

use std::collections::BTreeSet;

use cluster::wait::{Seen, eventually};
use ipu_api::ipupartition::{IPUPartition, PartitionPhase};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use vipu_simulator::Simulator;

use super::super::fixture::{Fixture, controller, id};
use super::{CONTROLLERS, accounts, partition_count};

/// Partitions that each round serves on average, at least.
const PER_ROUND: usize = 4;

/// The state of all users.
#[derive(Default)]
pub(super) struct Load {
    /// Partitions that were ready, and are no longer needed.
    served: BTreeSet<String>,
    /// Partitions that were used, reset or broken.
    touched: BTreeSet<String>,
    /// Pods, which have the names of their partitions.
    pods: BTreeSet<String>,
    rounds: usize,
}

impl Load {
    /// Uses partitions and releases them, until this number was served. In each round, half of the
    /// ready ones are released.
    pub(super) async fn serve(&mut self, fixture: &Fixture, goal: usize) {
        while self.served.len() < goal {
            self.rounds += 1;
            let served = self.served.len();
            let most = partition_count() / PER_ROUND;
            assert!(self.rounds <= most, "only {served} were served");
            let is_forced = self.rounds > 1;
            once_written(fixture, is_forced).await;
            let mut released = formed(fixture).await;
            if served + released.len() < partition_count() {
                let kept = released.split_off(released.len().div_ceil(2));
                for partition in &kept {
                    self.touch(fixture, partition).await;
                }
            }
            for partition in &released {
                self.release(fixture, partition).await;
            }
        }
    }

    async fn release(&mut self, fixture: &Fixture, partition: &IPUPartition) {
        let name = partition.name_any();
        if self.pods.remove(&name) {
            let pods = Api::<Pod>::namespaced(fixture.client.clone(), "default");
            pods.delete(&name, &DeleteParams::default()).await.unwrap();
        }
        fixture.delete(partition).await;
        self.served.insert(name);
    }

    /// Runs a Pod on a ready partition, resets it, or breaks it, or none of these.
    async fn touch(&mut self, fixture: &Fixture, partition: &IPUPartition) {
        let name = partition.name_any();
        if phase(partition) != PartitionPhase::Ready || !self.touched.insert(name.clone()) {
            return;
        }
        let (id, address) = (id(partition), controller(partition));
        let mut pods = fixture.pods.iter();
        let simulator = pods.find(|pod| pod.address.to_string() == address);
        let server = &simulator.unwrap().server;
        match self.touched.len() % 8 {
            0..=2 => self.run(fixture, &name, &id).await,
            3 => {
                let error = "link 3 is down";
                server
                    .with(|world, now| world.pod.break_down(&id, error, false, now))
                    .unwrap();
            }
            4 => {
                let change = json!({"spec": {"resetGeneration": 1}});
                fixture.patch(partition, change).await.unwrap();
            }
            5 => {
                server
                    .with(|world, now| world.pod.auto_reset(&id, now))
                    .unwrap();
            }
            _ => {}
        }
    }

    /// Runs a Pod on a partition.
    async fn run(&mut self, fixture: &Fixture, name: &str, id: &str) {
        let pods = fixture.start_pod(name, id).await;
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        let ready = json!({"status": {"phase": "Running", "conditions": conditions}});
        let params = PatchParams::default();
        pods.patch_status(name, &params, &Patch::Merge(&ready))
            .await
            .unwrap();
        self.pods.insert(name.to_owned());
    }
}

/// Waits until half of the accounts are written again, which takes up to a minute. `is_forced`: a
/// cordon has them written at once.
async fn once_written(fixture: &Fixture, is_forced: bool) {
    let before = accounts(fixture).await.unwrap();
    let count = if is_forced { CONTROLLERS / 2 } else { 0 };
    let cordoned: Vec<&Simulator> = fixture.pods.iter().take(count).collect();
    fixture.cordon(&cordoned).await;
    eventually("half of the accounts are written again", async || {
        let accounts = accounts(fixture).await.unwrap_or_default();
        let pairs = accounts.iter().zip(&before);
        let written = pairs.filter(|(now, before)| now.until.0 > before.until.0);
        Seen::when(written.count(), |written| *written >= CONTROLLERS / 2)
    })
    .await;
    fixture.uncordon(&cordoned).await;
}

/// The partitions that are ready or in error and are not being deleted, the oldest first.
async fn formed(fixture: &Fixture) -> Vec<IPUPartition> {
    let partitions = fixture.partitions().list(&ListParams::default()).await;
    let mut formed = partitions.unwrap().items;
    formed.retain(|one| {
        let is_formed = matches!(phase(one), PartitionPhase::Ready | PartitionPhase::Error);
        is_formed && one.metadata.deletion_timestamp.is_none()
    });
    formed.sort_by_key(|one| one.creation_timestamp().map(|time| time.0));
    formed
}

fn phase(partition: &IPUPartition) -> PartitionPhase {
    let status = partition.status.as_ref();
    status.map(|status| status.phase).unwrap_or_default()
}
