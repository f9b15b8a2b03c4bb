//! The simulated API server: IPUPartition objects with versions, and a log of changes for watches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use ipu_api::ipupartition::{
    Attempt, AttemptOutcome, IPUPartition, IPUPartitionStatus, PartitionPhase,
};
use ipu_api::labels;

/// Name of an IPUPartition: which job and which slot of it.
pub(crate) type Key = usize;

/// Slots that a job can have.
pub(super) const SLOTS: usize = 3;

/// The job that the object of this name belongs to.
pub(super) fn job_of(key: Key) -> usize {
    key / SLOTS
}

/// The name of the object for one slot of a job.
pub(super) fn key_of(job: usize, slot: usize) -> Key {
    job * SLOTS + slot
}

/// One version of an object.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub version: u64,
    pub object: Arc<IPUPartition>,
}

/// A change, as watches deliver it.
#[derive(Debug)]
pub(super) struct Change {
    pub key: Key,
    /// `None` where the object is deleted.
    pub now: Option<Stored>,
    /// The last version of a deleted object.
    pub last: Option<Stored>,
}

/// The write is refused: the object is not at the version that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conflict;

/// All objects as they are now.
#[derive(Debug, Default)]
pub(super) struct ApiServer {
    objects: BTreeMap<Key, Stored>,
    /// Objects that were deleted, to be restored from a backup.
    moved: BTreeMap<Key, Arc<IPUPartition>>,
    /// Names of objects that were deleted so once. A sweep that finds a partition without its
    /// object at two times, and whose watch has not shown the object in between, treats them as one
    /// long absence.
    ever_moved: BTreeSet<Key>,
    log: Vec<Change>,
    version: u64,
    uids: u64,
}

impl ApiServer {
    pub(super) fn get(&self, key: Key) -> Option<&Stored> {
        self.objects.get(&key)
    }

    /// Every object and its name.
    pub(super) fn list(&self) -> impl Iterator<Item = (Key, &Stored)> + Clone {
        self.objects.iter().map(|(key, stored)| (*key, stored))
    }

    /// The objects that are deleted for a time.
    pub(super) fn moved(&self) -> impl Iterator<Item = &IPUPartition> {
        self.moved.values().map(Arc::as_ref)
    }

    pub(super) fn is_moved(&self, key: Key) -> bool {
        self.moved.contains_key(&key)
    }

    /// All changes so far.
    pub(super) fn log(&self) -> &[Change] {
        &self.log
    }

    /// Creates an object; the caller has checked that the name is free.
    pub(super) fn create(&mut self, key: Key, mut object: IPUPartition, now: Time) {
        assert!(!self.objects.contains_key(&key), "the name is free");
        self.uids += 1;
        object.metadata.uid = Some(format!("uid-{}", self.uids));
        object.metadata.creation_timestamp = Some(now);
        self.store(key, Arc::new(object));
    }

    /// Changes an object that was read just now.
    pub(super) fn update(&mut self, key: Key, change: impl FnOnce(&mut IPUPartition)) {
        let Some(stored) = self.objects.get(&key) else {
            return;
        };
        let mut object = IPUPartition::clone(&stored.object);
        change(&mut object);
        let is_gone =
            object.metadata.deletion_timestamp.is_some() && !is_held_by_finalizer(&object);
        if is_gone {
            self.take_out(key);
        } else {
            self.store(key, Arc::new(object));
        }
    }

    /// Changes an object if it is still at the version that was read.
    pub(super) fn replace(
        &mut self,
        key: Key,
        version: u64,
        change: impl FnOnce(&mut IPUPartition),
    ) -> Result<Option<Stored>, Conflict> {
        let stored = self.objects.get(&key).ok_or(Conflict)?;
        if stored.version != version {
            return Err(Conflict);
        }
        self.update(key, change);
        Ok(self.objects.get(&key).cloned())
    }

    /// Requests an object's deletion: it remains as long as it has a finalizer.
    pub(super) fn delete(&mut self, key: Key, now: Time) {
        self.update(key, |object| {
            object.metadata.deletion_timestamp.get_or_insert(now);
        });
    }

    /// Deletes an object without its finalizer, until it is restored; once for each name.
    pub(super) fn move_out(&mut self, key: Key) {
        if !self.ever_moved.insert(key) {
            return;
        }
        if let Some(stored) = self.take_out(key) {
            self.moved.insert(key, stored.object);
        }
    }

    /// Restores an object as it was.
    pub(super) fn move_back(&mut self, key: Key) {
        if let Some(object) = self.moved.remove(&key) {
            self.store(key, object);
        }
    }

    /// All objects, unless some are deleted for a time.
    pub(super) fn back_up(&self) -> Option<BTreeMap<Key, Arc<IPUPartition>>> {
        let objects = self.objects.iter();
        let objects = objects.map(|(key, stored)| (*key, Arc::clone(&stored.object)));
        self.moved.is_empty().then(|| objects.collect())
    }

    /// Restores all objects from a backup. Versions are not set back, as with
    /// `etcdutl snapshot restore --bump-revision`.
    pub(super) fn restore(&mut self, objects: BTreeMap<Key, Arc<IPUPartition>>) {
        self.moved.clear();
        let made_since = self.objects.keys().filter(|key| !objects.contains_key(key));
        for key in made_since.copied().collect::<Vec<_>>() {
            self.take_out(key);
        }
        for (key, object) in objects {
            self.store(key, object);
        }
    }

    fn take_out(&mut self, key: Key) -> Option<Stored> {
        let gone = self.objects.remove(&key);
        self.version += 1;
        self.log.push(Change {
            key,
            now: None,
            last: gone.clone(),
        });
        gone
    }

    fn store(&mut self, key: Key, object: Arc<IPUPartition>) {
        self.version += 1;
        let stored = Stored {
            version: self.version,
            object,
        };
        self.objects.insert(key, stored.clone());
        let (now, last) = (Some(stored), None);
        self.log.push(Change { key, now, last });
    }
}

/// Whether our finalizer is on the object.
pub(crate) fn is_held_by_finalizer(object: &IPUPartition) -> bool {
    let mut finalizers = object.metadata.finalizers.iter().flatten();
    finalizers.any(|name| name == labels::PARTITION_FINALIZER)
}

pub(crate) fn is_deleted(object: &IPUPartition) -> bool {
    object.metadata.deletion_timestamp.is_some()
}

pub(crate) fn phase(object: &IPUPartition) -> PartitionPhase {
    let status: Option<&IPUPartitionStatus> = object.status.as_ref();
    status.map_or(PartitionPhase::default(), |status| status.phase)
}

/// The id that new Pods may use now.
pub(crate) fn offered(object: &IPUPartition) -> Option<&str> {
    let is_offered = !is_deleted(object) && phase(object) == PartitionPhase::Ready;
    let id = object.status.as_ref()?.partition_id.as_deref();
    id.filter(|_| is_offered)
}

/// Whether the object has lost its partition, and retains it since Pods still use it.
pub(super) fn is_lost_in_use(object: &IPUPartition) -> bool {
    let status = object.status.as_ref();
    status.is_some_and(|status| {
        let is_held = |one: &Attempt| one.outcome == AttemptOutcome::Created;
        status.partition_id.is_none() && status.attempts.iter().any(is_held)
    })
}
