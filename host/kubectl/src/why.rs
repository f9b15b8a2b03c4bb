//! Pure: from what was read to the page of an IPUJob or a Pod.

mod advise;
mod job;
mod pod;

use ipu_api::ipupartition::IPUPartition;
use k8s_openapi::api::core::v1::{Event, Pod};

pub use self::job::job;
pub use self::pod::pod;

use crate::access::Access;

/// What was read around an object.
#[derive(Clone, Debug)]
pub struct Around {
    /// The IPUPartitions of the cluster.
    pub partitions: Access<Partitions>,
    /// The Pods of the job.
    pub pods: Access<Vec<Pod>>,
    /// The warning events of the namespace.
    pub events: Access<Vec<Event>>,
}

/// The IPUPartitions of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Partitions {
    /// Those that can be read.
    pub readable: Vec<IPUPartition>,
    /// The number of the others.
    pub unreadable: usize,
}

impl Around {
    /// What the rights of the user do not show, and whom to ask for them.
    fn not_shown(&self) -> Vec<String> {
        let view = "an admin can bind the ClusterRole";
        let partitions = self.partitions.denied().map(|words| {
            format!(
                "the IPUPartitions, their reasons and the position in the queue: {words} ({view} ipu-operator-view with \
                 a ClusterRoleBinding)"
            )
        });
        let unreadable = self.partitions.allowed().map(|all| all.unreadable);
        let unreadable = unreadable.filter(|number| *number > 0).map(|number| {
            format!("{number} IPUPartitions that the plugin cannot read; positions in the queue may be wrong")
        });
        let pods = self.pods.denied();
        let pods = pods.map(|words| format!("the Pods: {words} ({view} view in the namespace)"));
        let events = self.events.denied();
        let events =
            events.map(|words| format!("the events: {words} ({view} view in the namespace)"));
        [partitions, unreadable, pods, events]
            .into_iter()
            .flatten()
            .collect()
    }
}

#[cfg(test)]
#[expect(
    clippy::needless_pass_by_value,
    reason = "objects of tests read best as literals where they are used"
)]
mod tests;
