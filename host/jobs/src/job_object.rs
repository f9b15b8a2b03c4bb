//! Pure: the objects of a job, as the caches know them.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use ipu_api::interned::Interned;
use ipu_api::uid::Uid;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest name of an object, in bytes.
const NAME_MAX: usize = 253;

/// Reference to an IPUJob.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobRef {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its namespace and UID ([`job_uid`]), which distinguish it from other jobs of the same name.
    pub uid: Uid,
}

/// Returns what identifies a job. A user of another namespace can create objects whose owner
/// reference has the UID of any job, so the UID alone does not.
pub fn job_uid(namespace: &str, uid: &str) -> Uid {
    Uid::of(&format!("{namespace}/{uid}"))
}

impl Display for JobRef {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// The references of all caches, each once: a job and its objects have the same.
#[derive(Debug, Default)]
pub struct JobRefs(Mutex<Interned<JobRef>>);

impl JobRefs {
    /// Returns the shared reference that is equal to this one.
    pub fn shared(&self, job: JobRef) -> Arc<JobRef> {
        let mut all = self.0.lock();
        let known = all.known(&job);
        known.unwrap_or_else(|| all.insert(Arc::new(job)))
    }
}

/// Name and UID of an object, in one allocation. No name contains a `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameAndUid(Box<str>);

impl NameAndUid {
    /// Returns name and UID of an object. `None` if it lacks one of them.
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        let (name, uid) = (metadata.name.as_deref()?, metadata.uid.as_deref()?);
        Some(Self(format!("{name}/{uid}").into()))
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.parts().0
    }

    /// Returns the UID.
    pub fn uid(&self) -> &str {
        self.parts().1
    }

    fn parts(&self) -> (&str, &str) {
        self.0
            .split_once('/')
            .expect("`of` has put it between them")
    }
}

/// A job, or an object that belongs to one.
pub trait JobObject: Resource<DynamicType = ()> + Serialize + DeserializeOwned {
    /// The form in which the cache stores an object.
    type Stored: Clone;

    /// The part of the stored objects that they share.
    type Shared: Default;

    /// Returns the job, from the owner reference: every user can set a label.
    fn job(&self) -> Option<JobRef>;

    /// Reduces an object to the fields that decisions read. Ten thousand jobs have tens of
    /// thousands of Pods, and most of a Pod is its spec. `before` is what the cache has of the
    /// object. `None` if the object has no name or no UID.
    fn store(
        self,
        shared: &mut Self::Shared,
        before: Option<&Self::Stored>,
    ) -> Option<Self::Stored>;
}

/// Returns the owning job of an object in the job's namespace.
pub fn owner(metadata: &ObjectMeta) -> Option<JobRef> {
    let mut owners = metadata.owner_references.iter().flatten();
    // The API server does not limit the length of the name in a reference, and the controller keeps
    // the name in memory.
    let is_job = |owner: &&OwnerReference| owner.kind == "IPUJob" && owner.name.len() <= NAME_MAX;
    let owner = owners.find(is_job)?;
    let namespace = metadata.namespace.as_deref()?;
    Some(JobRef {
        namespace: namespace.into(),
        name: owner.name.as_str().into(),
        uid: job_uid(namespace, &owner.uid),
    })
}
