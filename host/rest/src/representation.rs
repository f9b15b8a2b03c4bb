//! Pure: the representation of an IPUPartition over REST: that of the API server, without managed
//! fields.

use kube::api::DynamicObject;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use ipu_api::ipupartition::{IPUPartition, PartitionOwner};

/// An IPUPartition that is being released.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Given")]
pub(super) struct Released {
    /// The IPUPartition; `metadata.deletionTimestamp` is the time of the deletion.
    #[schemars(with = "IPUPartition")]
    pub partition: Value,
    /// Unexpected consequences of the deletion.
    pub warnings: Vec<String>,
}

/// The representation of an object.
pub(super) fn represent(mut object: DynamicObject) -> Value {
    object.metadata.managed_fields = None;
    serde_json::to_value(object).expect("what came as JSON goes as JSON")
}

/// The answer for an object that is being released. `living_owner` is an IPUJob that will request
/// it again.
pub(super) fn released(object: DynamicObject, living_owner: Option<&PartitionOwner>) -> Released {
    let warnings = living_owner.map(|owner| {
        format!(
            "its owner, the IPUJob {}/{}, still exists and requests a partition again; delete or \
             suspend the job to release the IPUs for good",
            owner.namespace, owner.name
        )
    });
    Released {
        partition: represent(object),
        warnings: warnings.into_iter().collect(),
    }
}
