//! Pure: the requests that wait, in the order in which they are served.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use super::reservations::{Reservation, reservations};
use super::{Listed, Page};
use crate::cluster::{Cluster, Kind};
use crate::projection::{Controller, Obstacle, Owner, Partition, Reason};
use crate::queue::{Entry, order_of};

/// Most IPUJobs that are shown of those that wait for something else.
const BLOCKED_MAX: usize = 100;

/// The queue.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// All requests that wait, in all namespaces.
    pub waiting: usize,
    /// Their IPUs.
    pub waiting_ipus: u64,
    /// The largest partition that a new request would get now. Missing: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_fit: Option<Fit>,
    /// IPUJobs that wait for something else.
    pub blocked: Blocked,
    /// Reserved capacity of V-IPU controllers, for the requests of this part.
    pub reservations: Vec<Reservation>,
    /// A part of the requests.
    #[serde(flatten)]
    pub listed: Listed<QueueRow>,
}

/// IPUJobs that wait for something other than IPUs, such as a quota or an image, in the order of
/// their namespaces and names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Blocked {
    /// Number of requests.
    pub total: usize,
    /// The first of them.
    pub rows: Vec<BlockedJob>,
}

/// An IPUJob that waits for something other than IPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockedJob {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Reason for its wait.
    #[serde(flatten)]
    pub obstacle: Obstacle,
}

/// The largest partition that a new request would get on a V-IPU controller now: an estimate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fit {
    /// Its IPUs.
    pub ipus: u32,
    /// `host:port`. Missing: no V-IPU controller is open to new partitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueRow {
    /// Its position among all requests that wait, from 1.
    pub position: usize,
    /// Name of the IPUPartition.
    pub name: String,
    /// Its owner.
    pub owner: Owner,
    /// Index of the partition among those of its owner.
    pub slot: u32,
    /// Its IPUs.
    pub ipus: u32,
    /// Number of partitions of its owner that are useful only together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang_size: Option<u32>,
    /// Since when it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// Reasons for its wait, by their text.
    pub reasons: Vec<Reason>,
    /// Number of further V-IPU controllers with reasons.
    pub more_reasons: usize,
    /// The last message, if no V-IPU controller has a reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The largest partition that a new request with its node selector would get now. Missing: not
    /// known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_fit: Option<u32>,
}

/// A part of the queue. `namespace`: of the requests of its owners, with their positions among all.
pub fn queue(cluster: &Cluster, namespace: Option<&str>, page: Page, now: Timestamp) -> Queue {
    let all = cluster.partitions.values();
    let waiting: BTreeMap<&str, &Partition> = all
        .clone()
        .filter(|one| one.is_waiting)
        .map(|one| (one.name.as_str(), one))
        .collect();
    let order = order_of(all.map(|one| entry(one, now)));
    let ordered = (1..).zip(order.iter().filter_map(|name| waiting.get(name)));
    let is_shown = |partition: &Partition| {
        namespace.is_none_or(|namespace| partition.owner.namespace == namespace)
    };
    let shown: Vec<(usize, &&Partition)> = ordered.filter(|(_, one)| is_shown(one)).collect();
    let not_shown = cluster.not_shown(&[Kind::Partitions, Kind::Controllers, Kind::Jobs], now);
    let ipus = waiting.values().map(|one| u64::from(one.ipus));
    let listed = page.of(&shown, not_shown, |(position, one)| {
        row(cluster, *position, one)
    });
    Queue {
        waiting: waiting.len(),
        waiting_ipus: ipus.fold(0, u64::saturating_add),
        largest_fit: fit(cluster, &BTreeMap::new()),
        blocked: blocked(cluster, namespace),
        reservations: reservations(cluster, listed.rows.iter().map(|row| &row.owner), now),
        listed,
    }
}

fn entry(partition: &Partition, now: Timestamp) -> Entry<'_> {
    Entry {
        name: &partition.name,
        owner_uid: &partition.owner.uid,
        created: partition.created.unwrap_or(now),
        is_in_gang: partition.gang_size.is_some(),
        is_waiting: partition.is_waiting,
    }
}

fn row(cluster: &Cluster, position: usize, partition: &Partition) -> QueueRow {
    let message = partition.message.clone();
    QueueRow {
        position,
        name: partition.name.clone(),
        owner: partition.owner.clone(),
        slot: partition.slot,
        ipus: partition.ipus,
        gang_size: partition.gang_size,
        created: partition.created,
        reasons: partition.reasons.clone(),
        more_reasons: partition.more_reasons,
        message: message.filter(|_| partition.reasons.is_empty()),
        largest_fit: fit(cluster, &partition.node_selector).map(|fit| fit.ipus),
    }
}

fn blocked(cluster: &Cluster, namespace: Option<&str>) -> Blocked {
    let jobs = cluster.jobs.values();
    let shown = jobs.filter(|one| namespace.is_none_or(|namespace| one.namespace == namespace));
    let mut blocked = Blocked::default();
    for (job, obstacle) in shown.filter_map(|one| Some((one, one.obstacle.as_ref()?))) {
        blocked.total += 1;
        if blocked.rows.len() < BLOCKED_MAX {
            blocked.rows.push(BlockedJob {
                namespace: job.namespace.clone(),
                name: job.name.clone(),
                obstacle: obstacle.clone(),
            });
        }
    }
    blocked
}

/// The largest partition that a new request would get on the open V-IPU controllers for a node
/// selector. `None`: the user may not list VIPUControllers.
fn fit(cluster: &Cluster, selector: &BTreeMap<String, String>) -> Option<Fit> {
    if !cluster.controllers.is_known() {
        return None;
    }
    let suits = |one: &&Controller| {
        let (key, value) = &one.label;
        selector.get(key).is_none_or(|wanted| wanted == value)
    };
    let open = cluster.controllers.values().filter(|one| one.is_open());
    let mut best: Option<&Controller> = None;
    for one in open.filter(suits) {
        if best.is_none_or(|best| one.largest_fit() > best.largest_fit()) {
            best = Some(one);
        }
    }
    Some(Fit {
        ipus: best.map_or(0, Controller::largest_fit),
        controller: best.map(|one| one.address.clone()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::view::fixture::{cluster, controller, job, now, partition_object};

    const ALL: Page = Page {
        offset: 0,
        limit: 50,
    };

    fn waiting(owner: &str, ipus: u32, second: u32) -> Value {
        let reasons = ["pod1", "pod2"]
            .map(|name| json!({"controller": format!("{name}:8090"), "reason": "it is cordoned"}));
        let status = json!({"phase": "Pending", "waiting": reasons, "message": "waits"});
        let mut object = partition_object(owner, ipus, &status);
        object["metadata"]["creationTimestamp"] = json!(format!("2026-01-02T12:00:{second:02}Z"));
        object
    }

    fn known() -> Cluster {
        let mut selective = waiting("b/selective", 4, 3);
        selective["spec"]["options"] = json!({"nodeSelector": {"ipunode": "pod2"}});
        let partitions = vec![
            waiting("a/second", 16, 2),
            waiting("b/first", 32, 1),
            selective,
        ];
        let mut cordoned = controller("pod3", 64, 0, 64);
        cordoned["spec"] = json!({"cordoned": true});
        let controllers = vec![
            controller("pod1", 64, 48, 16),
            controller("pod2", 64, 62, 2),
            cordoned,
        ];
        cluster(controllers, partitions, Vec::new())
    }

    #[test]
    fn requests_are_in_the_order_of_the_queue_with_reason_and_largest_fit() {
        let queue = queue(&known(), None, ALL, now());
        assert_eq!((queue.waiting, queue.waiting_ipus), (3, 52));
        let fit = Fit {
            ipus: 16,
            controller: Some("pod1:8090".to_owned()),
        };
        assert_eq!(queue.largest_fit, Some(fit));
        let rows = serde_json::to_value(&queue.listed.rows).unwrap();
        let first = json!({
            "position": 1, "name": "b.first-0",
            "owner": {"kind": "IPUJob", "namespace": "b", "name": "first"},
            "slot": 0, "ipus": 32, "created": "2026-01-02T12:00:01Z",
            "reasons": [{
                "reason": "it is cordoned", "controllers": ["pod1:8090", "pod2:8090"], "count": 2,
            }],
            "moreReasons": 0, "largestFit": 16,
        });
        assert_eq!(rows[0], first);
        assert_eq!(rows[1]["name"], "a.second-0");
        assert_eq!(rows[2]["largestFit"], 2);
    }

    #[test]
    fn what_is_reserved_for_a_request_does_not_fit() {
        let mut reserved = controller("pod1", 64, 0, 64);
        reserved["status"]["ipus"]["largestFit"] = json!(0);
        let controllers = vec![reserved, controller("pod2", 64, 62, 2)];
        let queue = queue(
            &cluster(controllers, Vec::new(), Vec::new()),
            None,
            ALL,
            now(),
        );
        let fit = queue.largest_fit.unwrap();
        assert_eq!(
            (fit.ipus, fit.controller.as_deref()),
            (2, Some("pod2:8090"))
        );
    }

    #[test]
    fn jobs_that_wait_for_something_else_are_named_with_their_reason() {
        let blocked = |owner: &str, state: &str, type_: &str, status: &str| {
            let mut job = job(owner, state);
            job["status"]["conditions"] = json!([
                {"type": "PartitionsReady", "status": "False", "reason": "WaitingForPartition", "message": ""},
                {
                    "type": type_, "status": status, "reason": "Why", "message": "because",
                    "lastTransitionTime": "2026-01-02T12:00:00Z",
                },
            ]);
            job
        };
        let jobs = vec![
            blocked("b/image", "Pending", "PodsReady", "False"),
            blocked("a/quota", "Suspended", "QuotaReserved", "False"),
            blocked("a/admitted", "Suspended", "QuotaReserved", "True"),
            blocked("a/grows", "Running", "PodsReady", "False"),
            blocked("a/runs", "Running", "QuotaReserved", "False"),
            blocked("a/done", "Completed", "PodsReady", "False"),
        ];
        let cluster = cluster(Vec::new(), Vec::new(), jobs);
        let names = |namespace: Option<&str>| {
            let blocked = queue(&cluster, namespace, ALL, now()).blocked;
            let names: Vec<_> = blocked.rows.iter().map(|one| one.name.clone()).collect();
            assert_eq!(blocked.total, names.len());
            names
        };
        assert_eq!(names(None), ["grows", "quota", "image"]);
        assert_eq!(names(Some("b")), ["image"]);
        let rows = queue(&cluster, Some("b"), ALL, now()).blocked.rows;
        let expected = json!([{
            "namespace": "b", "name": "image", "reason": "Why", "message": "because",
            "since": "2026-01-02T12:00:00Z",
        }]);
        assert_eq!(serde_json::to_value(rows).unwrap(), expected);
    }

    #[test]
    fn a_job_that_was_started_outside_its_queue_waits_for_no_quota() {
        let outside = |name: &str, pods: &[Value]| {
            let mut job = job(name, "Pending");
            let quota = json!({
                "type": "QuotaReserved", "status": "False", "reason": "StartedOutsideQueue", "message": "",
            });
            let conditions: Vec<Value> = [quota].into_iter().chain(pods.to_vec()).collect();
            job["status"]["conditions"] = json!(conditions);
            job
        };
        let image = json!({
            "type": "PodsReady", "status": "False", "reason": "PodsWaiting", "message": "no image",
        });
        let jobs = vec![outside("a/image", &[image]), outside("a/ipus", &[])];
        let rows = queue(&cluster(Vec::new(), Vec::new(), jobs), None, ALL, now())
            .blocked
            .rows;
        let reasons: Vec<_> = rows.iter().map(|one| &*one.obstacle.reason).collect();
        assert_eq!(reasons, ["PodsWaiting"]);
    }

    #[test]
    fn a_namespace_keeps_the_positions_among_all() {
        let queue = queue(&known(), Some("a"), ALL, now());
        let rows: Vec<_> = queue.listed.rows.iter().map(|one| one.position).collect();
        assert_eq!(rows, [2]);
        assert_eq!((queue.waiting, queue.listed.total), (3, 1));
    }

    #[test]
    fn without_the_right_to_list_controllers_nothing_is_said_about_fits() {
        let mut known = known();
        known.controllers.refuse("forbidden".to_owned());
        let queue = queue(&known, None, ALL, now());
        assert_eq!(queue.largest_fit, None);
        assert_eq!(queue.listed.rows[0].largest_fit, None);
        assert_eq!(queue.listed.not_shown.len(), 1);
    }
}
