//! Pure: the jobs in queues, their Workloads and partitions, and the settings of Kueue, as the
//! watches last reported them.
//!
//! Decisions on a stale view are harmless, because every write has a version or a UID as its
//! precondition.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use ipu_api::ipupartition::IPUPartition;
use ipu_api::object_ref::ObjectRef;
use ipu_api::queueing::PARTITION_CHECK_CONTROLLER;
use ipu_api::uid::Uid;
use ipu_jobs::build::PodSettings;
use ipu_jobs::raw::RawJob;
use ipu_runtime::watch_store::{Store, object, of_owner};
use kube::runtime::watcher::Event;
use parking_lot::Mutex;

use crate::job::{QueuedJob, controlling_job};
use crate::native::{self, Reserved, slots};
use crate::objects::{AdmissionCheck, ResourceFlavor, ResourceFlavorSpec, Workload};
use crate::partitions::JobPartition;
use crate::plan::ObservedJob;
use crate::pod_sets::relevant;

/// Key of a reconcile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// An IPUJob and its Workload.
    Job(Arc<ObjectRef>),
    /// A Workload that belongs to no IPUJob, by namespace and name.
    Workload(Box<str>, Box<str>),
    /// An AdmissionCheck.
    Check(Box<str>),
}

impl Display for Key {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(job) => write!(formatter, "{job}"),
            Self::Workload(namespace, name) => write!(formatter, "Workload {namespace}/{name}"),
            Self::Check(name) => write!(formatter, "AdmissionCheck {name}"),
        }
    }
}

/// A job in the cache.
#[derive(Debug)]
pub enum Lookup {
    /// It waits in a queue, or was admitted.
    Queued(Box<ObservedJob>),
    /// It waits in no queue: it is gone, has left its queue, or was never queued. These of its
    /// Workloads are left.
    Unqueued(Vec<Arc<Workload>>),
}

/// Key of an object that belongs to a job: the job, and the object's name.
type OfJob = (Uid, Box<str>);

/// State of all objects.
#[derive(Default)]
pub struct Observed {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    jobs: Store<Uid, QueuedJob>,
    workloads: Store<OfJob, Arc<Workload>>,
    partitions: Store<OfJob, JobPartition>,
    reserved: Store<Box<str>, Reserved>,
    flavors: Store<Box<str>, ResourceFlavorSpec>,
    checks: Store<Box<str>, Arc<AdmissionCheck>>,
}

impl Observed {
    /// Applies an event of the watch of IPUJobs.
    pub fn apply_job_event(&self, event: Event<RawJob>, settings: &PodSettings) -> Vec<Key> {
        let mut inner = self.inner.lock();
        // A job that is being deleted is not stored any more, and its Workload waits for its end.
        let reported = object(&event).and_then(|job| ObjectRef::of(&job.metadata));
        let key = |job: &RawJob| job.metadata.uid.as_deref().map(Uid::of);
        let project = |_: &Uid, job: RawJob, _: &BTreeMap<_, _>| QueuedJob::of(&job, settings);
        let changes = inner.jobs.apply_event(event, key, project);
        let gone = changes
            .into_iter()
            .filter_map(|change| Some(change.before?.reference));
        let jobs = reported.map(Arc::new).into_iter().chain(gone);
        jobs.map(Key::Job).collect()
    }

    /// Applies an event of the watch of Workloads.
    pub fn apply_workload_event(&self, event: Event<Workload>) -> Vec<Key> {
        let mut inner = self.inner.lock();
        let Inner {
            jobs, workloads, ..
        } = &mut *inner;
        let key = |workload: &Workload| Some((owner_key(workload), full_name(workload)?));
        let changes = workloads.apply_event(event, key, |_, workload, _| Some(pruned(workload)));
        let mut keys = Vec::new();
        for change in changes {
            let known = workloads.objects().get(&change.key);
            if known.is_some() && change.key.0 != nobody() {
                // It may have had no owner before the job.
                let orphan = (nobody(), change.key.1.clone());
                let known = known.cloned();
                workloads.update(orphan, None);
                keys.extend(known.and_then(|one| affected_key(&one, jobs)));
            } else if let Some(one) = known.or(change.before.as_ref()) {
                keys.extend(affected_key(one, jobs));
            }
        }
        keys
    }

    /// Applies an event of the watch of IPUPartitions.
    pub fn apply_partition_event(&self, event: Event<IPUPartition>) -> Vec<Key> {
        let mut inner = self.inner.lock();
        let key = |object: &IPUPartition| {
            let job = Uid::of(&object.spec.owner.uid);
            Some((job, object.metadata.name.as_deref()?.into()))
        };
        let project = |_: &OfJob, object, _: &BTreeMap<_, _>| JobPartition::of(&object);
        let changes = inner.partitions.apply_event(event, key, project);
        let known = inner.partitions.objects();
        let jobs = changes.into_iter().filter_map(|change| {
            let partition = known.get(&change.key).or(change.before.as_ref())?;
            Some(Key::Job(Arc::new(partition.job.clone())))
        });
        jobs.collect()
    }

    /// Applies an event of the watch of the IPUPartitions of Workloads.
    pub fn apply_reserved_event(&self, event: Event<IPUPartition>) -> Vec<Key> {
        let mut inner = self.inner.lock();
        let key = |object: &IPUPartition| object.metadata.name.as_deref().map(Into::into);
        let changes = inner
            .reserved
            .apply_event(event, key, |_, object, _| Reserved::of(&object));
        let known = inner.reserved.objects();
        let workloads = changes.into_iter().filter_map(|change| {
            let reserved = known.get(&change.key).or(change.before.as_ref())?;
            let owner = &reserved.of.job;
            Some(Key::Workload(owner.namespace.clone(), owner.name.clone()))
        });
        workloads.collect()
    }

    /// Applies an event of the watch of ResourceFlavors. Every suspended job may wait for one.
    pub fn apply_flavor_event(&self, event: Event<ResourceFlavor>) -> Vec<Key> {
        let mut inner = self.inner.lock();
        let key = |object: &ResourceFlavor| object.metadata.name.as_deref().map(Into::into);
        let changes = inner
            .flavors
            .apply_event(event, key, |_, object, _| Some(object.spec));
        if changes.is_empty() {
            return Vec::new();
        }
        let waiting = inner
            .jobs
            .objects()
            .values()
            .filter(|job| job.is_suspended());
        waiting
            .map(|job| Key::Job(Arc::clone(&job.reference)))
            .collect()
    }

    /// Applies an event of the watch of AdmissionChecks.
    pub fn apply_check_event(&self, event: Event<AdmissionCheck>) -> Vec<Key> {
        let mut inner = self.inner.lock();
        let key = |object: &AdmissionCheck| object.metadata.name.as_deref().map(Into::into);
        let changes = inner.checks.apply_event(event, key, |_, object, _| {
            let is_ours = object.spec.controller_name == PARTITION_CHECK_CONTROLLER;
            is_ours.then(|| Arc::new(object))
        });
        let mut keys: Vec<Key> = changes
            .into_iter()
            .map(|change| Key::Check(change.key))
            .collect();
        if !keys.is_empty() {
            let jobs = inner
                .jobs
                .objects()
                .values()
                .filter(|job| job.is_suspended());
            keys.extend(jobs.map(|job| Key::Job(Arc::clone(&job.reference))));
        }
        keys
    }

    /// State of a job.
    pub fn job(&self, reference: &ObjectRef) -> Lookup {
        let inner = self.inner.lock();
        let uid = reference.key();
        let known = inner.jobs.objects().get(&uid);
        let namespace = known.map_or(&reference.namespace, |job| &job.reference.namespace);
        // A user of another namespace can name any UID as the owner of a Workload there.
        let workloads = of_owner(inner.workloads.objects(), uid)
            .filter(|one| one.metadata.namespace.as_deref() == Some(&**namespace));
        let mut workloads: Vec<_> = workloads.cloned().collect();
        let Some(job) = known else {
            return Lookup::Unqueued(workloads);
        };
        if let Some(name) = &job.prebuilt {
            let orphan = (
                nobody(),
                format!("{}/{name}", job.reference.namespace).into(),
            );
            workloads.extend(inner.workloads.objects().get(&orphan).cloned());
        }
        Lookup::Queued(Box::new(inner.state_of(job.clone(), workloads)))
    }

    /// State of a job that has left its queue.
    pub fn unqueued(&self, job: QueuedJob, workloads: Vec<Arc<Workload>>) -> ObservedJob {
        self.inner.lock().state_of(job, workloads)
    }

    /// Whether a job has partitions.
    pub fn has_partitions(&self, reference: &ObjectRef) -> bool {
        let inner = self.inner.lock();
        let mut partitions = of_owner(inner.partitions.objects(), reference.key());
        partitions.next().is_some()
    }

    /// State of a Workload that belongs to no IPUJob, or of its remains.
    pub fn other_workload(&self, namespace: &str, name: &str) -> native::ObservedWorkload {
        let inner = self.inner.lock();
        let key = (nobody(), format!("{namespace}/{name}").into());
        let is_of = |reserved: &&Reserved| {
            let owner = &reserved.of.job;
            (&*owner.namespace, &*owner.name) == (namespace, name)
        };
        native::ObservedWorkload {
            workload: inner.workloads.objects().get(&key).cloned(),
            partitions: inner
                .reserved
                .objects()
                .values()
                .filter(is_of)
                .cloned()
                .collect(),
            flavors: Arc::new(inner.flavors.objects().clone()),
            checks: Arc::new(inner.checks.objects().keys().cloned().collect()),
        }
    }

    /// An AdmissionCheck that waits for partitions.
    pub fn check(&self, name: &str) -> Option<Arc<AdmissionCheck>> {
        self.inner.lock().checks.objects().get(name).cloned()
    }
}

impl Inner {
    fn state_of(&self, job: QueuedJob, workloads: Vec<Arc<Workload>>) -> ObservedJob {
        let partitions = of_owner(self.partitions.objects(), job.reference.key());
        ObservedJob {
            workloads,
            partitions: partitions.cloned().collect(),
            flavors: Arc::new(self.flavors.objects().clone()),
            checks: Arc::new(self.checks.objects().keys().cloned().collect()),
            job,
        }
    }
}

/// The key of Workloads that belong to no IPUJob.
fn nobody() -> Uid {
    Uid::of("")
}

fn owner_key(workload: &Workload) -> Uid {
    controlling_job(&workload.metadata).map_or_else(nobody, |job| job.key())
}

fn full_name(workload: &Workload) -> Option<Box<str>> {
    let metadata = &workload.metadata;
    Some(
        format!(
            "{}/{}",
            metadata.namespace.as_deref()?,
            metadata.name.as_deref()?
        )
        .into(),
    )
}

/// The reconcile that a Workload concerns: that of its job, of the job that names it, or its own.
fn affected_key(workload: &Workload, jobs: &Store<Uid, QueuedJob>) -> Option<Key> {
    let metadata = &workload.metadata;
    if let Some(job) = controlling_job(metadata) {
        return Some(Key::Job(Arc::new(job)));
    }
    let (namespace, name) = (metadata.namespace.as_deref()?, metadata.name.as_deref()?);
    let names = |job: &&QueuedJob| {
        job.prebuilt.as_deref() == Some(name) && *job.reference.namespace == *namespace
    };
    let job = jobs.objects().values().find(names);
    Some(match job {
        Some(job) => Key::Job(Arc::clone(&job.reference)),
        None => Key::Workload(namespace.into(), name.into()),
    })
}

/// Keeps of a Workload what decisions read.
fn pruned(mut workload: Workload) -> Arc<Workload> {
    workload.metadata.managed_fields = None;
    let is_of_job = controlling_job(&workload.metadata).is_some();
    for set in &mut workload.spec.pod_sets {
        set.template = if is_of_job {
            relevant(&set.template)
        } else {
            slots::pruned(&set.template)
        };
    }
    Arc::new(workload)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::samples::{job, job_object, settings, workload};

    #[test]
    fn a_workload_of_another_namespace_is_not_the_jobs() {
        let observed = Observed::default();
        observed.apply_job_event(Event::Apply(job_object(|_| {})), &settings());
        let own = job(|_| {});
        observed.apply_workload_event(Event::Apply(workload(&own, |_| {})));
        let forged = workload(&own, |workload| {
            workload["metadata"]["namespace"] = json!("other-team");
        });
        let keys = observed.apply_workload_event(Event::Apply(forged));
        let mut references = vec![Arc::clone(&own.reference)];
        references.extend(keys.into_iter().filter_map(|key| match key {
            Key::Job(reference) => Some(reference),
            Key::Workload(..) | Key::Check(_) => None,
        }));
        for reference in references {
            let Lookup::Queued(seen) = observed.job(&reference) else {
                panic!("it is in a queue");
            };
            let namespaces = seen
                .workloads
                .iter()
                .map(|one| one.metadata.namespace.as_deref());
            assert_eq!(namespaces.collect::<Vec<_>>(), [Some("team")]);
        }
    }
}
