//! Pure: pages of the list of IPUPartitions.

use std::sync::Arc;

use ipu_api::ipupartition::IPUPartition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::operation::{Parameter, schema_of};
use super::problem::{Kind, Problem};

/// The rule of the query parameters.
pub(super) const RULE: &str =
    "namespace=<name>, limit=<1 to 1000> and after=<name>, or some of them";

/// IPUPartitions in one answer by default.
const PAGE: u32 = 500;

/// Most IPUPartitions in one answer.
const PAGE_MAX: u32 = 1_000;

/// Query parameters of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    pub namespace: Option<String>,
    limit: Option<u32>,
    pub after: Option<String>,
}

impl ListQuery {
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
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "PartitionList")]
pub(super) struct List {
    /// Those that can be read.
    pub items: Vec<IPUPartition>,
    /// Names of unreadable ones, which a user has written.
    pub unreadable: Vec<String>,
    /// If there are more: set `after` to this to get them.
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

/// The answer with the first `limit` of these objects, by name. If they are more, another page
/// follows. An object is `None` if it cannot be read.
pub(super) fn list(mut found: Vec<(Arc<str>, Option<Arc<IPUPartition>>)>, limit: usize) -> List {
    let has_more = found.len() > limit;
    found.truncate(limit);
    let last = found.last().filter(|_| has_more);
    let mut list = List {
        next: last.map(|(name, _)| name.to_string()),
        ..List::default()
    };
    for (name, object) in found {
        match object {
            Some(partition) => list.items.push(Arc::unwrap_or_clone(partition)),
            None => list.unreadable.push(name.to_string()),
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
    use serde_json::json;

    use super::*;

    fn object(name: &str) -> Arc<IPUPartition> {
        let object = json!({
            "metadata": {"name": name},
            "spec": {
                "owner": {
                    "apiVersion": "v1", "kind": "Pod", "namespace": "one", "name": "a",
                    "uid": "b",
                },
                "slot": 0, "ipus": 1, "gcds": 1,
            },
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn page(query: &ListQuery) -> (Vec<String>, Vec<String>, Option<String>) {
        let after = query.after.as_deref().unwrap_or_default();
        let later = ["a", "b", "c", "d"]
            .into_iter()
            .filter(|name| *name > after);
        let found = later.map(|name| (name.into(), (name != "b").then(|| object(name))));
        let list = list(found.collect(), query.limit().unwrap());
        let names = list.items.iter().map(ResourceExt::name_any).collect();
        (names, list.unreadable, list.next)
    }

    #[test]
    fn pages_follow_each_other_by_name_and_end() {
        let first = ListQuery {
            limit: Some(3),
            ..ListQuery::default()
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
        let second = ListQuery {
            after: next,
            ..first
        };
        assert_eq!(page(&second), (words(&["d"]), words(&[]), None));
    }
}
