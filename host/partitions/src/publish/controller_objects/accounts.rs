//! Writes the account of each V-IPU controller into its IPUAccounting: seldom, because it may have
//! hundreds of kilobytes, and no replica watches it.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use ipu_api::ipuaccounting::{IPUAccounting, IPUAccountingSpec};
use ipu_api::{API_VERSION, naming};
use ipu_runtime::{clock, requests};
use ipu_text::explain;
use jiff::{SignedDuration, Timestamp};
use kube::api::{Api, Patch};
use serde_json::json;

use super::{FAILURES_MAX, ManagingRelease, marks};
use crate::leader::Context;

/// Minimum time between two writes of an account. A leader that is killed leaves as much time
/// unknown.
const AGE: SignedDuration = SignedDuration::from_mins(1);

/// Most accounts that one pass writes, so that the statuses of the controllers do not wait for all
/// of them.
pub(super) const PASS_MAX: usize = 32;

/// Writes at the same time.
const CONCURRENT: usize = 8;

/// Failure to write an account. The leader tries again a minute later.
#[derive(Debug, thiserror::Error)]
#[error("failed to write IPUAccounting {name}")]
struct WriteError {
    name: String,
    source: kube::Error,
}

/// The last write of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// Its time.
    at: Timestamp,
    /// Until when the account counted. `None`: the write failed.
    until: Option<Timestamp>,
}

/// Pure: the addresses whose accounts are due, those that were never written first, then the
/// oldest.
pub(super) fn due(
    addresses: impl Iterator<Item = String>,
    written: &BTreeMap<String, Written>,
    now: Timestamp,
) -> Vec<String> {
    let last = |address: &str| {
        let name = naming::vipu_controller(address);
        Some(written.get(&name)?.at)
    };
    let mut due: Vec<_> = addresses
        .map(|address| (last(&address), address))
        // A future time comes from a clock that was set back.
        .filter(|(at, _)| at.is_none_or(|at| now.duration_since(at).abs() >= AGE))
        .collect();
    due.sort();
    due.into_iter().map(|(_, address)| address).collect()
}

/// Pure: whether an account has something to write: it has counted, and more than the last write
/// says.
fn is_new(record: &IPUAccountingSpec, last: Option<&Written>) -> bool {
    let (since, until) = (record.accounting.since.0, record.accounting.until.0);
    until > since && last.is_none_or(|last| last.until != Some(until))
}

/// Writes the accounts of these controllers, `most` of those that have changed. A failure does not
/// affect the others.
pub(super) async fn write(
    context: &Context,
    manager: &ManagingRelease,
    addresses: Vec<String>,
    most: usize,
    written: &mut BTreeMap<String, Written>,
) {
    let api = Api::<IPUAccounting>::all(context.client.clone());
    let known = &*written;
    let changed = addresses.into_iter().filter_map(|address| {
        let record = context.accounts.record(&address)?;
        let name = naming::vipu_controller(&address);
        is_new(&record, known.get(&name)).then_some((name, record))
    });
    let writes = stream::iter(changed.take(most)).map(async |(name, record)| {
        if !context.leadership.is_valid() {
            return None;
        }
        let applied = apply(&api, manager, &name, &record).await;
        let until = applied.is_ok().then_some(record.accounting.until.0);
        let at = clock::now();
        Some((name, Written { at, until }, applied.err()))
    });
    let ended: Vec<_> = writes.buffer_unordered(CONCURRENT).collect().await;
    let mut failures = Vec::new();
    for (name, last, failure) in ended.into_iter().flatten() {
        written.insert(name, last);
        failures.extend(failure.map(|error| explain(&error)));
    }
    let number = failures.len();
    if number > 0 {
        failures.truncate(FAILURES_MAX);
        tracing::warn!(number, ?failures, "the IPUAccountings are not up to date");
    }
}

/// One request creates the object, or replaces all that it records.
async fn apply(
    api: &Api<IPUAccounting>,
    manager: &ManagingRelease,
    name: &str,
    record: &IPUAccountingSpec,
) -> Result<(), WriteError> {
    let object = json!({
        "apiVersion": API_VERSION,
        "kind": "IPUAccounting",
        "metadata": {"name": name, "labels": marks(manager)},
        "spec": record,
    });
    let params = requests::patch().force();
    let applied = api.patch(name, &params, &Patch::Apply(&object)).await;
    applied.map(|_| ()).map_err(|source| WriteError {
        name: name.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use ipu_api::accounting::{Accounting, Period, Unallocated};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn written(at_second: i64, until: i64) -> Written {
        Written {
            at: at(at_second),
            until: Some(at(until)),
        }
    }

    #[test]
    fn an_account_is_due_once_a_minute_and_the_oldest_comes_first() {
        let last = BTreeMap::from([
            ("a-1".to_owned(), written(941, 940)),
            ("b-1".to_owned(), written(940, 940)),
            ("c-1".to_owned(), written(900, 900)),
            ("d-1".to_owned(), written(1_060, 1_060)),
        ]);
        let addresses = ["a:1", "b:1", "c:1", "d:1", "e:1"].map(str::to_owned);
        let due = due(addresses.into_iter(), &last, at(1_000));
        assert_eq!(due, ["e:1", "c:1", "b:1", "d:1"]);
    }

    #[test]
    fn an_account_without_news_is_not_written() {
        let time = |second| Time(at(second));
        let record = |until| IPUAccountingSpec {
            address: "a:1".to_owned(),
            ipus: 8,
            accounting: Accounting {
                since: time(100),
                until: time(until),
                total: Period {
                    start: time(100),
                    unallocated: Unallocated::default(),
                    namespaces: Vec::new(),
                },
                hours: Vec::new(),
                days: Vec::new(),
            },
        };
        assert!(!is_new(&record(100), None), "it has counted nothing");
        assert!(is_new(&record(101), None));
        assert!(!is_new(&record(160), Some(&written(160, 160))));
        assert!(is_new(&record(161), Some(&written(160, 160))));
        let failed = Written {
            at: at(160),
            until: None,
        };
        assert!(is_new(&record(160), Some(&failed)));
    }
}
