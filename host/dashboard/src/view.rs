//! Pure: computes the views of the page from the state of the cluster, as JSON. The order of all
//! rows is stable: it depends only on names and on the queue.

mod attention;
mod block;
mod changes;
mod controllers;
mod detail;
mod goodput;
mod history;
mod job;
mod lanes;
mod map;
mod overview;
mod paging;
mod partitions;
mod policies;
mod reservations;
mod stages;
mod state;
mod waiting;

pub use self::attention::{Problem, Severity, Subject, sample};
pub use self::block::Block;
pub use self::changes::{Changes, View};
pub use self::controllers::{ControllerRow, Order, controllers, controllers_in};
pub use self::detail::{Around, Detail, JobDetail, Line, OwnerDetail, PodDetail, Pods, detail};
pub use self::goodput::{Goodput, NamespaceRow, goodput};
pub use self::history::{History, Hour, history};
pub use self::job::{JobObjects, JobPage, job};
pub use self::lanes::{Lane, Mark, Span};
pub use self::overview::{Overview, overview};
pub use self::paging::{Listed, Page};
pub use self::partitions::{PartitionRow, partitions};
pub use self::policies::policies;
pub use self::reservations::Reservation;
pub use self::stages::{Stage, Stages, Total};
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
