//! Pure: the first page: how full the machines are, who waits longest, what was useful, and what
//! needs somebody.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use super::attention::{self, Problem};
use super::goodput::hours;
use super::state::State;
use super::{Page, QueueRow, controllers, queue};
use crate::cluster::{Cluster, Kind};
use crate::past::Run;
use crate::projection::{Owner, Reason};

/// Most problems that are shown.
const PROBLEMS_MAX: usize = 8;

/// Most requests that are shown.
const WAITING_MAX: usize = 5;

/// The first page.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// The IPUs now.
    pub ipus: Ipus,
    /// The requests that wait.
    pub waiting: Waiting,
    /// The last day, hour by hour, oldest first.
    pub hours: Vec<Share>,
    /// What needs somebody.
    pub attention: Attention,
    /// The numbers of all namespaces, as far as this process has seen them.
    pub past: Vec<Run>,
    /// What is known of the cluster. The numbers of the rest are 0, and mean nothing.
    pub known: Known,
    /// Missing parts of the view, in sentences.
    pub not_shown: Vec<String>,
}

/// The kinds that the user may list, and that are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Known {
    /// VIPUControllers.
    pub controllers: bool,
    /// IPUPartitions.
    pub partitions: bool,
    /// Nodes.
    pub nodes: bool,
}

/// IPUs by state.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ipus {
    /// All IPUs of all V-IPU controllers. Missing: the user may not list VIPUControllers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Those in partitions. With a namespace: in partitions of its owners.
    pub used: u64,
    /// IPUs of each state. With a namespace: in partitions of its owners.
    pub states: BTreeMap<State, u64>,
    /// Number of V-IPU controllers.
    pub controllers: usize,
}

/// The requests that wait.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// Number of requests.
    pub requests: usize,
    /// Their IPUs.
    pub ipus: u64,
    /// The one that waits longest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Request>,
    /// The first of them, in the order in which they are served.
    pub first: Vec<Request>,
    /// IPUJobs that wait for something other than IPUs.
    pub blocked: usize,
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Request {
    /// Its position among all requests that wait, from 1.
    pub position: usize,
    /// Name of the IPUPartition.
    pub name: String,
    /// Its owner.
    pub owner: Owner,
    /// Its IPUs.
    pub ipus: u32,
    /// Since when it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// The first reason for its wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

/// IPU-seconds of an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Share {
    /// Start of the hour.
    pub start: Timestamp,
    /// Of all IPUs.
    pub all: f64,
    /// In partitions. Without a namespace: also those that the operator has not created.
    pub used: f64,
    /// In partitions of the operator. With a namespace: of its owners.
    pub allocated: f64,
    /// Of these, those with a ready Pod.
    pub running: f64,
}

/// What needs somebody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attention {
    /// Number of problems that nobody wanted.
    pub total: usize,
    /// Number of notices: what somebody wanted, or what has passed.
    pub notices: usize,
    /// The worst problems.
    pub rows: Vec<Problem>,
}

/// The first page. `namespace`: for the owners in it.
pub fn overview(cluster: &Cluster, namespace: Option<&str>, now: Timestamp) -> Overview {
    let kinds = [
        Kind::Controllers,
        Kind::Accountings,
        Kind::Partitions,
        Kind::Jobs,
        Kind::Nodes,
    ];
    Overview {
        ipus: ipus(cluster, namespace, now),
        waiting: waiting(cluster, namespace, now),
        hours: shares(cluster, namespace, now),
        attention: attention(cluster, namespace),
        past: cluster.past.runs().copied().collect(),
        known: Known {
            controllers: cluster.controllers.is_known(),
            partitions: cluster.partitions.is_known(),
            nodes: cluster.nodes.is_known(),
        },
        not_shown: cluster.not_shown(&kinds, now),
    }
}

fn ipus(cluster: &Cluster, namespace: Option<&str>, now: Timestamp) -> Ipus {
    let all = controllers(cluster, None, Page::ALL, now);
    let blocks = all.rows.iter().flat_map(|row| &row.blocks);
    let is_shown = |owner: Option<&str>| namespace.is_none() || owner == namespace;
    let mut states: BTreeMap<State, u64> = BTreeMap::new();
    for block in blocks.filter(|block| is_shown(block.namespace.as_deref())) {
        *states.entry(block.state).or_default() += u64::from(block.ipus);
    }
    let is_used = |state: &State| !matches!(state, State::Free | State::Stranded | State::Unknown);
    let used = states.iter().filter(|(state, _)| is_used(state));
    let totals = all.rows.iter().filter_map(|row| row.total);
    Ipus {
        total: cluster
            .controllers
            .is_known()
            .then(|| totals.map(u64::from).sum()),
        used: used.map(|(_, ipus)| ipus).sum(),
        controllers: all.total,
        states,
    }
}

fn waiting(cluster: &Cluster, namespace: Option<&str>, now: Timestamp) -> Waiting {
    let queue = queue(cluster, namespace, Page::ALL, now);
    let rows = &queue.listed.rows;
    let request = |row: &QueueRow| Request {
        position: row.position,
        name: row.name.clone(),
        owner: row.owner.clone(),
        ipus: row.ipus,
        created: row.created,
        reason: row.reasons.first().cloned(),
    };
    Waiting {
        requests: queue.listed.total,
        ipus: rows.iter().map(|row| u64::from(row.ipus)).sum(),
        oldest: rows.iter().min_by_key(|row| row.created).map(request),
        first: rows.iter().take(WAITING_MAX).map(request).collect(),
        blocked: queue.blocked.total,
    }
}

fn shares(cluster: &Cluster, namespace: Option<&str>, now: Timestamp) -> Vec<Share> {
    let mut shares: BTreeMap<Timestamp, Share> = BTreeMap::new();
    for hour in hours(cluster, now) {
        let share = shares.entry(hour.start.0).or_default();
        share.start = hour.start.0;
        share.all += hour.unallocated.total();
        if namespace.is_none() {
            share.used += hour.unallocated.others;
        }
        for one in &hour.namespaces {
            let total = one.seconds.total();
            share.all += total;
            if namespace.is_none_or(|wanted| one.namespace == wanted) {
                share.used += total;
                share.allocated += total;
                share.running += one.seconds.running;
            }
        }
    }
    shares.into_values().collect()
}

fn attention(cluster: &Cluster, namespace: Option<&str>) -> Attention {
    let mut rows = attention::problems(cluster, namespace);
    let needed = rows
        .iter()
        .filter(|problem| attention::needs_somebody(problem))
        .count();
    let notices = rows.len() - needed;
    rows.truncate(PROBLEMS_MAX);
    Attention {
        total: needed,
        notices,
        rows,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::view::fixture::{cluster, controller, job, now, partition_object, placed};
    use crate::view::goodput::tests::known as counted;

    fn waiting(owner: &str, ipus: u32, minute: u32) -> Value {
        let reasons = [json!({"controller": "pod1:8090", "reason": "it is full"})];
        let mut object = partition_object(
            owner,
            ipus,
            &json!({"phase": "Pending", "waiting": reasons}),
        );
        object["metadata"]["creationTimestamp"] = json!(format!("2026-01-02T12:{minute:02}:00Z"));
        object
    }

    fn known() -> Cluster {
        let mut controller = controller("pod1", 64, 24, 32);
        controller["status"]["ipus"]["usedByOthers"] = json!(8);
        let partitions = vec![
            partition_object("a/train", 16, &placed("pod1", "Ready")),
            waiting("b/late", 32, 20),
            waiting("a/large", 64, 10),
        ];
        cluster(
            vec![controller],
            partitions,
            vec![job("a/train", "Running")],
        )
    }

    #[test]
    fn it_says_how_full_the_machines_are_and_who_waits_longest() {
        let shown = overview(&known(), None, now());
        assert_eq!((shown.ipus.used, shown.ipus.total), (24, Some(64)));
        let states = [(State::Free, 40), (State::Running, 16), (State::Others, 8)];
        assert_eq!(shown.ipus.states, BTreeMap::from(states));
        assert_eq!((shown.waiting.requests, shown.waiting.ipus), (2, 96));
        let oldest = shown.waiting.oldest.unwrap();
        assert_eq!((oldest.name.as_str(), oldest.position), ("a.large-0", 1));
        assert_eq!(oldest.reason.unwrap().reason, "it is full");
        assert_eq!(shown.attention.total, 0);
    }

    #[test]
    fn a_namespace_sees_its_own_numbers_and_all_ipus() {
        let shown = overview(&known(), Some("b"), now());
        assert_eq!((shown.ipus.used, shown.ipus.total), (0, Some(64)));
        assert_eq!((shown.waiting.requests, shown.waiting.ipus), (1, 32));
        assert_eq!(shown.waiting.oldest.unwrap().position, 2);
    }

    #[test]
    fn hours_are_those_of_the_accounting() {
        let hours = |namespace| {
            let shown = overview(&counted(), namespace, now());
            let hour = |share: &Share| (share.all, share.used, share.allocated, share.running);
            shown.hours.iter().map(hour).collect::<Vec<_>>()
        };
        let all = [(70.0, 20.0, 20.0, 10.0), (125.0, 90.0, 90.0, 80.0)];
        assert_eq!(hours(None), all);
        let of_b = [(70.0, 0.0, 0.0, 0.0), (125.0, 60.0, 60.0, 60.0)];
        assert_eq!(hours(Some("b")), of_b);
    }

    #[test]
    fn without_the_right_to_list_controllers_there_is_no_total() {
        let mut known = known();
        known.controllers.refuse("forbidden".to_owned());
        let shown = overview(&known, None, now());
        assert_eq!((shown.ipus.used, shown.ipus.total), (16, None));
        assert!(!shown.known.controllers && shown.known.partitions);
        assert!(shown.not_shown[0].starts_with("the VIPUControllers"));
    }
}
