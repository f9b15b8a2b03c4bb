//! Pure: computes the views of the page from the state of the cluster, as JSON. The order of all rows is stable: it
//! depends only on names and on the queue.

mod block;
mod changes;
mod controllers;
mod detail;
mod goodput;
mod history;
mod map;
mod paging;
mod partitions;
mod policies;
mod state;
mod waiting;

pub use self::block::Block;
pub use self::changes::{Changes, View};
pub use self::controllers::{ControllerRow, controllers};
pub use self::detail::{Around, Detail, JobDetail, Line, OwnerDetail, PodDetail, Pods, detail};
pub use self::goodput::{Goodput, NamespaceRow, goodput};
pub use self::history::{History, Hour, history};
pub use self::paging::{Listed, Page};
pub use self::partitions::{PartitionRow, partitions};
pub use self::policies::policies;
pub use self::state::State;
pub use self::waiting::{Fit, Queue, QueueRow, queue};

use crate::cluster::Cluster;
use crate::projection::Partition;
use ipu_api::ipujob_status::JobState;

/// State of the IPUJob that owns a partition, if the user may read it.
fn job_state(cluster: &Cluster, partition: &Partition) -> Option<JobState> {
    let owner = &partition.owner;
    if owner.kind != "IPUJob" {
        return None;
    }
    let job = cluster
        .jobs
        .get(&format!("{}/{}", owner.namespace, owner.name))?;
    (job.uid == owner.uid).then_some(job.state)
}

#[cfg(test)]
mod fixture;
