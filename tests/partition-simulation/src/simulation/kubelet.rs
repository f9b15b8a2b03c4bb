//! The Pods of jobs: they get a node, start, end by themselves or on request, and are disrupted, as
//! on real nodes.
//!
//! A program attaches to its partition when its Pod starts, and only if the API server offers the
//! partition then. One that cannot attach tries again for half a minute, and then fails.

use std::sync::Arc;

use ipu_api::labels;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::api_server;
use super::coverage::CoveragePoint;
use super::event_queue::Event;
use super::job_server::PodVersion;
use super::pod_status;
use super::world::World;

/// Longest time that a Pod takes to end on request, in milliseconds, unless its node is
/// unreachable.
pub(super) const DELETION: u64 = 20_000;

/// Attempts of a program to attach to its partition, and the time between two of them, in
/// milliseconds.
const ATTEMPTS: u32 = 6;
const ATTACH_INTERVAL: u64 = 5_000;

/// The grace period of Pods, in seconds.
const GRACE: i64 = 30;

/// What happens next to a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodStage {
    /// It gets a node, which may reject it.
    Scheduled,
    /// Its containers start, after this number of attempts of its program.
    Starts(u32),
    /// The kubelet has ended it, and it is gone.
    Gone,
}

/// How Kubernetes disrupts a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disruption {
    /// Its node lacks memory: it ends at once, and its object remains.
    Evicted,
    /// Another Pod takes its place, or its node is drained: it is deleted.
    Preempted,
}

impl World {
    /// The API server has a new Pod. Without its job, the garbage collector deletes it.
    pub(super) fn pod_created(&mut self, number: u64) {
        let delay = self.rng.between(1, 300);
        let scheduled = Event::Kubelet(number, PodStage::Scheduled);
        self.event_queue.add(delay, scheduled);
        let job = self.server.pod(number).map(|pod| pod.job);
        if job.is_some_and(|job| self.server.job(job).is_none()) {
            self.request_pod_deletion(number, DELETION);
        }
    }

    pub(super) fn kubelet(&mut self, number: u64, stage: PodStage) {
        let Some(pod) = self.server.pod(number).cloned() else {
            return;
        };
        match stage {
            PodStage::Gone => self.pod_is_gone(number, &pod),
            _ if pod.is_deleted() || pod.has_ended() => {}
            PodStage::Scheduled => self.pod_gets_node(number),
            PodStage::Starts(attempts) => self.pod_starts(number, &pod, attempts),
        }
    }

    fn pod_gets_node(&mut self, number: u64) {
        let is_rejected = self.rejections > 0 || self.rng.permille(self.fault_rates.failures / 4);
        self.rejections = self.rejections.saturating_sub(1);
        self.server.change_pod(number, |pod| {
            pod.spec.get_or_insert_default().node_name = Some("node-1".to_owned());
            if is_rejected {
                pod.status = Some(pod_status::rejected());
            }
        });
        if is_rejected {
            self.cover(CoveragePoint::PodRejected);
            self.note(|| format!("the node rejects Pod {number}"));
            return;
        }
        let delay = self.rng.between(5, 2_000);
        let starts = Event::Kubelet(number, PodStage::Starts(0));
        self.event_queue.add(delay, starts);
    }

    fn pod_starts(&mut self, number: u64, pod: &PodVersion, attempts: u32) {
        let object = self.api.get(pod.key);
        let offered = object.and_then(|one| api_server::offered(&one.object));
        let now = self.timestamp();
        if offered != Some(pod.id.as_str()) {
            self.cover(CoveragePoint::NotAttached);
            if attempts < ATTEMPTS {
                let again = Event::Kubelet(number, PodStage::Starts(attempts + 1));
                self.event_queue.add(ATTACH_INTERVAL, again);
            } else {
                self.set_pod_status(number, |pod| pod_status::ended(pod, 1, now));
            }
            return;
        }
        self.job_history.attached(pod);
        self.attach(number, pod.key, pod.id.clone());
        self.set_pod_status(number, |pod| pod_status::running(pod, now));
        let has_launcher = self.jobs[pod.job].gang.is_some();
        let is_held = is_held(&pod.object);
        if !is_held && pod.is_launcher() == has_launcher {
            self.ends_by_itself(number, pod.key);
        }
    }

    /// The command of a launcher was released.
    pub(super) fn command_released(&mut self, number: u64) {
        if let Some(key) = self.pods.get(&number).map(|pod| pod.key) {
            self.ends_by_itself(number, key);
        }
    }

    fn set_pod_status(&mut self, number: u64, status: impl FnOnce(&Pod) -> PodStatus) {
        self.server
            .change_pod(number, |pod| pod.status = Some(status(pod)));
    }

    /// Requests the deletion of a Pod. Returns it, unless it is gone at once: no kubelet has seen a
    /// Pod without a node.
    pub(super) fn request_pod_deletion(&mut self, number: u64, within: u64) -> Option<Arc<Pod>> {
        let pod = self.server.pod(number)?.clone();
        if !pod.has_node() {
            self.cover(CoveragePoint::PodNeverRan);
            self.pod_is_gone(number, &pod);
            return None;
        }
        if pod.is_deleted() {
            return Some(pod.object);
        }
        let due = Time(self.timestamp() + SignedDuration::from_secs(GRACE));
        let deleted = self.server.change_pod(number, |pod| {
            pod.metadata.deletion_timestamp = Some(due);
            pod.metadata.deletion_grace_period_seconds = Some(GRACE);
        });
        if self.pods.contains_key(&number) {
            self.end_pod(number, within);
        } else {
            let delay = self.rng.between(10, 2_000);
            let gone = Event::Kubelet(number, PodStage::Gone);
            self.event_queue.add(delay, gone);
        }
        deleted
    }

    fn pod_is_gone(&mut self, number: u64, pod: &PodVersion) {
        self.note(|| format!("Pod {number} ({}) is gone", pod.name()));
        self.server.remove_pod(number);
    }

    /// The program of a Pod of a job has ended.
    pub(super) fn job_pod_ended(&mut self, number: u64) {
        let Some(pod) = self.server.pod(number).cloned() else {
            return;
        };
        let now = self.timestamp();
        if pod.is_deleted() {
            // The kubelet may report the end before the Pod is gone.
            if self.rng.permille(300) {
                self.set_pod_status(number, |pod| pod_status::ended(pod, 143, now));
                let delay = self.rng.between(1, 1_000);
                let gone = Event::Kubelet(number, PodStage::Gone);
                self.event_queue.add(delay, gone);
            } else {
                self.pod_is_gone(number, &pod);
            }
            return;
        }
        let failing = self.jobs[pod.job].runs.unwrap_or(0);
        let exit_code = i32::from(pod.run() < i64::from(failing));
        self.note(|| format!("Pod {number} ends with exit code {exit_code}"));
        self.set_pod_status(number, |pod| pod_status::ended(pod, exit_code, now));
    }

    /// Kubernetes disrupts a Pod.
    pub(super) fn disrupt_pod(&mut self, number: u64, disruption: Disruption) {
        let Some(pod) = self.server.pod(number).cloned() else {
            return;
        };
        self.cover(CoveragePoint::PodDisrupted);
        self.note(|| format!("Pod {number} ({}) is disrupted: {disruption:?}", pod.name()));
        let now = self.timestamp();
        match disruption {
            Disruption::Evicted => {
                self.pods.remove(&number);
                self.set_pod_status(number, |pod| pod_status::evicted(pod, now));
            }
            Disruption::Preempted => {
                self.set_pod_status(number, pod_status::preempted);
                self.request_pod_deletion(number, DELETION);
            }
        }
    }

    /// A Pod of a job that has not ended and is not being deleted, at random.
    pub(super) fn some_pod(&mut self) -> Option<u64> {
        let pods = self.server.pods();
        let live = pods.filter(|(_, pod)| !pod.is_deleted() && !pod.has_ended());
        let live: Vec<u64> = live.map(|(number, _)| number).collect();
        (!live.is_empty()).then(|| self.rng.pick(&live))
    }
}

/// Whether the command of a launcher is held back.
fn is_held(pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    let start = annotations.and_then(|all| all.get(labels::START_ANNOTATION));
    start.is_some_and(|start| start == labels::HELD)
}
