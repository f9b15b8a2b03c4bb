//! IPU-seconds by use: each is in exactly one state, so that the states add up to capacity times
//! time.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// IPU-seconds of one V-IPU controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Accounting {
    /// Start of the time that is counted.
    pub since: Time,
    /// End of the time that is counted. The time after it is counted with the next update.
    pub until: Time,
    /// All time since `since`.
    pub total: Period,
    /// The last hours, 25 at most, oldest first. Each begins with a full hour (UTC).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hours: Vec<Period>,
    /// The last days, 32 at most, oldest first. Each begins at midnight (UTC).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<Period>,
}

/// IPU-seconds of one period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Period {
    /// Start of the period.
    pub start: Time,
    /// IPU-seconds of IPUs in no partition of the operator.
    pub unallocated: Unallocated,
    /// IPU-seconds of the operator's partitions by namespace of the owner, largest first.
    /// Namespaces after the first 32 that used IPUs count under the name "".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<NamespaceUse>,
}

/// IPU-seconds of IPUs in no partition of the operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Unallocated {
    /// Free, in blocks that are large enough for a waiting request; all free ones if no request
    /// waits.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub free: f64,
    /// Free, in blocks that are too small for every waiting request.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stranded: f64,
    /// Of an unreachable controller, or in partitions that are in error.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unhealthy: f64,
    /// In partitions that the operator has not created.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub others: f64,
    /// Not observed by the operator.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknown: f64,
}

/// IPU-seconds of the partitions of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceUse {
    /// Name of the namespace.
    pub namespace: String,
    /// Its IPU-seconds.
    #[serde(flatten)]
    pub seconds: AllocatedSeconds,
}

/// IPU-seconds in partitions, by state of the partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllocatedSeconds {
    /// The V-IPU controller is creating the partition.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub forming: f64,
    /// The partition is ready, and no Pod of its owner has been ready yet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waiting_pods: f64,
    /// A Pod of its owner is ready. Whether the IPUs compute is not measured.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub running: f64,
    /// The partition is being reset.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resetting: f64,
    /// The partition is ready, and none of the Pods of its owner is ready any more.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub idle_allocated: f64,
    /// The partition is being removed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub releasing: f64,
}

/// Most states of most periods are zero, and an object has hundreds of them.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(seconds: &f64) -> bool {
    *seconds == 0.0
}

impl AllocatedSeconds {
    /// The sum of all states.
    pub fn total(&self) -> f64 {
        self.forming
            + self.waiting_pods
            + self.running
            + self.resetting
            + self.idle_allocated
            + self.releasing
    }

    /// Adds the seconds of another.
    pub fn add(&mut self, other: &Self) {
        self.forming += other.forming;
        self.waiting_pods += other.waiting_pods;
        self.running += other.running;
        self.resetting += other.resetting;
        self.idle_allocated += other.idle_allocated;
        self.releasing += other.releasing;
    }
}

impl Unallocated {
    /// The sum of all states.
    pub fn total(&self) -> f64 {
        self.free + self.stranded + self.unhealthy + self.others + self.unknown
    }

    /// Adds the seconds of another.
    pub fn add(&mut self, other: &Self) {
        self.free += other.free;
        self.stranded += other.stranded;
        self.unhealthy += other.unhealthy;
        self.others += other.others;
        self.unknown += other.unknown;
    }
}
