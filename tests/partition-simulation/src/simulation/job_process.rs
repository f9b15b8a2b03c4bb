//! The process that reconciles jobs: what its watches have shown of the use of partitions, by the rules of `ipu_jobs`.

use ipu_api::ipupartition::IPUPartition;
use ipu_api::labels;
use ipu_api::uid::Uid;
use ipu_jobs::facts::partition::PlacedPartition;
use ipu_jobs::job_object::job_uid;
use ipu_jobs::unused_partitions::UnusedPartitions;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::api::ObjectMeta;
use kube::runtime::watcher::Event;

use super::api_server::{self, ApiServer, Change, Key, SLOTS};
use super::coverage::CoveragePoint;
use super::invariants::{USED_ONCE, demand};
use super::world::World;

/// Number of reconciles of jobs after which another process takes over.
const LIFE: u32 = 100;

/// One process after another.
#[derive(Debug, Default)]
pub(super) struct JobProcess {
    unused: UnusedPartitions,
    /// Changes that its watch has shown.
    seen: usize,
    reconciles: u32,
    lists_again: bool,
}

impl JobProcess {
    /// Another process takes over from now on, which knows only the present objects.
    pub(super) fn restart(&mut self) {
        self.lists_again = true;
    }

    /// Delivers all changes. At times, another process takes over first.
    pub(super) fn observe(&mut self, api: &ApiServer) {
        self.reconciles += 1;
        if self.reconciles.is_multiple_of(LIFE) || self.lists_again {
            self.lists_again = false;
            self.unused.apply_partition_event(&Event::Init);
            self.seen = api.log().len();
            for (_, stored) in api.list() {
                let listed = Event::InitApply(IPUPartition::clone(&stored.object));
                self.unused.apply_partition_event(&listed);
            }
        }
        for Change { now, .. } in &api.log()[self.seen..] {
            if let Some(stored) = now {
                let changed = Event::Apply(IPUPartition::clone(&stored.object));
                self.unused.apply_partition_event(&changed);
            }
        }
        self.seen = api.log().len();
    }

    /// Whether no Pod has used the partition of a slot, as far as the process has seen.
    pub(super) fn is_unused(&self, job: &str, slot: usize, use_key: &str) -> bool {
        let unused = self.unused.of(uid(job));
        let mut keys = unused.iter();
        keys.any(|(found, key)| usize::try_from(*found) == Ok(slot) && **key == *use_key)
    }

    /// The process creates a Pod.
    pub(super) fn creates(&self, job: &str, slot: usize, id: &str) {
        self.unused.use_by(uid(job), &[pod(job, slot, id)]);
    }

    /// The watch shows the end of a Pod.
    pub(super) fn ends(&mut self, api: &ApiServer, (job, slot): (&str, usize), id: &str) {
        self.observe(api);
        let deleted = Event::Delete(pod(job, slot, id));
        self.unused.apply_pod_event(&deleted);
    }
}

impl World {
    /// Starts a Pod on a ready partition without Pods, or requests a reset unless no Pod has used it.
    pub(super) fn use_or_reset(&mut self, key: Key, held: &PlacedPartition) {
        let (job, slot) = (api_server::job_of(key), key % SLOTS);
        let use_key = held.use_key();
        let is_used = self.jobs[job].used.get(&slot) == Some(&use_key);
        let uid = &self.jobs[job].uid;
        if !self.job_process.is_unused(uid, slot, &use_key) {
            if !is_used {
                self.cover(CoveragePoint::ResetUnused);
            }
            return self.ask_reset(key);
        }
        demand(!is_used, USED_ONCE, || {
            format!("{}: {use_key}", self.name(key))
        });
        self.job_process.creates(uid, slot, &held.id);
        self.jobs[job].used.insert(slot, use_key);
        self.start_pod(key, held.id.clone());
    }
}

fn uid(job: &str) -> Uid {
    job_uid("default", job)
}

/// A Pod that has run.
fn pod(job: &str, slot: usize, id: &str) -> Pod {
    let owner = serde_json::json!([{
        "apiVersion": ipu_api::API_VERSION, "kind": "IPUJob", "name": "job", "uid": job, "controller": true,
    }]);
    let labels = [
        (labels::INSTANCE_LABEL.to_owned(), slot.to_string()),
        (labels::PARTITION_ID_LABEL.to_owned(), id.to_owned()),
    ];
    Pod {
        metadata: ObjectMeta {
            namespace: Some("default".to_owned()),
            labels: Some(labels.into()),
            owner_references: serde_json::from_value(owner).ok(),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            node_name: Some("node".to_owned()),
            ..PodSpec::default()
        }),
        status: None,
    }
}
