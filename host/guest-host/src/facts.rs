//! Pure: what a policy may know beside what it is asked about, as plain values.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::model::Operation;

/// Other namespaces whose usage a placement policy is told: those with the most IPUs.
pub const OTHERS_MAX: usize = 128;

/// Groups of a user that a policy is told.
pub const GROUPS_MAX: usize = 256;

/// How many IPUs somebody has and wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// IPUs of the partitions that are there or being made.
    pub ipus: u32,
    /// How many partitions these are.
    pub partitions: u32,
    /// IPUs of the partitions that wait for a controller.
    pub waiting_ipus: u32,
    /// How many partitions these are.
    pub waiting_partitions: u32,
}

/// What is known of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceFacts {
    /// Its labels; none where they are not known, which is not the same as no labels.
    pub labels: Option<BTreeMap<String, String>>,
    /// What its owners have and want; none where it is not known yet.
    pub usage: Option<Usage>,
}

/// Who asks the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Name of the user or the ServiceAccount.
    pub name: String,
    /// The user's groups, at most [`GROUPS_MAX`].
    pub groups: Vec<String>,
}

/// How an object comes into the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    /// What is being done.
    pub operation: Operation,
    /// Who does it.
    pub user: User,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    /// The part of the object that is written; none for the object itself.
    pub sub_resource: Option<String>,
    /// Namespace of the object.
    pub namespace: String,
    /// What is known of it.
    pub facts: NamespaceFacts,
}

impl Admission {
    /// An admission of which nothing is known but what is done.
    pub fn of(operation: Operation) -> Self {
        Self {
            operation,
            user: User::default(),
            dry_run: false,
            sub_resource: None,
            namespace: String::new(),
            facts: NamespaceFacts::default(),
        }
    }
}

/// What a placement policy may know beside the size of what is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlaceFacts {
    /// Who wants it.
    pub owner: Owner,
    /// What is known of the owner's namespace, without the partition that is wanted.
    pub namespace: NamespaceFacts,
    /// What other namespaces have and want, by name, at most [`OTHERS_MAX`].
    pub others: BTreeMap<String, Usage>,
    /// What else is asked of the partition.
    pub options: Options,
    /// Where it stands.
    pub progress: Progress,
}

/// Whose partition is wanted.
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

/// What else is asked of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Options {
    /// Partitions that are of use only together.
    pub gang: Option<Gang>,
    /// Model replicas over all GCDs.
    pub replicas: Option<u32>,
    /// Whether it may be reconfigured.
    pub reconfigurable: bool,
    /// Whether it may be moved to other IPUs.
    pub relocatable: bool,
    /// Whether it stays until its owner gives it back.
    pub pinned: bool,
}

/// Partitions of one owner that are of use only together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gang {
    /// How many they are.
    pub size: u32,
    /// How many of them are there or being made.
    pub held: u32,
}

/// Where a wanted partition stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Progress {
    /// Whether somebody only wants to know, and nothing is made.
    pub dry_run: bool,
    /// Whether it was told to wait before.
    pub asked_before: bool,
    /// Whether a partition was made for it before, and is gone.
    pub placed_before: bool,
    /// For how many seconds it has had no partition.
    pub waited_seconds: u64,
}
