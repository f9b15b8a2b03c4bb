//! Pure: an IPUPartition as a page shows it.

use ipu_api::ipupartition::{DecidedBy, IPUPartition, IPUPartitionStatus};
use ipu_api::partition_conditions::READY;
use jiff::Timestamp;
use serde::Serialize;

use crate::condition::{ShownCondition, shown};
use crate::queue::{self, Position};

/// Characters of a digest that a page shows: `sha256:` and twelve digits.
const DIGEST: usize = 19;

/// An IPUPartition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionLine {
    /// Its name.
    pub name: String,
    /// Index of the partition among those of its owner.
    pub slot: u32,
    /// Its IPUs.
    pub ipus: u32,
    /// `status.phase`.
    pub phase: String,
    /// Since when it is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Its position in the queue, if it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<Position>,
    /// The V-IPU controller that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// Its id there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_id: Option<String>,
    /// The reason of each V-IPU controller, if it waits.
    pub waiting: Vec<ControllerReason>,
    /// The policy that chose the V-IPU controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// The last message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Its conditions, without those that say that nothing is wrong.
    pub conditions: Vec<ShownCondition>,
}

/// Reason why a V-IPU controller does not serve it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ControllerReason {
    /// `host:port`.
    pub controller: String,
    /// The reason.
    pub reason: String,
}

/// An IPUPartition. `order` contains the names of the waiting ones.
pub fn line(partition: &IPUPartition, order: &[&str]) -> PartitionLine {
    let empty = IPUPartitionStatus::default();
    let status = partition.status.as_ref().unwrap_or(&empty);
    let name = partition.metadata.name.as_deref().unwrap_or_default();
    let created = partition.metadata.creation_timestamp.as_ref();
    let ready = status.conditions.iter().find(|one| one.type_ == READY);
    let since = ready.map(|one| one.last_transition_time.0);
    let waiting = status.waiting.iter().map(|one| ControllerReason {
        controller: shown(&one.controller),
        reason: shown(&one.reason),
    });
    let waiting: Vec<_> = waiting.collect();
    let mut attempts = status.attempts.iter().rev();
    let decided_by = attempts.find_map(|one| one.decided_by.as_ref());
    PartitionLine {
        name: shown(name),
        slot: partition.spec.slot,
        ipus: partition.spec.ipus,
        phase: format!("{:?}", status.phase),
        since: since.or(created.map(|time| time.0)),
        queue: queue::position(order, name),
        controller: status.controller.as_ref().map(|one| shown(&one.name)),
        partition_id: status.partition_id.as_deref().map(shown),
        // Without a reason of a controller, the last message is the only information.
        message: status
            .message
            .as_deref()
            .filter(|_| waiting.is_empty())
            .map(shown),
        waiting,
        decided_by: decided_by.map(policy),
        conditions: conditions(status),
    }
}

fn conditions(status: &IPUPartitionStatus) -> Vec<ShownCondition> {
    let is_shown = |one: &ShownCondition| (one.type_ == READY) == (one.status == "False");
    let all = status.conditions.iter().map(ShownCondition::from);
    all.filter(is_shown).collect()
}

fn policy(decided_by: &DecidedBy) -> String {
    let name = shown(&decided_by.policy);
    match &decided_by.digest {
        Some(digest) => {
            let start: String = shown(digest).chars().take(DIGEST).collect();
            format!("policy {name} ({start})")
        }
        None => format!("policy {name}"),
    }
}
