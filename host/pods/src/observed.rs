//! Pure: the native Pods and their IPUPartitions as the watches last reported them, with the writes
//! of this process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use ipu_api::ipupartition::IPUPartition;
use ipu_api::naming::partition_object;
use ipu_api::object_ref::ObjectRef;
use ipu_api::pod_request::PodRequest;
use ipu_api::uid::Uid;
use ipu_runtime::watch_store::{Tracked, TrackedStore, version};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;

use crate::claims::{claimable, claimed};
use crate::partition::Partition;
use crate::pod::{NativePod, owner};

/// State of all native Pods and their IPUPartitions.
#[derive(Default)]
pub struct Observed {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    pods: TrackedStore<Uid, NativePod>,
    partitions: TrackedStore<Box<str>, Partition>,
}

/// A Pod with the IPUPartitions that concern it.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedPod {
    /// The Pod.
    pub pod: NativePod,
    /// The IPUPartition that was created for it.
    pub own: Option<Partition>,
    /// The existing IPUPartition that it names.
    pub named: Option<Partition>,
    /// An IPUPartition of its Workload that it may claim.
    pub claimable: Option<Partition>,
}

/// The state of a Pod in the cache.
#[derive(Debug, PartialEq)]
pub enum Lookup {
    /// They have not reported a write of this process yet.
    CacheStale,
    /// No such native Pod is known; a partition may be left of it.
    Gone(Option<Box<Partition>>),
    /// The Pod.
    Found(Box<ObservedPod>),
}

impl Tracked<Uid> for NativePod {
    fn identity(uid: &Uid, _: Option<&Self>) -> Option<(Uid, Uid)> {
        Some((*uid, *uid))
    }

    fn version(&self) -> u64 {
        self.version
    }
}

/// The Pod of an IPUPartition waits for writes of it.
impl Tracked<Box<str>> for Partition {
    fn identity(_: &Box<str>, partition: Option<&Self>) -> Option<(Uid, Uid)> {
        keys(partition?)
    }

    fn version(&self) -> u64 {
        self.version
    }
}

impl Observed {
    /// Applies an event of the watch of Pods. Returns the Pods to reconcile.
    pub fn apply_pod_event(&self, event: Event<Pod>) -> Vec<Arc<ObjectRef>> {
        let mut inner = self.inner.lock();
        let key = |pod: &Pod| pod.metadata.uid.as_deref().map(Uid::of);
        let changes = inner
            .pods
            .apply_event(event, key, |_, pod, _| NativePod::of(&pod));
        let known = inner.pods.objects();
        let pods = changes.into_iter().filter_map(|change| {
            let pod = known.get(&change.key).or(change.before.as_ref())?;
            Some(Arc::clone(&pod.reference))
        });
        pods.collect()
    }

    /// Applies an event of the watch of IPUPartitions. Returns the Pods to reconcile.
    pub fn apply_partition_event(&self, event: Event<IPUPartition>) -> Vec<Arc<ObjectRef>> {
        let mut inner = self.inner.lock();
        let Inner { pods, partitions } = &mut *inner;
        let key = |object: &IPUPartition| object.metadata.name.as_deref().map(Into::into);
        let changes = partitions.apply_event(event, key, |_, object, _| Partition::of(object));
        let known = partitions.objects();
        let concerned = changes.into_iter().flat_map(|change| {
            let partition = known.get(&change.key).or(change.before.as_ref());
            partition.map_or_else(Vec::new, |one| users(one, pods.objects()))
        });
        concerned.collect()
    }

    /// Expects the watch to report this written Pod.
    pub fn expect_pod(&self, pod: &Pod, now: Instant) {
        let mut inner = self.inner.lock();
        if let Some(uid) = pod.metadata.uid.as_deref().map(Uid::of) {
            let version = version(&pod.metadata);
            inner.pods.expect(&uid, (uid, uid), version, now);
        }
    }

    /// Expects the watch to report this written IPUPartition.
    pub fn expect_partition(&self, object: IPUPartition, now: Instant) {
        let mut inner = self.inner.lock();
        let Some(partition) = Partition::of(object) else {
            return;
        };
        if let Some(identity) = keys(&partition) {
            let (name, version) = (partition.name.into(), partition.version);
            inner.partitions.expect(&name, identity, version, now);
        }
    }

    /// State of a Pod.
    pub fn get(&self, pod: &ObjectRef, now: Instant) -> Lookup {
        let inner = self.inner.lock();
        let Inner { pods, partitions } = &*inner;
        if pods.is_stale(pod.key(), now) || partitions.is_stale(pod.key(), now) {
            return Lookup::CacheStale;
        }
        let partition = |name: &str| partitions.objects().get(name).cloned();
        let own = partition(&partition_object(&owner(pod), 0)).filter(|own| own.is_of_pod);
        let own = own.or_else(|| claimed(partitions.objects(), pod.key()));
        let Some(pod) = pods.objects().get(&pod.key()) else {
            return Lookup::Gone(own.map(Box::new));
        };
        let named = match &pod.request {
            Ok(PodRequest::Existing(existing)) => partition(&existing.name),
            _ => None,
        };
        let claimable = match &pod.request {
            Ok(PodRequest::New(new)) if own.is_none() && pod.workload.is_some() => {
                claimable(partitions.objects(), pod, new.ipus)
            }
            _ => None,
        };
        Lookup::Found(Box::new(ObservedPod {
            pod: pod.clone(),
            own,
            named,
            claimable,
        }))
    }
}

/// The keys of the Pod and of its IPUPartition.
fn keys(partition: &Partition) -> Option<(Uid, Uid)> {
    Some((partition.pod()?.key(), Uid::of(&partition.uid)))
}

/// The Pods that an IPUPartition concerns: the one that it was created for, or those that name it.
fn users(partition: &Partition, pods: &BTreeMap<Uid, NativePod>) -> Vec<Arc<ObjectRef>> {
    if let Some(pod) = partition.pod() {
        return vec![Arc::new(pod)];
    }
    let names = |pod: &&NativePod| match &pod.request {
        Ok(PodRequest::Existing(existing)) => existing.name == partition.name,
        _ => false,
    };
    let users = pods.values().filter(names);
    users.map(|pod| Arc::clone(&pod.reference)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::samples::{partition, pod};

    fn listed() -> Observed {
        let observed = Observed::default();
        for event in [Event::Init, Event::InitApply(pod(|_| {})), Event::InitDone] {
            observed.apply_pod_event(event);
        }
        for event in [Event::Init, Event::InitDone] {
            observed.apply_partition_event(event);
        }
        observed
    }

    fn reference() -> ObjectRef {
        (*NativePod::of(&pod(|_| {})).unwrap().reference).clone()
    }

    fn names(pods: &[Arc<ObjectRef>]) -> Vec<String> {
        pods.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_pod_is_seen_with_its_partition_and_the_partition_without_the_pod() {
        let (observed, now) = (listed(), Instant::now());
        let Lookup::Found(seen) = observed.get(&reference(), now) else {
            panic!("it was listed");
        };
        assert_eq!((seen.own, seen.named), (None, None));
        let made = observed.apply_partition_event(Event::Apply(partition(|_| {})));
        assert_eq!(names(&made), ["team/web"]);
        let Lookup::Found(seen) = observed.get(&reference(), now) else {
            panic!("it was listed");
        };
        assert!(seen.own.is_some());
        let gone = observed.apply_pod_event(Event::Delete(pod(|_| {})));
        assert_eq!(names(&gone), ["team/web"]);
        assert!(matches!(
            observed.get(&reference(), now),
            Lookup::Gone(Some(_))
        ));
        let gone = observed.apply_partition_event(Event::Delete(partition(|_| {})));
        assert_eq!(names(&gone), ["team/web"]);
        assert_eq!(observed.get(&reference(), now), Lookup::Gone(None));
    }

    #[test]
    fn nothing_is_decided_before_the_watches_show_a_write() {
        let (observed, now) = (listed(), Instant::now());
        let later = |object: &mut serde_json::Value| {
            object["metadata"]["resourceVersion"] = json!("8");
        };
        observed.expect_pod(&pod(later), now);
        assert_eq!(observed.get(&reference(), now), Lookup::CacheStale);
        observed.apply_pod_event(Event::Apply(pod(later)));
        assert!(matches!(observed.get(&reference(), now), Lookup::Found(_)));
        observed.expect_partition(partition(later), now);
        assert_eq!(observed.get(&reference(), now), Lookup::CacheStale);
        observed.apply_partition_event(Event::Apply(partition(later)));
        assert!(matches!(observed.get(&reference(), now), Lookup::Found(_)));
        observed.expect_pod(&pod(later), now);
        observed.expect_partition(partition(later), now);
        assert!(
            matches!(observed.get(&reference(), now), Lookup::Found(_)),
            "the watch was faster than the reply"
        );
        observed.expect_partition(
            partition(|object| {
                object["metadata"]["resourceVersion"] = json!("9");
            }),
            now,
        );
        assert!(matches!(
            observed.get(&reference(), now + Duration::from_mins(2)),
            Lookup::Found(_)
        ));
    }

    #[test]
    fn a_claimed_partition_is_the_pods_own_and_nobody_elses() {
        let (observed, now) = (listed(), Instant::now());
        let of_workload = |pod: &mut serde_json::Value| {
            pod["metadata"]["annotations"]["graphcore.ai/workload"] = json!("batch");
        };
        observed.apply_pod_event(Event::Apply(pod(of_workload)));
        let free = |object: &mut serde_json::Value| {
            object["metadata"]["name"] = json!("team.batch-0");
            object["metadata"]["labels"] = json!({"graphcore.ai/workload-uid": "batch-uid"});
            object["spec"]["owner"] = json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "namespace": "team", "name": "batch",
                "uid": "batch-uid",
            });
            object["status"] = json!({
                "phase": "Ready", "partitionId": "p-batch",
                "controller": crate::samples::partition_ref("p-batch").controller,
            });
        };
        assert_eq!(
            names(&observed.apply_partition_event(Event::Apply(partition(free)))),
            [""; 0]
        );
        let seen = |reference: &ObjectRef| match observed.get(reference, now) {
            Lookup::Found(seen) => seen,
            other => panic!("{other:?}"),
        };
        let found = seen(&reference());
        assert_eq!((found.own, found.named), (None, None));
        let claimable = found.claimable.unwrap();
        let at = "2026-01-01T00:00:10Z".parse().unwrap();
        let patch = crate::build::claim(&reference(), &claimable, at);
        let annotations = &patch["metadata"]["annotations"];
        assert_eq!(
            annotations["graphcore.ai/claimed-at"],
            "2026-01-01T00:00:10Z"
        );
        let claimed = partition(|object| {
            free(object);
            for (field, value) in patch["metadata"].as_object().unwrap() {
                match value.as_object() {
                    Some(added) => added.iter().for_each(|(key, value)| {
                        object["metadata"][field.as_str()][key.as_str()] = value.clone();
                    }),
                    None => object["metadata"][field.as_str()] = value.clone(),
                }
            }
        });
        let claimed = observed.apply_partition_event(Event::Apply(claimed));
        assert_eq!(names(&claimed), ["team/web"]);
        let found = seen(&reference());
        assert_eq!(found.own.unwrap().name, "team.batch-0");
        assert_eq!(found.claimable, None);
        observed.apply_pod_event(Event::Delete(pod(of_workload)));
        assert!(matches!(
            observed.get(&reference(), now),
            Lookup::Gone(Some(_))
        ));
    }

    #[test]
    fn an_existing_partition_concerns_the_pods_that_name_it() {
        let observed = listed();
        let using = pod(|pod| {
            pod["metadata"]["annotations"] = json!({"graphcore.ai/partition": "shared"});
        });
        observed.apply_pod_event(Event::Apply(using));
        let shared = partition(|object| {
            object["metadata"] = json!({"name": "shared", "uid": "s"});
            object["spec"]["owner"]["kind"] = json!("Notebook");
        });
        let concerned = observed.apply_partition_event(Event::Apply(shared));
        assert_eq!(names(&concerned), ["team/web"]);
        let Lookup::Found(seen) = observed.get(&reference(), Instant::now()) else {
            panic!("it was listed");
        };
        assert_eq!(seen.named.unwrap().name, "shared");
    }
}
