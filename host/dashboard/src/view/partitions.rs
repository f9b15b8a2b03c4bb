//! Pure: the partitions, by name.

use jiff::Timestamp;
use serde::Serialize;

use super::state::{self, State};
use super::{Listed, Page, job_state};
use crate::cluster::{Cluster, Kind};
use crate::projection::{Owner, Partition};

/// A partition.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionRow {
    /// Name of the IPUPartition.
    pub name: String,
    /// Its owner.
    pub owner: Owner,
    /// Index of the partition among those of its owner.
    pub slot: u32,
    /// Its IPUs.
    pub ipus: u32,
    /// Its state.
    pub state: State,
    /// Since when it is ready or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The V-IPU controller that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// Its id there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_id: Option<String>,
    /// The last message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A part of the partitions: all, or those on a V-IPU controller, or those of the owners in a
/// namespace.
pub fn partitions(
    cluster: &Cluster,
    namespace: Option<&str>,
    controller: Option<&str>,
    page: Page,
    now: Timestamp,
) -> Listed<PartitionRow> {
    let is_shown = |one: &&Partition| {
        namespace.is_none_or(|namespace| one.owner.namespace == namespace)
            && controller.is_none_or(|address| one.places().any(|place| place == address))
    };
    let shown: Vec<&Partition> = cluster.partitions.values().filter(is_shown).collect();
    let not_shown = cluster.not_shown(&[Kind::Partitions, Kind::Jobs], now);
    page.of(&shown, not_shown, |one| PartitionRow {
        name: one.name.clone(),
        owner: one.owner.clone(),
        slot: one.slot,
        ipus: one.ipus,
        state: state::of(one, job_state(cluster, one)),
        since: one.since,
        controller: one.controller.clone(),
        partition_id: one.partition_id.clone(),
        message: one.message.clone(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::view::fixture::{cluster, job, now, partition_object, placed};

    #[test]
    fn partitions_are_sorted_by_name_and_filtered() {
        let all = vec![
            partition_object("b/eval", 8, &placed("pod2", "Ready")),
            partition_object("a/train", 4, &placed("pod1", "Ready")),
            partition_object("a/late", 4, &json!({"phase": "Pending"})),
        ];
        let known = cluster(Vec::new(), all, vec![job("b/eval", "Running")]);
        let page = Page {
            offset: 0,
            limit: 50,
        };
        let names = |namespace, controller| {
            let listed = partitions(&known, namespace, controller, page, now());
            let rows = listed.rows.iter();
            let rows = rows.map(|one| format!("{} {:?}", one.name, one.state));
            rows.collect::<Vec<_>>().join(", ")
        };
        assert_eq!(
            names(None, None),
            "a.late-0 Waiting, a.train-0 Ready, b.eval-0 Running"
        );
        assert_eq!(names(Some("a"), None), "a.late-0 Waiting, a.train-0 Ready");
        assert_eq!(names(None, Some("pod2:8090")), "b.eval-0 Running");
        assert_eq!(names(Some("a"), Some("pod2:8090")), "");
    }
}
