//! The caches of IPUJobs and of their objects, shared by the watches and by the reconciles that
//! write the objects.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use ipu_api::ipupartition::IPUPartition;
use ipu_api::uid::Uid;
use ipu_runtime::watch_store;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;

use super::cache::Cache;
use super::facts::pod::has_not_run;
use super::job_object::{JobObject, JobRef, JobRefs};
use super::raw::RawJob;

/// The cache of one kind, shared by its watch and by the reconciles that write the objects.
pub struct View<K: JobObject>(Mutex<Cache<K>>);

/// The caches of jobs and of their objects.
pub struct Views {
    /// The jobs themselves.
    pub jobs: View<RawJob>,
    /// Their Pods.
    pub pods: View<Pod>,
    /// Their partitions.
    pub partitions: View<IPUPartition>,
    /// Their Pods that certainly have not run.
    pub uncreated: UncreatedPods,
    /// The references to jobs in all caches.
    pub references: Arc<JobRefs>,
}

impl Default for Views {
    fn default() -> Self {
        let references = Arc::default();
        Self {
            jobs: View::new(&references),
            pods: View::new(&references),
            partitions: View::new(&references),
            uncreated: UncreatedPods::default(),
            references,
        }
    }
}

/// By job: names of Pods that the operator tried to create and that were not created, or were
/// deleted before they had a node, according to replies and the watch. Any other Pod that does not
/// exist may have run, and may have used its partition.
#[derive(Debug, Default)]
pub struct UncreatedPods(Mutex<HashMap<Uid, BTreeSet<String>>>);

impl UncreatedPods {
    /// Records a Pod before its creation. It has not existed since the last reset of its partition.
    pub fn insert(&self, job: Uid, pod: &str) {
        self.0.lock().entry(job).or_default().insert(pod.to_owned());
    }

    /// Records that a Pod exists or existed.
    pub fn remove(&self, job: Uid, pod: &str) {
        let mut all = self.0.lock();
        if let Some(pods) = all.get_mut(&job) {
            pods.remove(pod);
            if pods.is_empty() {
                all.remove(&job);
            }
        }
    }

    /// Applies a watch event: the Pod exists or existed, even if the reply to its creation was
    /// lost. The event of a deletion has the last state of the Pod: without a node, no kubelet has
    /// seen it. `is_known` reports whether a job still exists, so that nothing is kept for those
    /// that are gone.
    pub fn apply_event(&self, event: &Event<Pod>, is_known: impl Fn(Uid) -> bool) {
        let Some(pod) = watch_store::object(event) else {
            return;
        };
        let (Some(job), Some(name)) = (pod.job(), &pod.metadata.name) else {
            return;
        };
        if matches!(event, Event::Delete(_)) && has_not_run(pod) && is_known(job.uid) {
            self.insert(job.uid, name);
        } else {
            self.remove(job.uid, name);
        }
    }

    /// Returns the names of one job's Pods.
    pub fn of(&self, job: Uid) -> BTreeSet<String> {
        self.0.lock().get(&job).cloned().unwrap_or_default()
    }

    /// Forgets a deleted job.
    pub fn forget(&self, job: Uid) {
        self.0.lock().remove(&job);
    }
}

impl<K: JobObject> View<K> {
    fn new(references: &Arc<JobRefs>) -> Self {
        Self(Mutex::new(Cache::new(Arc::clone(references))))
    }

    /// Returns the objects of a job, by its UID. `None` if the cache is stale.
    pub fn of(&self, job: Uid) -> Option<Vec<K::Stored>> {
        self.0.lock().of(job, Instant::now())
    }

    /// Records a write: the job's objects are stale until the watch reports it.
    pub fn expect_update(&self, object: &K) {
        self.0.lock().expect_update(object, Instant::now());
    }

    /// Records that an object of a job was deleted without a grace period.
    pub fn expect_delete(&self, job: Uid, uid: &str) {
        self.0.lock().expect_delete(job, uid, Instant::now());
    }

    /// Applies a watch event. Returns the jobs to reconcile.
    pub fn apply_event(&self, event: Event<K>) -> Vec<Arc<JobRef>> {
        self.0.lock().apply_event(event)
    }

    /// Whether the cache has an object of the job, or expects one.
    pub fn contains(&self, job: Uid) -> bool {
        self.0.lock().contains(job)
    }
}

impl View<RawJob> {
    /// Returns a job, by its UID, or the error of decoding it. `None` if the cache is stale.
    pub fn job(&self, job: Uid) -> Option<serde_json::Result<Option<RawJob>>> {
        self.0.lock().job(job, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use ipu_api::labels;
    use serde_json::json;

    use super::*;
    use crate::job_object::job_uid;

    fn pod(node: Option<&str>) -> Pod {
        let pod = json!({
            "metadata": {
                "namespace": "default", "name": "worker", "uid": "w",
                "labels": {labels::JOB_UID_LABEL: "j"},
                "ownerReferences": [{
                    "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "name": "job", "uid": "j",
                    "controller": true,
                }],
            },
            "spec": {"nodeName": node, "containers": []},
        });
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_pod_that_was_deleted_without_a_node_has_not_run() {
        let job = job_uid("default", "j");
        for (event, is_known, expected) in [
            (Event::Delete(pod(None)), true, 1),
            (Event::Delete(pod(Some("node-1"))), true, 0),
            (Event::Delete(pod(None)), false, 0),
            (Event::Apply(pod(None)), true, 0),
        ] {
            let pods = UncreatedPods::default();
            pods.apply_event(&event, |other| is_known && other == job);
            assert_eq!(pods.of(job).len(), expected, "{event:?}");
        }
    }

    #[test]
    fn a_pod_that_got_a_node_may_have_run_even_if_one_before_it_had_not() {
        let job = job_uid("default", "j");
        let pods = UncreatedPods::default();
        for event in [
            Event::Delete(pod(None)),
            Event::Apply(pod(Some("node-1"))),
            Event::Delete(pod(Some("node-1"))),
        ] {
            pods.apply_event(&event, |_| true);
        }
        assert!(pods.of(job).is_empty());
    }
}
