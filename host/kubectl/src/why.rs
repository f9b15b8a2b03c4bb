//! Pure: from what was read to the page of an IPUJob or a Pod.

mod advise;
mod job;
mod pod;

use std::collections::BTreeMap;

use ipu_api::ipupartition::IPUPartition;
use ipu_api::vipu_controller::VIPUController;
use ipu_dashboard::view::JobObjects;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};

pub use self::job::{has_ended as has_job_ended, job};
pub use self::pod::{has_ended as has_pod_ended, pod};

use crate::access::{Access, Objects};
use crate::controllers;
use crate::page::Capacity;

/// Objects around the explained one.
#[derive(Clone, Debug)]
pub struct Around {
    /// The IPUPartitions of the cluster.
    pub partitions: Access<Objects<IPUPartition>>,
    /// The VIPUControllers of the cluster.
    pub controllers: Access<Objects<VIPUController>>,
    /// The Pods of the job.
    pub pods: Access<Vec<Pod>>,
    /// The warning events of the namespace.
    pub events: Access<Vec<Event>>,
}

/// The advice of the page of an IPUJob, from what the dashboard has read.
pub fn advise(read: &JobObjects, now: Timestamp) -> Vec<String> {
    let around = Around {
        partitions: read_or_denied(read.partitions.as_ref().map(|all| Objects {
            readable: all.clone(),
            unreadable: 0,
        })),
        controllers: read_or_denied(None),
        pods: read_or_denied(read.pods.clone()),
        events: read_or_denied(read.events.clone()),
    };
    job(&read.job, &around, now).advice
}

/// What the dashboard has read. It names what it could not read itself.
fn read_or_denied<T>(read: Option<T>) -> Access<T> {
    read.map_or_else(|| Access::Denied(String::new()), Access::Allowed)
}

impl Around {
    /// Returns the parts that the rights of the user do not show, and the grantors of those rights.
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
        let controllers = self.controllers.denied().map(|words| {
            format!(
                "the V-IPU controllers, who has cordoned them, and what would fit: {words} ({view} ipu-operator-view \
                 with a ClusterRoleBinding)"
            )
        });
        let unknown = self.controllers.allowed().map(|all| all.unreadable);
        let unknown = unknown.filter(|number| *number > 0);
        let unknown =
            unknown.map(|number| format!("{number} VIPUControllers that the plugin cannot read"));
        let pods = self.pods.denied();
        let pods = pods.map(|words| format!("the Pods: {words} ({view} view in the namespace)"));
        let events = self.events.denied();
        let events =
            events.map(|words| format!("the events: {words} ({view} view in the namespace)"));
        [partitions, unreadable, controllers, unknown, pods, events]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Returns the capacity of the V-IPU controllers for an owner, if they have objects that the
    /// user may list.
    fn capacity(&self, owner: Option<&str>) -> Option<Capacity> {
        let all = &self.controllers.allowed()?.readable;
        if all.is_empty() {
            return None;
        }
        let mut closed: Vec<_> = all.iter().filter_map(controllers::unavailable).collect();
        closed.sort_by(|one, other| one.controller.cmp(&other.controller));
        let mut reserved: Vec<_> = all.iter().filter_map(controllers::reserved).collect();
        reserved.sort_by(|one, other| one.controller.cmp(&other.controller));
        let largest_fit = controllers::largest_fit(all.iter(), &self.node_selector(owner));
        Some(Capacity {
            closed,
            reserved,
            largest_fit,
        })
    }

    /// The node labels that the Pods of an owner ask for.
    fn node_selector(&self, owner: Option<&str>) -> BTreeMap<String, String> {
        let all = self.partitions.allowed().map(|all| &all.readable);
        let mut own = all.into_iter().flatten();
        let own = own.find(|one| Some(one.spec.owner.uid.as_str()) == owner);
        own.map_or_else(BTreeMap::new, |one| one.spec.options.node_selector.clone())
    }
}

#[cfg(test)]
#[expect(
    clippy::needless_pass_by_value,
    reason = "objects of tests read best as literals where they are used"
)]
mod tests;
