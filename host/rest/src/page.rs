//! Pure: pages of the list of IPUPartitions.

use std::ops::ControlFlow;

use ipu_api::ipupartition::IPUPartition;
use ipu_partitions::Guarded;
use kube::ResourceExt;
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

/// The page, filled by name.
#[derive(Debug)]
pub(super) struct Page {
    list: List,
    remaining: usize,
    last: Option<String>,
}

impl Page {
    /// A page of at most `limit` objects.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            list: List::default(),
            remaining: limit,
            last: None,
        }
    }

    /// Adds the next object. Breaks when the page is full.
    pub(super) fn add(&mut self, object: Guarded) -> ControlFlow<()> {
        let name = object.name_any();
        if self.remaining == 0 {
            self.list.next = self.last.take();
            return ControlFlow::Break(());
        }
        self.remaining -= 1;
        self.last = Some(name.clone());
        match object.0 {
            Ok(partition) => self.list.items.push(partition),
            Err(_) => self.list.unreadable.push(name),
        }
        ControlFlow::Continue(())
    }

    /// The answer.
    pub(super) fn list(self) -> List {
        self.list
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, namespace: &str, ipus: i64) -> Guarded {
        let object = json!({
            "metadata": {"name": name},
            "spec": {
                "owner": {
                    "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "a",
                    "uid": "b",
                },
                "slot": 0, "ipus": ipus, "gcds": 1,
            },
        });
        serde_json::from_value(object).unwrap()
    }

    fn page(query: &ListQuery) -> (Vec<String>, Vec<String>, Option<String>) {
        let objects = [
            object("a", "one", 1),
            object("b", "two", -1),
            object("c", "two", 1),
            object("d", "one", 1),
        ];
        let mut page = Page::new(query.limit().unwrap());
        let after = query.after.as_deref().unwrap_or_default();
        let mut later = objects.into_iter().filter(|one| *one.name_any() > *after);
        let _ = later.try_for_each(|one| page.add(one));
        let list = page.list();
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
