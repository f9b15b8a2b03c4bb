//! Pure: what guests see of namespaces: their labels and their use of IPUs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Most other namespaces in the context of a placement request: those with the most IPUs.
pub const OTHERS_MAX: usize = 128;

/// IPU usage of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// IPUs of the partitions that exist or are being created.
    pub ipus: u32,
    /// Number of these partitions.
    pub partitions: u32,
    /// IPUs of the partitions that wait for a controller.
    pub waiting_ipus: u32,
    /// Number of these partitions.
    pub waiting_partitions: u32,
}

/// The usage of the other namespaces with the most IPUs, of those that have or request any.
pub fn others(all: &BTreeMap<Arc<str>, Usage>, namespace: &str) -> BTreeMap<String, Usage> {
    let used = all.iter().filter(|(_, usage)| **usage != Usage::default());
    let mut others: Vec<_> = used.filter(|(name, _)| ***name != *namespace).collect();
    let total = |usage: &Usage| u64::from(usage.ipus) + u64::from(usage.waiting_ipus);
    others.sort_by(|(one, a), (other, b)| total(b).cmp(&total(a)).then(one.cmp(other)));
    others.truncate(OTHERS_MAX);
    let pairs = others.into_iter();
    pairs
        .map(|(name, usage)| (name.to_string(), *usage))
        .collect()
}

/// Context of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceContext {
    /// Its labels. `None` if they are unknown, which differs from no labels.
    pub labels: Option<BTreeMap<String, String>>,
    /// Its IPU usage. `None` if it is unknown.
    pub usage: Option<Usage>,
}
