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

#[cfg(test)]
mod tests {
    use kube::core::DeserializeGuard;
    use serde_json::json;

    use super::*;

    fn object(name: &str, namespace: &str, ipus: i64) -> Arc<Guarded> {
        let object = json!({
            "metadata": {"name": name, "managedFields": [{"manager": "x"}]},
            "spec": {
                "owner": {
                    "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "a",
                    "uid": "b",
                },
                "slot": 0, "ipus": ipus, "gcds": 1,
            },
        });
        let object: DeserializeGuard<IPUPartition> = serde_json::from_value(object).unwrap();
        Arc::new(object)
    }

    fn page(question: &Question) -> (Vec<String>, Vec<String>, Option<String>) {
        let objects = vec![
            object("c", "two", 1),
            object("a", "one", 1),
            object("b", "two", -1),
            object("d", "one", 1),
        ];
        let list = list(objects, question, question.limit().unwrap());
        let managed = |one: &IPUPartition| one.metadata.managed_fields.is_some();
        assert!(!list.items.iter().any(managed));
        let names = list.items.iter().map(ResourceExt::name_any).collect();
        (names, list.unreadable, list.next)
    }

    #[test]
    fn pages_follow_each_other_by_name_and_end() {
        let first = Question {
            limit: Some(3),
            ..Question::default()
        };
        let words = |words: &[&str]| {
            words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>()
        };
        let (names, unreadable, next) = page(&first);
        assert_eq!((names, unreadable), (words(&["a", "c"]), words(&["b"])));
        assert_eq!(next.as_deref(), Some("c"));
        let second = Question {
            after: next,
            ..first
        };
        assert_eq!(page(&second), (words(&["d"]), words(&[]), None));
        let of_one = Question {
            namespace: Some("two".to_owned()),
            ..Question::default()
        };
        assert_eq!(page(&of_one), (words(&["c"]), words(&[]), None));
    }
}
