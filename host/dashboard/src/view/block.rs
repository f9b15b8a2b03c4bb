//! Pure: a part of the IPUs of a V-IPU controller, as the map shows it.

use jiff::Timestamp;
use serde::Serialize;

use super::state::State;

/// IPUs of one state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Block {
    /// Their state.
    pub state: State,
    /// Their number.
    pub ipus: u32,
    /// Place of the first of them, which the others follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<u32>,
    /// The IPUPartition that has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Namespace of its owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of its owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Creation time of the IPUPartition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
}

impl Block {
    /// IPUs in no partition of the operator.
    pub(super) fn anonymous(state: State, ipus: u32, first: Option<u32>) -> Self {
        Self {
            state,
            ipus,
            first,
            partition: None,
            namespace: None,
            owner: None,
            created: None,
        }
    }
}
