//! Pure: the context of a request, beside the object or the partition, as plain values.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Most other namespaces in the context of a placement request: those with the most IPUs.
pub const OTHERS_MAX: usize = 128;

/// Most groups of a user in the context of a request.
pub const GROUPS_MAX: usize = 256;

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

/// Number of partitions, or of free blocks of IPUs, of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeCount {
    /// The size in IPUs: a power of two.
    pub ipus: u32,
    /// Their number.
    pub count: u32,
}

/// Context of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceContext {
    /// Its labels. `None` if they are unknown, which differs from no labels.
    pub labels: Option<BTreeMap<String, String>>,
    /// Its IPU usage. `None` if it is unknown.
    pub usage: Option<Usage>,
}

/// The operation of an admission request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// The object is being created.
    #[serde(alias = "CREATE")]
    Create,
    /// The object is being updated.
    #[serde(alias = "UPDATE")]
    Update,
}

/// The user of a request to the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Name of the user or the ServiceAccount.
    pub name: String,
    /// The user's groups, at most [`GROUPS_MAX`].
    pub groups: Vec<String>,
}

/// An admission request, without the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    /// The operation.
    pub operation: Operation,
    /// The user.
    pub user: User,
    /// Whether the API server will store nothing.
    pub dry_run: bool,
    /// The subresource. `None` for the object itself.
    pub sub_resource: Option<String>,
    /// Namespace of the object.
    pub namespace: String,
    /// Context of the namespace.
    #[serde(rename = "facts")]
    pub context: NamespaceContext,
}

impl Admission {
    /// Creates an admission request with this operation and no context.
    pub fn of(operation: Operation) -> Self {
        Self {
            operation,
            user: User::default(),
            dry_run: false,
            sub_resource: None,
            namespace: String::new(),
            context: NamespaceContext::default(),
        }
    }
}

/// Context of a placement request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementContext {
    /// The owner of the partition.
    pub owner: Owner,
    /// Context of the namespace. Its usage excludes the requested partition.
    pub namespace: NamespaceContext,
    /// IPU usage of other namespaces, by name, at most [`OTHERS_MAX`].
    pub others: BTreeMap<String, Usage>,
    /// The other waiting partitions by size, the largest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<SizeCount>,
    /// Options of the partition.
    pub options: Options,
    /// Progress of the request.
    pub progress: Progress,
}

/// The owner of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// Such as `graphcore.ai/v1alpha1`.
    pub api_version: String,
    /// Such as `IPUJob`.
    pub kind: String,
    /// Its labels when it asked, at most [`PAIRS_MAX`].
    pub labels: BTreeMap<String, String>,
    /// Its annotations when it asked, at most [`PAIRS_MAX`], each at most [`ANNOTATION_MAX`] bytes.
    pub annotations: BTreeMap<String, String>,
    /// PriorityClass of its Pods.
    pub priority_class: Option<String>,
}

/// Options of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Options {
    /// The gang of the partition.
    pub gang: Option<Gang>,
    /// Model replicas over all GCDs.
    pub replicas: Option<u32>,
    /// Whether it can be reconfigured.
    pub reconfigurable: bool,
    /// Whether it can be relocated to other IPUs.
    pub relocatable: bool,
    /// Whether it stays until its owner releases it.
    pub pinned: bool,
}

/// A gang: partitions of one owner that are useful only together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gang {
    /// Number of partitions.
    pub size: u32,
    /// Number of partitions that exist or are being created.
    pub held: u32,
}

/// Progress of a partition request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Progress {
    /// Whether the request is a dry run.
    pub dry_run: bool,
    /// Whether an earlier decision was to wait.
    pub asked_before: bool,
    /// Whether an earlier partition of it was lost.
    pub placed_before: bool,
    /// Seconds without a partition.
    pub waited_seconds: u64,
}
