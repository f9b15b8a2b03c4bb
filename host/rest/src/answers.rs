//! Pure: the answers of `/stats` and `/query`, with the keys of Graphcore's proxy.

use std::collections::BTreeMap;

use ipu_api::guest::placement::ControllerView;
use ipu_partitions::store::Brief;
use schemars::JsonSchema;
use serde::Serialize;

/// IPUs of one namespace, or of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Stats {
    /// IPUs in partitions of the operator.
    pub used: u64,
    /// IPUs in no partition, over all controllers that answer. The same for every namespace.
    pub available: u64,
}

/// Number of partitions of one size that could be created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueryCapacity {
    /// Always true, also without free capacity, as in Graphcore's proxy.
    pub available: bool,
    /// An upper bound where controllers do not report which IPUs are free.
    pub num_of_partitions: u64,
    /// Empty, or the controllers that do not count, with reasons.
    pub message: String,
}

/// The answer of `/stats`: one key for each namespace with partitions, and `total`, which takes
/// precedence over a namespace of that name. Partitions of others do not count as used, but their
/// IPUs are not available either.
pub fn stats<'a>(
    partitions: impl Iterator<Item = &'a Brief>,
    controllers: &[ControllerView],
) -> BTreeMap<String, Stats> {
    let available = controllers
        .iter()
        .map(|controller| places(controller, 1))
        .sum();
    let mut used: BTreeMap<&str, u64> = BTreeMap::new();
    for one in partitions.filter(|one| one.held_ipus() > 0) {
        // The owner of an unreadable object is unknown.
        let Some(namespace) = one.namespace.as_deref() else {
            continue;
        };
        *used.entry(namespace).or_default() += one.held_ipus();
    }
    let total = ("total", used.values().sum());
    let all = used.into_iter().chain([total]);
    all.map(|(namespace, used)| (namespace.to_owned(), Stats { used, available }))
        .collect()
}

/// The answer of `/query` for partitions of `size` IPUs.
pub fn capacity(size: u32, controllers: &[ControllerView]) -> QueryCapacity {
    let unreachable: Vec<String> = controllers
        .iter()
        .filter_map(|one| Some(format!("{} ({})", one.name, one.unreachable.as_ref()?)))
        .collect();
    QueryCapacity {
        available: true,
        num_of_partitions: controllers
            .iter()
            .map(|controller| places(controller, size.max(1)))
            .sum(),
        message: if unreachable.is_empty() {
            String::new()
        } else {
            format!(
                "not counted, since they do not answer: {}",
                unreachable.join(", ")
            )
        },
    }
}

/// Whether a process serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Health {
    /// `ok`, or what is missing.
    pub status: String,
}

impl Health {
    /// All is well.
    pub fn ok() -> Self {
        Self::missing("ok")
    }

    /// Something is missing.
    pub fn missing(what: &str) -> Self {
        Self {
            status: what.to_owned(),
        }
    }
}

fn places(controller: &ControllerView, size: u32) -> u64 {
    if controller.unreachable.is_some() {
        return 0;
    }
    u64::from(controller.places(size))
}
