//! Pure: how an IPUPartition is shown over REST: as the API server has it, without its bookkeeping.

use kube::api::DynamicObject;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use ipu_api::ipupartition::{IPUPartition, PartitionOwner};

/// An IPUPartition that is being released.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Given")]
pub(super) struct Released {
    /// The IPUPartition; `metadata.deletionTimestamp` says since when it is going.
    #[schemars(with = "IPUPartition")]
    pub partition: Value,
    /// What whoever deleted it may not have meant.
    pub warnings: Vec<String>,
}

/// The object as it is shown.
pub(super) fn represent(mut object: DynamicObject) -> Value {
    object.metadata.managed_fields = None;
    serde_json::to_value(object).expect("what came as JSON goes as JSON")
}

/// The object that is being released, where `living_owner` is an IPUJob that still wants it.
pub(super) fn released(object: DynamicObject, living_owner: Option<&PartitionOwner>) -> Released {
    let warnings = living_owner.map(|owner| {
        format!(
            "its owner, the IPUJob {}/{}, still lives and asks for a partition again; delete or \
             suspend the job to give the IPUs back for good",
            owner.namespace, owner.name
        )
    });
    Released {
        partition: represent(object),
        warnings: warnings.into_iter().collect(),
    }
}
