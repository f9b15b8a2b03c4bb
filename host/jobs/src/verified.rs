//! Pure: the jobs whose ServiceAccount, Role and RoleBinding are verified. They are not read again
//! until a watch reports a change.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use ipu_api::uid::Uid;

use super::job_object::JobRef;
use super::plan::{Applicable, DependentKind};

/// The version of each dependent object of one job. It is 0 for an object that the job does not
/// have.
pub type Versions = [u64; DependentKind::COUNT];

/// The verified objects of each job, and the versions that the watches have reported since.
#[derive(Debug, Default)]
pub struct Verified {
    jobs: HashMap<Uid, Entry>,
    /// By listed namespace; the empty name means all namespaces.
    lists: [HashMap<Box<str>, List>; DependentKind::COUNT],
}

#[derive(Debug)]
struct Entry {
    job: Arc<JobRef>,
    /// Whether a verification is in progress and nothing was deleted since it began.
    in_progress: bool,
    /// Fingerprint and version of each verified object.
    verified: [Option<(u64, u64)>; DependentKind::COUNT],
    /// The latest versions that the watches have reported.
    latest: Versions,
}

impl Entry {
    fn of(job: Arc<JobRef>) -> Self {
        Self {
            job,
            in_progress: false,
            verified: [None; DependentKind::COUNT],
            latest: Versions::default(),
        }
    }

    fn is_fresh(&self, object: &Applicable) -> bool {
        let kind = object.kind().index();
        self.verified[kind].is_some_and(|(verified, version)| {
            version >= self.latest[kind] && verified == fingerprint(object)
        })
    }

    fn invalidate(&mut self) {
        (self.in_progress, self.verified) = (false, [None; DependentKind::COUNT]);
    }
}

/// The list of one kind in one namespace.
#[derive(Debug, Default)]
struct List {
    /// Whether a first list is complete. The watch reports no changes before.
    complete: bool,
    /// Jobs that the list in progress contains so far.
    listed: Option<HashSet<Uid>>,
}

impl Verified {
    /// Returns those of a job's objects that are not verified, or have changed since.
    pub fn stale<'a>(
        &self,
        job: Uid,
        objects: impl IntoIterator<Item = &'a Applicable>,
    ) -> Vec<Applicable> {
        let entry = self.jobs.get(&job);
        let entry = entry.filter(|entry| self.are_listed(&entry.job.namespace));
        let is_fresh = |object: &&Applicable| entry.is_some_and(|entry| entry.is_fresh(object));
        let stale = objects.into_iter().filter(|object| !is_fresh(object));
        stale.cloned().collect()
    }

    /// Returns whether a write or a watch has reported the job's object of this kind. `None` for an
    /// unknown job.
    pub fn exists(&self, job: Uid, kind: DependentKind) -> Option<bool> {
        let entry = self.jobs.get(&job)?;
        let kind = kind.index();
        Some(entry.verified[kind].is_some() || entry.latest[kind] > 0)
    }

    /// Begins the verification of some of a job's objects.
    pub fn begin(&mut self, job: Arc<JobRef>) {
        let entry = self.jobs.entry(job.uid);
        entry.or_insert_with(|| Entry::of(job)).in_progress = true;
    }

    /// Records that a job's objects were read, or written, as planned. Does nothing if one was
    /// deleted since the verification began: the deletion may be later than the read.
    pub fn record(&mut self, job: Uid, objects: &[Applicable], versions: Versions) {
        if let Some(entry) = self.jobs.get_mut(&job).filter(|entry| entry.in_progress) {
            for object in objects {
                let kind = object.kind().index();
                entry.verified[kind] = Some((fingerprint(object), versions[kind]));
            }
        }
    }

    /// Applies the version of a job's object that a watch reports. Returns whether the job needs a
    /// reconcile. A process that has just started learns in this way which jobs have rights.
    pub fn observe(
        &mut self,
        (kind, namespace): (DependentKind, &str),
        job: Arc<JobRef>,
        version: u64,
    ) -> bool {
        let list = self.lists[kind.index()].get_mut(namespace);
        if let Some(listed) = list.and_then(|list| list.listed.as_mut()) {
            listed.insert(job.uid);
        }
        let entry = self.jobs.entry(job.uid);
        let entry = entry.or_insert_with(|| Entry::of(job));
        let latest = &mut entry.latest[kind.index()];
        *latest = version.max(*latest);
        let verified = entry.verified[kind.index()];
        verified.is_none_or(|(_, verified)| verified < version)
    }

    /// Applies the deletion of a job's object. Returns whether the job needs a reconcile.
    pub fn invalidate(&mut self, job: Uid, kind: DependentKind) -> bool {
        let Some(entry) = self.jobs.get_mut(&job) else {
            return false;
        };
        entry.invalidate();
        entry.latest[kind.index()] = 0;
        true
    }

    /// Begins a list of one kind, in one namespace or in all.
    pub fn begin_list(&mut self, kind: DependentKind, namespace: &str) {
        let list = self.lists[kind.index()]
            .entry(namespace.into())
            .or_default();
        list.listed = Some(HashSet::new());
    }

    /// Completes a list of one kind: objects that it does not contain were deleted. Returns the
    /// jobs to reconcile.
    pub fn end_list(&mut self, kind: DependentKind, namespace: &str) -> Vec<Arc<JobRef>> {
        let list = self.lists[kind.index()]
            .entry(namespace.into())
            .or_default();
        list.complete = true;
        let listed = list.listed.take().unwrap_or_default();
        let mut deleted = Vec::new();
        for (job, entry) in &mut self.jobs {
            // The list does not contain an object that was created meanwhile: then the job is
            // verified once more.
            let is_listed = namespace.is_empty() || *entry.job.namespace == *namespace;
            let exists = entry.verified[kind.index()].is_some_and(|(_, version)| version > 0);
            if is_listed && exists && !listed.contains(job) {
                entry.invalidate();
                deleted.push(Arc::clone(&entry.job));
            }
        }
        deleted
    }

    /// Whether all kinds are listed in this namespace. Otherwise the watches report no changes
    /// there.
    fn are_listed(&self, namespace: &str) -> bool {
        self.lists.iter().all(|lists| {
            let list = lists.get(namespace).or_else(|| lists.get(""));
            list.is_some_and(|list| list.complete)
        })
    }

    /// Whether there is any state of a job.
    #[cfg(test)]
    pub(super) fn contains(&self, job: Uid) -> bool {
        self.jobs.contains_key(&job)
    }

    /// Forgets a deleted job.
    pub fn forget(&mut self, job: Uid) {
        self.jobs.remove(&job);
    }
}

/// Returns a hash of an object. It contains its owner's UID, so the hash differs for a job that was
/// recreated.
fn fingerprint(object: &Applicable) -> u64 {
    let mut hasher = DefaultHasher::new();
    let text = serde_json::to_string(object).expect("a plan can be encoded as JSON");
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ServiceAccount;
    use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
    use kube::api::ObjectMeta;

    use super::*;

    /// An object of each kind.
    fn objects(name: &str) -> [Applicable; DependentKind::COUNT] {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        };
        let account = ServiceAccount {
            metadata,
            ..ServiceAccount::default()
        };
        [
            Applicable::ServiceAccount(account),
            Applicable::Role(Role::default()),
            Applicable::RoleBinding(RoleBinding::default()),
        ]
    }

    impl Verified {
        fn is_fresh(&self, job: Uid, objects: &[Applicable]) -> bool {
            self.stale(job, objects).is_empty()
        }
    }

    fn job() -> Arc<JobRef> {
        Arc::new(JobRef {
            namespace: "n".into(),
            name: "a".into(),
            uid: Uid::of("a"),
        })
    }

    /// All kinds are listed, and the objects of a job are verified at these versions.
    fn verified_at(versions: Versions) -> Verified {
        let mut verified = Verified::default();
        for kind in DependentKind::ALL {
            verified.begin_list(kind, "");
            verified.end_list(kind, "");
        }
        verified.begin(job());
        verified.record(job().uid, &objects("x"), versions);
        verified
    }

    #[test]
    fn only_the_same_objects_of_the_same_job_are_fresh() {
        let mut verified = verified_at([5; 3]);
        let uid = job().uid;
        assert!(verified.is_fresh(uid, &objects("x")));
        assert!(!verified.is_fresh(uid, &objects("y")));
        assert!(!verified.is_fresh(Uid::of("b"), &objects("x")));
        verified.forget(uid);
        assert!(!verified.is_fresh(uid, &objects("x")));
    }

    #[test]
    fn objects_are_fresh_until_a_watch_reports_a_later_version() {
        let mut verified = verified_at([5; 3]);
        let uid = job().uid;
        for version in [3, 5] {
            assert!(
                !verified.observe((DependentKind::Role, ""), job(), version),
                "the operator's own write"
            );
        }
        assert!(verified.is_fresh(uid, &objects("x")));
        assert!(
            verified.observe((DependentKind::Role, ""), job(), 6),
            "a user's edit"
        );
        assert!(!verified.is_fresh(uid, &objects("x")));
        verified.begin(job());
        verified.record(uid, &objects("x"), [5, 6, 5]);
        assert!(verified.is_fresh(uid, &objects("x")));
    }

    #[test]
    fn an_edit_or_a_deletion_during_a_verification_invalidates_it() {
        let mut verified = verified_at([5; 3]);
        let uid = job().uid;
        verified.begin(job());
        assert!(verified.observe((DependentKind::ServiceAccount, ""), job(), 7));
        verified.record(uid, &objects("x"), [6; 3]);
        assert!(!verified.is_fresh(uid, &objects("x")));
        verified.begin(job());
        assert!(verified.invalidate(uid, DependentKind::Role));
        verified.record(uid, &objects("x"), [8; 3]);
        assert!(!verified.is_fresh(uid, &objects("x")));
        assert!(
            !verified.invalidate(Uid::of("b"), DependentKind::Role),
            "an unknown job"
        );
    }

    #[test]
    fn a_job_that_a_new_list_does_not_contain_is_invalidated() {
        let mut verified = verified_at([5; 3]);
        verified.begin_list(DependentKind::Role, "");
        assert!(verified.is_fresh(job().uid, &objects("x")));
        assert_eq!(verified.end_list(DependentKind::Role, ""), [job()]);
        assert!(!verified.is_fresh(job().uid, &objects("x")));
        let mut verified = verified_at([5; 3]);
        verified.begin_list(DependentKind::Role, "");
        verified.observe((DependentKind::Role, ""), job(), 5);
        assert_eq!(verified.end_list(DependentKind::Role, ""), []);
        assert!(verified.is_fresh(job().uid, &objects("x")));
    }

    #[test]
    fn an_object_that_the_job_does_not_have_is_missing_in_no_list() {
        let mut verified = verified_at([0, 5, 5]);
        verified.begin_list(DependentKind::ServiceAccount, "");
        assert_eq!(verified.end_list(DependentKind::ServiceAccount, ""), []);
        assert!(verified.is_fresh(job().uid, &objects("x")));
    }

    #[test]
    fn each_object_is_verified_on_its_own() {
        let mut verified = Verified::default();
        for kind in DependentKind::ALL {
            verified.end_list(kind, "");
        }
        let (uid, all) = (job().uid, objects("x"));
        verified.begin(job());
        verified.record(uid, &all[..1], [5, 0, 0]);
        assert_eq!(verified.stale(uid, &all), all[1..]);
        assert_eq!(verified.exists(uid, DependentKind::Role), Some(false));
        verified.begin(job());
        verified.record(uid, &all[1..], [0, 6, 7]);
        assert!(verified.is_fresh(uid, &all));
        assert_eq!(verified.exists(uid, DependentKind::Role), Some(true));
        assert!(verified.invalidate(uid, DependentKind::Role));
        assert_eq!(verified.exists(uid, DependentKind::Role), Some(false));
    }

    #[test]
    fn a_process_that_has_just_started_learns_what_exists() {
        let mut verified = Verified::default();
        assert_eq!(verified.exists(job().uid, DependentKind::Role), None);
        assert!(verified.observe((DependentKind::Role, ""), job(), 3));
        let exists = DependentKind::ALL.map(|kind| verified.exists(job().uid, kind));
        assert_eq!(exists, [Some(false), Some(true), Some(false)]);
    }

    #[test]
    fn a_list_of_one_namespace_does_not_affect_the_others() {
        let (mut verified, uid) = (Verified::default(), job().uid);
        verified.begin(job());
        verified.record(uid, &objects("x"), [5; 3]);
        for kind in DependentKind::ALL {
            for namespace in ["n", "o"] {
                verified.begin_list(kind, namespace);
            }
            assert!(!verified.is_fresh(uid, &objects("x")), "{kind:?}");
            verified.observe((kind, "n"), job(), 5);
            assert_eq!(verified.end_list(kind, "n"), []);
        }
        assert!(
            verified.is_fresh(uid, &objects("x")),
            "its namespace is listed"
        );
        for kind in DependentKind::ALL {
            assert_eq!(verified.end_list(kind, "o"), []);
        }
        assert!(verified.is_fresh(uid, &objects("x")));
        verified.begin_list(DependentKind::Role, "n");
        assert_eq!(verified.end_list(DependentKind::Role, "n"), [job()]);
    }

    #[test]
    fn nothing_is_fresh_before_all_kinds_are_listed() {
        let mut verified = Verified::default();
        verified.begin(job());
        verified.record(job().uid, &objects("x"), [5; 3]);
        for kind in DependentKind::ALL {
            assert!(!verified.is_fresh(job().uid, &objects("x")), "{kind:?}");
            verified.begin_list(kind, "");
            verified.observe((kind, ""), job(), 5);
            verified.end_list(kind, "");
        }
        assert!(verified.is_fresh(job().uid, &objects("x")));
    }
}
