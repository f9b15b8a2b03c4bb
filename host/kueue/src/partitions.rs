//! Pure: what decisions read of the IPUPartitions of an IPUJob.

use ipu_api::ipupartition::IPUPartition;
use ipu_api::object_ref::ObjectRef;
use ipu_jobs::facts::partition::{PartitionState, state};
use jiff::Timestamp;

/// An IPUPartition of an IPUJob.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPartition {
    /// Its job.
    pub job: ObjectRef,
    /// Index of the job's instance.
    pub instance: u32,
    /// Its state.
    pub state: PartitionState,
    /// Time of the request.
    pub requested: Option<Timestamp>,
}

impl JobPartition {
    /// Reads an IPUPartition. `None`: it belongs to no IPUJob.
    pub fn of(object: &IPUPartition) -> Option<Self> {
        object.spec.owner.is_job().then(|| Self::of_owner(object))
    }

    /// Reads an IPUPartition of any owner; the job in its fields is the owner.
    pub(crate) fn of_owner(object: &IPUPartition) -> Self {
        let requested = object.metadata.creation_timestamp.as_ref();
        Self {
            job: ObjectRef::of_owner(&object.spec.owner),
            instance: object.spec.slot,
            // The job itself compares the node selector.
            state: state(Some(object)),
            requested: requested.map(|time| time.0),
        }
    }
}
