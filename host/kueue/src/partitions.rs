//! Pure: what decisions read of the IPUPartitions of an IPUJob.

use ipu_api::ipupartition::IPUPartition;
use ipu_jobs::facts::partition::{PartitionState, state};
use jiff::Timestamp;

use crate::job::JobRef;

/// An IPUPartition of an IPUJob.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPartition {
    /// Its job.
    pub job: JobRef,
    /// Index of the job's instance.
    pub instance: u32,
    /// Its state.
    pub state: PartitionState,
    /// When it was requested.
    pub requested: Option<Timestamp>,
}

impl JobPartition {
    /// Reads an IPUPartition. `None`: it belongs to no IPUJob.
    pub fn of(object: &IPUPartition) -> Option<Self> {
        (object.spec.owner.kind == "IPUJob").then(|| Self::of_owner(object))
    }

    /// Reads an IPUPartition of any owner, which takes the place of the job.
    pub(crate) fn of_owner(object: &IPUPartition) -> Self {
        let owner = &object.spec.owner;
        let requested = object.metadata.creation_timestamp.as_ref();
        Self {
            job: JobRef {
                namespace: owner.namespace.as_str().into(),
                name: owner.name.as_str().into(),
                uid: owner.uid.as_str().into(),
            },
            instance: object.spec.slot,
            // The job itself compares the node selector.
            state: state(Some(object)),
            requested: requested.map(|time| time.0),
        }
    }
}
