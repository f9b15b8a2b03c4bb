//! Pure: the list of IPUPartitions, a page at a time.

use std::sync::Arc;

use kube::ResourceExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::operation::{Parameter, schema_of};
use super::problem::{Kind, Problem};
use crate::api::ipupartition::IPUPartition;
use crate::partition::Guarded;

/// What may stand after `?`.
pub(super) const RULE: &str =
    "namespace=<name>, limit=<1 to 1000> and after=<name>, or some of them";

/// IPUPartitions in one answer where nothing else is asked for.
const PAGE: u32 = 500;

/// Most IPUPartitions in one answer.
const PAGE_MAX: u32 = 1_000;

/// Which IPUPartitions are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Question {
    namespace: Option<String>,
    limit: Option<u32>,
    after: Option<String>,
}

impl Question {
    /// Most IPUPartitions to answer.
    pub(super) fn limit(&self) -> Result<usize, Problem> {
        let limit = self.limit.unwrap_or(PAGE);
        if (1..=PAGE_MAX).contains(&limit) {
            return Ok(limit as usize);
        }
        let rule = format!("a number from 1 to {PAGE_MAX}");
        Err(Problem::of_field(
            Kind::Malformed,
            "limit",
            &limit.to_string(),
            &rule,
        ))
    }
}

/// IPUPartitions by name.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "PartitionList")]
pub(super) struct List {
    /// Those that can be read.
    pub items: Vec<IPUPartition>,
    /// Names of those that were written by hand and cannot be read.
    pub unreadable: Vec<String>,
    /// Where there are more: ask for them with `after` set to this.
    pub next: Option<String>,
}

/// The parameters of the list.
pub(super) fn parameters() -> Vec<Parameter> {
    let parameter = |name, description, schema| Parameter {
        name,
        place: "query",
        description,
        schema,
    };
    vec![
        parameter(
            "namespace",
            "Only those whose owner is in this namespace.",
            schema_of::<String>,
        ),
        parameter(
            "limit",
            "Most of them in one answer, 1 to 1000; 500 if missing.",
            schema_of::<u32>,
        ),
        parameter(
            "after",
            "Only those whose names come after this one.",
            schema_of::<String>,
        ),
    ]
}

/// The page that is asked for, of at most `limit`.
pub(super) fn list(mut objects: Vec<Arc<Guarded>>, question: &Question, limit: usize) -> List {
    if let Some(after) = &question.after {
        objects.retain(|object| object.name_any() > *after);
    }
    if let Some(namespace) = &question.namespace {
        objects.retain(|object| {
            let partition = object.0.as_ref();
            partition.is_ok_and(|partition| partition.spec.owner.namespace == *namespace)
        });
    }
    objects.sort_by_cached_key(|object| object.name_any());
    let is_more = objects.len() > limit;
    objects.truncate(limit);
    let last = objects.last().map(|object| object.name_any());
    let mut page = List {
        items: Vec::new(),
        unreadable: Vec::new(),
        next: last.filter(|_| is_more),
    };
    for object in objects {
        match &object.0 {
            Ok(partition) => {
                let mut partition = partition.clone();
                partition.metadata.managed_fields = None;
                page.items.push(partition);
            }
            Err(_) => page.unreadable.push(object.name_any()),
        }
    }
    page
}
