//! Pure: the request of a partition, and the rules that it must follow.

use serde::{Deserialize, Serialize};

use super::{Pod, Rejection};

/// The properties of a new partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PartitionSpec {
    /// Its id.
    pub id: String,
    /// IPUs.
    pub ipus: u32,
    /// GCDs. 0 means one.
    pub gcds: u32,
    /// Replicas. 0 means one for each GCD.
    pub replicas: u32,
    /// Whether it may be reconfigured.
    pub reconfigurable: bool,
    /// Whether it may be moved to other IPUs.
    pub relocatable: bool,
    /// The allocation to take it from. If empty: the pod's own.
    pub allocation: String,
    /// The cluster to take it from. If empty: the pod's only one.
    pub cluster: String,
}

/// The checked properties of a new partition.
pub(super) struct Checked {
    /// GCDs, at least one.
    pub(super) gcds: u32,
    /// Replicas, at least one for each GCD.
    pub(super) replicas: u32,
    /// Index of its cluster among those of the pod.
    pub(super) cluster: usize,
}

impl Pod {
    /// Checks a request, or returns the rule that it breaks.
    pub(super) fn check(&self, spec: &PartitionSpec) -> Result<Checked, Rejection> {
        let PartitionSpec { id, ipus, .. } = spec;
        let gcds = spec.gcds.max(1);
        let replicas = if spec.replicas == 0 {
            gcds
        } else {
            spec.replicas
        };
        let broken_rule = if id.is_empty() {
            "a partition needs an id".to_owned()
        } else if !ipus.is_power_of_two() {
            format!("size {ipus} is not a power of two")
        } else if !gcds.is_power_of_two() || gcds > *ipus {
            format!("{gcds} GCDs do not divide {ipus} IPUs")
        } else if replicas % gcds != 0 || ipus % replicas != 0 {
            format!("{replicas} replicas do not divide {ipus} IPUs in {gcds} GCDs")
        } else if !spec.allocation.is_empty() && spec.allocation != self.name {
            format!("there is no allocation {:?}", spec.allocation)
        } else {
            let cluster = self.cluster_of(&spec.cluster)?;
            return Ok(Checked {
                gcds,
                replicas,
                cluster,
            });
        };
        Err(Rejection::Invalid(broken_rule))
    }

    /// Index of the cluster with this name, or of the only cluster if the name is empty.
    fn cluster_of(&self, name: &str) -> Result<usize, Rejection> {
        let clusters = &self.clusters;
        if name.is_empty() && clusters.len() == 1 {
            return Ok(0);
        }
        let found = clusters.iter().position(|cluster| cluster.name == name);
        found.ok_or_else(|| {
            Rejection::Invalid(if name.is_empty() {
                "the pod has several clusters, and the request names none".to_owned()
            } else {
                format!("there is no cluster {name:?}")
            })
        })
    }
}
