//! Pure: what the watches have told of all jobs' objects, found by job, and whether that includes what
//! the controller itself has written since.
//!
//! What others write may always arrive late: names that can be given once, and preconditions, make
//! decisions on an old view harmless. What the controller itself has written must be in the view
//! before it decides again, or it would do the same thing twice.

use std::collections::{HashMap, HashSet, VecDeque};
use std::marker::PhantomData;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;

use super::kept::{JobRef, OfJob};
use crate::packed::{Packed, Packing};
use crate::uid::Uid;

/// How long a write is waited for. A watch that is later than that was interrupted, and lists
/// everything anew.
const LATE: SignedDuration = SignedDuration::from_secs(30);

/// How many ends are remembered: more than requests can be under way.
const GONE: usize = 1024;

/// All objects of one kind that belong to jobs.
pub struct Index<K> {
    /// Whether the first list is complete.
    listed: bool,
    /// UIDs that the list under way has named so far.
    listing: Option<HashSet<Uid>>,
    jobs: HashMap<Uid, Objects>,
    /// UIDs of the objects that went last: the watch may tell of an end before the answer to the
    /// request arrives.
    gone: VecDeque<Uid>,
    packing: Packing,
    kind: PhantomData<fn() -> K>,
}

#[derive(Debug)]
struct Objects {
    job: JobRef,
    kept: Vec<Kept>,
    awaited: Vec<Awaited>,
}

#[derive(Debug)]
struct Kept {
    uid: Uid,
    version: u64,
    packed: Packed,
}

/// A write that the watch has not told of yet.
#[derive(Debug)]
struct Awaited {
    uid: Uid,
    /// The version that was written; `u64::MAX`: only its end will do.
    version: u64,
    since: Timestamp,
}

impl<K> Default for Index<K> {
    fn default() -> Self {
        Self {
            listed: false,
            listing: None,
            jobs: HashMap::new(),
            gone: VecDeque::new(),
            packing: Packing::default(),
            kind: PhantomData,
        }
    }
}

impl<K: OfJob> Index<K> {
    /// Takes in what a watch tells. Answers the jobs that have to be looked at.
    pub fn hear(&mut self, event: Event<K>) -> Vec<JobRef> {
        match event {
            Event::Init => self.listing = Some(HashSet::new()),
            Event::InitDone => return self.complete(),
            Event::Apply(object) | Event::InitApply(object) => return self.keep(object),
            Event::Delete(object) => return self.forget(&object),
        }
        Vec::new()
    }

    /// Notes what was written, or found written: decisions wait until the watch tells of it.
    pub fn wrote(&mut self, object: &K, now: Timestamp) {
        let Some(job) = object.job() else { return };
        let (uid, version) = identity(object.meta());
        self.wait_for(job, uid, version, now);
    }

    /// Notes that an object was removed at once.
    pub fn removed(&mut self, job: &str, uid: &str, now: Timestamp) {
        let (job, uid) = (Uid::of(job), Uid::of(uid));
        let Some(objects) = self.jobs.get(&job) else {
            return;
        };
        let job = objects.job.clone();
        if objects.kept.iter().any(|kept| kept.uid == uid) {
            self.wait_for(job, uid, u64::MAX, now);
        }
    }

    /// The objects of a job, by its UID. None where the watch is behind.
    pub fn of(&mut self, job: &str, now: Timestamp) -> Option<Vec<K>> {
        if !self.listed {
            return None;
        }
        let Some(objects) = self.jobs.get(&Uid::of(job)) else {
            return Some(Vec::new());
        };
        let is_late = |awaited: &Awaited| now.duration_since(awaited.since) >= LATE;
        if !objects.awaited.iter().all(is_late) {
            return None;
        }
        let kept = objects.kept.iter();
        Some(kept.map(|kept| self.packing.unpack(&kept.packed)).collect())
    }

    fn wait_for(&mut self, job: JobRef, uid: Uid, version: u64, now: Timestamp) {
        if self.gone.contains(&uid) {
            return;
        }
        let objects = self.objects(job);
        let mut kept = objects.kept.iter();
        if kept.any(|kept| kept.uid == uid && kept.version >= version) {
            return;
        }
        objects.awaited.push(Awaited {
            uid,
            version,
            since: now,
        });
    }

    fn keep(&mut self, object: K) -> Vec<JobRef> {
        let Some(job) = object.job() else {
            return Vec::new();
        };
        let (uid, version) = identity(object.meta());
        if let Some(listing) = &mut self.listing {
            listing.insert(uid);
        }
        let kept = Kept {
            uid,
            version,
            packed: self.packing.pack(&object.cut()),
        };
        let objects = self.objects(job.clone());
        objects
            .awaited
            .retain(|awaited| awaited.uid != kept.uid || awaited.version > version);
        // Most jobs rest most of the time, and there are thousands of them.
        objects.awaited.shrink_to_fit();
        match objects.kept.iter_mut().find(|old| old.uid == kept.uid) {
            Some(old) => *old = kept,
            None => objects.kept.push(kept),
        }
        vec![job]
    }

    fn forget(&mut self, object: &K) -> Vec<JobRef> {
        let Some(job) = object.job() else {
            return Vec::new();
        };
        let (uid, _) = identity(object.meta());
        if self.gone.len() == GONE {
            self.gone.pop_front();
        }
        self.gone.push_back(uid);
        if let Some(objects) = self.jobs.get_mut(&job.uid) {
            objects.kept.retain(|kept| kept.uid != uid);
            objects.awaited.retain(|awaited| awaited.uid != uid);
            if objects.kept.is_empty() && objects.awaited.is_empty() {
                self.jobs.remove(&job.uid);
            }
        }
        vec![job]
    }

    /// What the complete list did not name is gone, whenever that happened.
    fn complete(&mut self) -> Vec<JobRef> {
        self.listed = true;
        let named = self.listing.take().unwrap_or_default();
        let mut touched = Vec::new();
        self.jobs.retain(|_, objects| {
            let before = objects.kept.len();
            objects.kept.retain(|kept| named.contains(&kept.uid));
            objects
                .awaited
                .retain(|awaited| named.contains(&awaited.uid));
            if objects.kept.len() < before {
                touched.push(objects.job.clone());
            }
            !objects.kept.is_empty()
        });
        touched
    }

    fn objects(&mut self, job: JobRef) -> &mut Objects {
        self.jobs.entry(job.uid).or_insert_with(|| Objects {
            job,
            kept: Vec::new(),
            awaited: Vec::new(),
        })
    }
}

/// UID and version. Versions of one object can be compared as numbers (Kubernetes 1.35 promises so,
/// and etcd's revisions always could); one that is no number is waited for by nobody.
fn identity(metadata: &ObjectMeta) -> (Uid, u64) {
    let version = metadata.resource_version.as_deref();
    let version = version.and_then(|version| version.parse().ok());
    (
        Uid::of(metadata.uid.as_deref().unwrap_or_default()),
        version.unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    fn pod(name: &str, version: u64) -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "namespace": "n", "uid": format!("uid-of-{name}"),
                "resourceVersion": version.to_string(),
                "labels": {"graphcore.ai/run": "2", "else": "not read"},
                "ownerReferences": [{
                    "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob",
                    "name": "job", "uid": "job-uid",
                }],
            },
            "spec": {"containers": [{"name": "main", "image": "large"}]},
        }))
        .unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    fn names(index: &mut Index<Pod>, now: Timestamp) -> Option<Vec<String>> {
        let pods = index.of("job-uid", now)?.into_iter();
        Some(pods.filter_map(|pod| pod.metadata.name).collect())
    }

    fn listed(pods: &[Pod]) -> Index<Pod> {
        let mut index = Index::default();
        index.hear(Event::Init);
        for pod in pods {
            index.hear(Event::InitApply(pod.clone()));
        }
        index.hear(Event::InitDone);
        index
    }

    #[test]
    fn nothing_is_known_before_the_first_list_is_complete() {
        let mut index = Index::default();
        index.hear(Event::Init);
        index.hear(Event::InitApply(pod("a", 1)));
        assert_eq!(names(&mut index, at(0)), None);
        index.hear(Event::InitDone);
        assert_eq!(names(&mut index, at(0)).unwrap(), ["a"]);
        assert_eq!(index.of("another", at(0)).unwrap(), []);
    }

    #[test]
    fn a_pod_that_was_made_is_waited_for() {
        let mut index = listed(&[]);
        index.wrote(&pod("a", 5), at(0));
        assert_eq!(names(&mut index, at(1)), None);
        assert_eq!(index.hear(Event::Apply(pod("a", 5))).len(), 1);
        assert_eq!(names(&mut index, at(1)).unwrap(), ["a"]);
    }

    #[test]
    fn a_watch_that_was_faster_than_the_answer_is_not_waited_for() {
        let mut index = listed(&[pod("a", 7)]);
        index.wrote(&pod("a", 5), at(0));
        assert_eq!(names(&mut index, at(0)).unwrap(), ["a"]);
    }

    #[test]
    fn an_older_version_will_not_do() {
        let mut index = listed(&[pod("a", 1)]);
        index.wrote(&pod("a", 5), at(0));
        index.hear(Event::Apply(pod("a", 4)));
        assert_eq!(names(&mut index, at(1)), None);
    }

    #[test]
    fn what_was_removed_at_once_is_waited_for_until_it_is_gone() {
        let mut index = listed(&[pod("a", 1)]);
        index.removed("job-uid", "uid-of-a", at(0));
        index.hear(Event::Apply(pod("a", 2)));
        assert_eq!(names(&mut index, at(1)), None);
        index.hear(Event::Delete(pod("a", 3)));
        assert_eq!(names(&mut index, at(1)).unwrap(), [""; 0]);
    }

    #[test]
    fn what_is_gone_before_the_answer_arrives_is_not_waited_for() {
        let mut index = listed(&[pod("a", 1), pod("b", 1)]);
        index.hear(Event::Delete(pod("a", 3)));
        index.wrote(&pod("a", 2), at(0));
        index.hear(Event::Delete(pod("b", 4)));
        index.removed("job-uid", "uid-of-b", at(0));
        assert_eq!(names(&mut index, at(0)).unwrap(), [""; 0]);
    }

    #[test]
    fn a_watch_that_never_tells_is_not_waited_for_for_ever() {
        let mut index = listed(&[]);
        index.wrote(&pod("a", 5), at(0));
        assert_eq!(names(&mut index, at(29)), None);
        assert_eq!(names(&mut index, at(30)).unwrap(), [""; 0]);
    }

    #[test]
    fn what_a_new_list_does_not_name_is_gone_and_its_job_is_looked_at() {
        let mut index = listed(&[pod("a", 1), pod("b", 2)]);
        index.hear(Event::Init);
        index.hear(Event::InitApply(pod("b", 2)));
        assert_eq!(
            names(&mut index, at(0)).unwrap(),
            ["a", "b"],
            "the old view holds"
        );
        let touched = index.hear(Event::InitDone);
        assert_eq!(&*touched[0].name, "job");
        assert_eq!(names(&mut index, at(0)).unwrap(), ["b"]);
    }

    #[test]
    fn only_what_decisions_read_is_kept() {
        let mut index = listed(&[pod("a", 1)]);
        let kept = index.of("job-uid", at(0)).unwrap().remove(0);
        assert_eq!(kept.metadata.labels.unwrap().len(), 1);
        assert_eq!(kept.metadata.owner_references, None);
        let container = kept.spec.unwrap().containers.remove(0);
        assert_eq!((container.name.as_str(), container.image), ("main", None));
    }
}
