//! Pure: which jobs' files and rights were found as they should be, so that they are not read again as
//! long as the watches tell of no change.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use ipu_api::uid::Uid;

use super::kept::JobRef;
use super::plan::{Applicable, File};

/// The version of each kind of file of one job.
pub type Versions = [u64; File::COUNT];

/// What was found of each job, and what the watches have told since.
#[derive(Debug, Default)]
pub struct Settled {
    jobs: HashMap<Uid, Entry>,
    /// By the namespace that is listed; that of all is empty.
    lists: [HashMap<Box<str>, List>; File::COUNT],
}

#[derive(Debug)]
struct Entry {
    job: Arc<JobRef>,
    /// Whether a look is under way of which nothing was missing so far.
    looking: bool,
    /// Fingerprint and versions of the objects as they were found.
    found: Option<(u64, Versions)>,
    /// The latest versions that the watches have told of.
    told: Versions,
}

/// The list of one kind in one namespace.
#[derive(Debug, Default)]
struct List {
    /// Whether a first one was complete. Nobody tells of changes before.
    complete: bool,
    /// Jobs that the list under way has named so far.
    named: Option<HashSet<Uid>>,
}

impl Settled {
    /// Whether a job's objects were found to be just so, and nobody has changed one since.
    pub fn holds(&self, job: Uid, objects: &[Applicable]) -> bool {
        let entry = self.jobs.get(&job);
        let found = entry.and_then(|entry| Some((entry, entry.found?)));
        found.is_some_and(|(entry, (found, versions))| {
            let mut versions = versions.iter().zip(entry.told);
            versions.all(|(found, told)| *found >= told)
                && self.are_listed(&entry.job.namespace)
                && found == fingerprint(objects)
        })
    }

    /// Notes that a job's objects are about to be looked at.
    pub fn look(&mut self, job: JobRef) {
        let entry = self.jobs.entry(job.uid).or_insert_with(|| Entry {
            job: job.into(),
            looking: true,
            found: None,
            told: Versions::default(),
        });
        entry.looking = true;
        entry.found = None;
    }

    /// Notes that a job's objects were found, or made, just so. Where one was removed since the look
    /// began, it may have been found before, and nothing is noted.
    pub fn found(&mut self, job: Uid, objects: &[Applicable], versions: Versions) {
        if let Some(entry) = self.jobs.get_mut(&job).filter(|entry| entry.looking) {
            entry.found = Some((fingerprint(objects), versions));
        }
    }

    /// A watch tells of a job's object as it is now. Answers whether it has to be looked at.
    pub fn told(&mut self, (file, of): (File, &str), job: Uid, version: u64) -> bool {
        let place = file.place();
        let list = self.lists[place].get_mut(of);
        if let Some(named) = list.and_then(|list| list.named.as_mut()) {
            named.insert(job);
        }
        let Some(entry) = self.jobs.get_mut(&job) else {
            return false;
        };
        entry.told[place] = entry.told[place].max(version);
        entry.found.is_none_or(|(_, found)| found[place] < version)
    }

    /// An object of a job was removed. Answers whether the job has to be looked at.
    pub fn removed(&mut self, job: Uid) -> bool {
        let Some(entry) = self.jobs.get_mut(&job) else {
            return false;
        };
        (entry.looking, entry.found) = (false, None);
        true
    }

    /// The list of one kind in one namespace, or in all of them, begins, at first or anew.
    pub fn begin_list(&mut self, file: File, of: &str) {
        let list = self.lists[file.place()].entry(of.into()).or_default();
        list.named = Some(HashSet::new());
    }

    /// The list of one kind is complete: what it did not name was removed. Answers the jobs that have to
    /// be looked at.
    pub fn end_list(&mut self, file: File, of: &str) -> Vec<Arc<JobRef>> {
        let list = self.lists[file.place()].entry(of.into()).or_default();
        list.complete = true;
        let named = list.named.take().unwrap_or_default();
        let mut removed = Vec::new();
        for (job, entry) in &mut self.jobs {
            // One that was made while the list was under way is not in it: then it is looked at once more.
            let is_listed = of.is_empty() || *entry.job.namespace == *of;
            if is_listed && entry.found.is_some() && !named.contains(job) {
                (entry.looking, entry.found) = (false, None);
                removed.push(Arc::clone(&entry.job));
            }
        }
        removed
    }

    /// Whether all kinds were listed in this namespace: otherwise nobody tells of changes there.
    fn are_listed(&self, namespace: &str) -> bool {
        self.lists.iter().all(|lists| {
            let list = lists.get(namespace).or_else(|| lists.get(""));
            list.is_some_and(|list| list.complete)
        })
    }

    /// Whether anything is known of a job.
    pub(super) fn knows(&self, job: Uid) -> bool {
        self.jobs.contains_key(&job)
    }

    /// Forgets a job that is gone.
    pub fn forget(&mut self, job: Uid) {
        self.jobs.remove(&job);
    }
}

/// The objects name their owner's UID: those of a job that was made again are others.
fn fingerprint(objects: &[Applicable]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let text = serde_json::to_string(objects).expect("a plan can be written as JSON");
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ServiceAccount;
    use kube::api::ObjectMeta;

    use super::*;

    const FILES: [File; File::COUNT] = [File::ServiceAccount, File::Role, File::RoleBinding];

    fn account(name: &str) -> [Applicable; 1] {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        };
        let account = ServiceAccount {
            metadata,
            ..ServiceAccount::default()
        };
        [Applicable::ServiceAccount(account)]
    }

    fn job() -> JobRef {
        JobRef {
            namespace: "n".into(),
            name: "a".into(),
            uid: Uid::of("a"),
        }
    }

    /// All kinds are listed, and the files of a job were found at these versions.
    fn found(versions: Versions) -> Settled {
        let mut settled = Settled::default();
        for file in FILES {
            settled.begin_list(file, "");
            settled.end_list(file, "");
        }
        settled.look(job());
        settled.found(job().uid, &account("x"), versions);
        settled
    }

    #[test]
    fn what_was_found_holds_for_the_same_objects_of_the_same_job() {
        let mut settled = found([5; 3]);
        let uid = job().uid;
        assert!(settled.holds(uid, &account("x")));
        assert!(!settled.holds(uid, &account("y")));
        assert!(!settled.holds(Uid::of("b"), &account("x")));
        settled.forget(uid);
        assert!(!settled.holds(uid, &account("x")));
    }

    #[test]
    fn it_holds_until_a_watch_tells_of_a_later_version() {
        let mut settled = found([5; 3]);
        let uid = job().uid;
        for version in [3, 5] {
            assert!(
                !settled.told((File::Role, ""), uid, version),
                "our own write"
            );
        }
        assert!(settled.holds(uid, &account("x")));
        assert!(settled.told((File::Role, ""), uid, 6), "somebody edits it");
        assert!(!settled.holds(uid, &account("x")));
        settled.look(job());
        settled.found(uid, &account("x"), [5, 6, 5]);
        assert!(settled.holds(uid, &account("x")));
    }

    #[test]
    fn an_edit_or_a_removal_during_a_look_is_looked_at_again() {
        let mut settled = found([5; 3]);
        let uid = job().uid;
        settled.look(job());
        assert!(settled.told((File::ServiceAccount, ""), uid, 7));
        settled.found(uid, &account("x"), [6; 3]);
        assert!(!settled.holds(uid, &account("x")));
        settled.look(job());
        assert!(settled.removed(uid));
        settled.found(uid, &account("x"), [8; 3]);
        assert!(!settled.holds(uid, &account("x")));
        assert!(!settled.removed(Uid::of("b")), "nobody's");
    }

    #[test]
    fn what_a_new_list_does_not_name_is_looked_at() {
        let mut settled = found([5; 3]);
        settled.begin_list(File::Role, "");
        assert!(settled.holds(job().uid, &account("x")));
        assert_eq!(settled.end_list(File::Role, ""), [Arc::new(job())]);
        assert!(!settled.holds(job().uid, &account("x")));
        let mut settled = found([5; 3]);
        settled.begin_list(File::Role, "");
        settled.told((File::Role, ""), job().uid, 5);
        assert_eq!(settled.end_list(File::Role, ""), []);
        assert!(settled.holds(job().uid, &account("x")));
    }

    #[test]
    fn a_list_of_one_namespace_says_nothing_of_the_others() {
        let (mut settled, uid) = (Settled::default(), job().uid);
        settled.look(job());
        settled.found(uid, &account("x"), [5; 3]);
        for file in FILES {
            for namespace in ["n", "o"] {
                settled.begin_list(file, namespace);
            }
            assert!(!settled.holds(uid, &account("x")), "{file:?}");
            settled.told((file, "n"), uid, 5);
            assert_eq!(settled.end_list(file, "n"), []);
        }
        assert!(settled.holds(uid, &account("x")), "its namespace is listed");
        for file in FILES {
            assert_eq!(settled.end_list(file, "o"), []);
        }
        assert!(settled.holds(uid, &account("x")));
        settled.begin_list(File::Role, "n");
        assert_eq!(settled.end_list(File::Role, "n"), [Arc::new(job())]);
    }

    #[test]
    fn nothing_holds_where_nobody_would_tell_of_a_change() {
        let mut settled = Settled::default();
        settled.look(job());
        settled.found(job().uid, &account("x"), [5; 3]);
        for file in FILES {
            assert!(!settled.holds(job().uid, &account("x")), "{file:?}");
            settled.begin_list(file, "");
            settled.told((file, ""), job().uid, 5);
            settled.end_list(file, "");
        }
        assert!(settled.holds(job().uid, &account("x")));
    }
}
