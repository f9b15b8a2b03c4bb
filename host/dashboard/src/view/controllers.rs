//! Pure: the IPUs of each V-IPU controller, as blocks: at their places, or else in a stable order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;

use super::attention::{self, Problem};
use super::block::Block;
use super::map;
use super::state::{self, State};
use super::{Listed, Page, job_state};
use crate::cluster::{Cluster, Kind};
use crate::projection::{Controller, Partition};

/// A V-IPU controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerRow {
    /// Stored part of it.
    #[serde(flatten)]
    pub controller: Controller,
    /// All of its IPUs. Missing: the user may not list VIPUControllers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u32>,
    /// The largest partition that could be created now: an estimate if the places are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_free: Option<u32>,
    /// Whether the blocks are at their places. Otherwise they are partitions by name, then the
    /// others.
    pub is_in_place: bool,
    /// Whether the V-IPU controller reports places, so that those of all partitions are known soon.
    pub reports_places: bool,
    /// Its IPUs.
    pub blocks: Vec<Block>,
    /// Its problems and those of its nodes and partitions, the worst first.
    pub problems: Vec<Problem>,
}

/// The order of the V-IPU controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By address.
    #[default]
    Address,
    /// Those with the worst problems first, then those with the most, then by address.
    Problems,
}

/// A part of the V-IPU controllers, in the order of their addresses. `namespace`: those with
/// partitions of its owners.
pub fn controllers(
    cluster: &Cluster,
    namespace: Option<&str>,
    page: Page,
    now: Timestamp,
) -> Listed<ControllerRow> {
    controllers_in(cluster, Order::Address, namespace, page, now)
}

/// The same in another order.
pub fn controllers_in(
    cluster: &Cluster,
    order: Order,
    namespace: Option<&str>,
    page: Page,
    now: Timestamp,
) -> Listed<ControllerRow> {
    let mut placed: BTreeMap<&str, Vec<&Partition>> = BTreeMap::new();
    for one in cluster.partitions.values() {
        for address in one.places() {
            placed.entry(address).or_default().push(one);
        }
    }
    let listed = cluster.controllers.values();
    let listed: BTreeMap<_, _> = listed.map(|one| (one.address.as_str(), one)).collect();
    let mut addresses: BTreeSet<&str> = listed.keys().copied().collect();
    addresses.extend(placed.keys());
    let is_shown = |address: &&str| {
        let partitions = placed.get(address).map(Vec::as_slice).unwrap_or_default();
        namespace.is_none_or(|wanted| partitions.iter().any(|one| one.owner.namespace == wanted))
    };
    let mut addresses: Vec<_> = addresses.into_iter().filter(is_shown).collect();
    let problems = by_controller(cluster);
    if order == Order::Problems {
        // The sort is stable: equal ones stay in the order of their addresses.
        addresses.sort_by_key(|address| {
            let own = problems
                .get(*address)
                .map(Vec::as_slice)
                .unwrap_or_default();
            let worst = own.first().map(|one| one.severity);
            (worst.is_none(), worst, Reverse(own.len()))
        });
    }
    let not_shown = cluster.not_shown(&[Kind::Controllers, Kind::Partitions, Kind::Jobs], now);
    let smallest = smallest_waiting(cluster);
    page.of(&addresses, not_shown, |address| {
        let partitions = placed.get(address).map(Vec::as_slice).unwrap_or_default();
        let own = blocks(cluster, address, partitions);
        let problems = problems.get(*address).cloned().unwrap_or_default();
        match listed.get(address) {
            Some(controller) => {
                let known = cluster.partitions.is_known();
                ControllerRow {
                    problems,
                    ..row(controller, own, known, smallest)
                }
            }
            None => ControllerRow {
                problems,
                controller: Controller {
                    address: (*address).to_owned(),
                    summary: "Unknown".to_owned(),
                    ..Controller::default()
                },
                blocks: own,
                ..ControllerRow::default()
            },
        }
    })
}

/// A controller with its partitions of the operator, `own`.
fn row(
    controller: &Controller,
    own: Vec<Block>,
    partitions_known: bool,
    smallest: Option<u32>,
) -> ControllerRow {
    let free_state = free_state(controller, partitions_known, smallest);
    let others = match controller.ipus.used_by_others {
        0 => State::Unknown,
        _ => State::Others,
    };
    let free_ipus = controller.free_ipus.as_deref();
    let free_ipus = free_ipus.filter(|_| controller.is_ready && partitions_known);
    let total = controller.ipus.total;
    let placed = free_ipus.and_then(|free| map::in_place(total, &own, free, free_state, others));
    let is_in_place = placed.is_some();
    let blocks = placed.unwrap_or_else(|| {
        let rest = remaining_blocks(controller, &own, free_state);
        own.into_iter().chain(rest).collect()
    });
    ControllerRow {
        controller: controller.clone(),
        total: Some(total),
        largest_free: Some(controller.ipus.largest_free),
        is_in_place,
        reports_places: controller.free_ipus.is_some(),
        blocks,
        problems: Vec::new(),
    }
}

/// The problems of each V-IPU controller.
fn by_controller(cluster: &Cluster) -> BTreeMap<String, Vec<Problem>> {
    let mut problems: BTreeMap<String, Vec<Problem>> = BTreeMap::new();
    for one in attention::problems(cluster, None) {
        if let Some(address) = &one.controller {
            problems.entry(address.clone()).or_default().push(one);
        }
    }
    problems
}

/// IPUs of the smallest request that waits.
fn smallest_waiting(cluster: &Cluster) -> Option<u32> {
    let waiting = cluster.partitions.values().filter(|one| one.is_waiting);
    waiting.map(|one| one.ipus).min()
}

fn blocks(cluster: &Cluster, address: &str, partitions: &[&Partition]) -> Vec<Block> {
    let block = |one: &&Partition| Block {
        state: state::on(one, address, job_state(cluster, one)),
        ipus: one.ipus,
        first: one
            .first_ipu
            .filter(|_| one.controller.as_deref() == Some(address)),
        partition: Some(one.name.clone()),
        namespace: Some(one.owner.namespace.clone()),
        owner: Some(one.owner.name.clone()),
        created: one.created,
    };
    partitions.iter().map(block).collect()
}

/// The IPUs in no known partition, so that all blocks add up to the IPUs of the V-IPU controller.
fn remaining_blocks(controller: &Controller, blocks: &[Block], free_state: State) -> Vec<Block> {
    let ipus = controller.ipus;
    let own = blocks
        .iter()
        .map(|one| one.ipus)
        .fold(0, u32::saturating_add);
    // IPUs that the V-IPU controller reports as used by the operator, without a known IPUPartition.
    let reported = ipus.used.saturating_sub(ipus.used_by_others);
    let unknown = reported.saturating_sub(own);
    let taken = own
        .saturating_add(unknown)
        .saturating_add(ipus.used_by_others);
    let free = ipus.total.saturating_sub(taken);
    let all = [
        (State::Others, ipus.used_by_others),
        (State::Unknown, unknown),
        (free_state, free),
    ];
    let all = all.into_iter().filter(|(_, ipus)| *ipus > 0);
    all.map(|(state, ipus)| Block::anonymous(state, ipus, None))
        .collect()
}

/// The state of the free IPUs.
fn free_state(controller: &Controller, partitions_known: bool, smallest: Option<u32>) -> State {
    let is_stranded = smallest.is_some_and(|smallest| smallest > controller.ipus.largest_free);
    match (controller.is_ready, partitions_known && is_stranded) {
        (false, _) => State::Unknown,
        (true, true) => State::Stranded,
        (true, false) => State::Free,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::view::fixture::{cluster, controller, job, now, partition_object, placed};

    const ALL: Page = Page {
        offset: 0,
        limit: 50,
    };

    /// State and IPUs of each block of each V-IPU controller, in short.
    fn short(rows: &[ControllerRow]) -> Vec<String> {
        let block = |one: &Block| format!("{:?} {}", one.state, one.ipus);
        let row = |one: &ControllerRow| {
            let blocks: Vec<_> = one.blocks.iter().map(block).collect();
            format!("{}: {}", one.controller.address, blocks.join(", "))
        };
        rows.iter().map(row).collect()
    }

    fn partitions() -> Vec<Value> {
        vec![
            partition_object("b/eval", 8, &placed("pod1", "Creating")),
            partition_object("a/train", 4, &placed("pod1", "Ready")),
            partition_object("a/large", 64, &json!({"phase": "Pending"})),
        ]
    }

    #[test]
    fn blocks_are_partitions_by_name_and_add_up_to_the_controller() {
        let mut second = controller("pod2", 16, 6, 8);
        second["status"]["ipus"]["usedByOthers"] = json!(4);
        let mut unready = controller("pod3", 16, 0, 16);
        unready["status"]["conditions"][0]["status"] = json!("False");
        let controllers = vec![second, unready, controller("pod1", 64, 12, 32)];
        let known = cluster(controllers, partitions(), vec![job("a/train", "Running")]);
        let listed = super::controllers(&known, None, ALL, now());
        assert_eq!(
            short(&listed.rows),
            [
                "pod1:8090: Running 4, Forming 8, Stranded 52",
                "pod2:8090: Others 4, Unknown 2, Stranded 10",
                "pod3:8090: Unknown 16",
            ]
        );
        assert_eq!(listed.not_shown, [""; 0]);

        let of_b = super::controllers(&known, Some("b"), ALL, now());
        assert_eq!(of_b.total, 1);
        let of_nobody = super::controllers(&known, Some("c"), ALL, now());
        assert_eq!(of_nobody.total, 0);
    }

    #[test]
    fn blocks_are_at_their_places_where_all_of_them_are_known() {
        let mut pod = controller("pod1", 16, 8, 4);
        pod["status"]["freeIpus"] = json!("4-7,12-15");
        let mut placed = placed("pod1", "Ready");
        let mut rows = |first: Option<u32>| {
            placed["firstIpu"] = json!(first);
            let partition = partition_object("a/train", 4, &placed);
            let known = cluster(vec![pod.clone()], vec![partition], Vec::new());
            let listed = super::controllers(&known, None, ALL, now());
            (short(&listed.rows), listed.rows[0].is_in_place)
        };
        let (drawn, is_in_place) = rows(Some(8));
        assert_eq!(drawn, ["pod1:8090: Unknown 4, Free 4, Ready 4, Free 4"]);
        assert!(is_in_place);
        let (drawn, is_in_place) = rows(None);
        assert_eq!(drawn, ["pod1:8090: Ready 4, Unknown 4, Free 8"]);
        assert!(!is_in_place);
    }

    #[test]
    fn free_ipus_are_stranded_only_if_no_request_that_waits_fits() {
        let mut partitions = partitions();
        partitions.push(partition_object("b/small", 2, &json!({"phase": "Pending"})));
        let known = cluster(vec![controller("pod1", 64, 12, 32)], partitions, Vec::new());
        let listed = super::controllers(&known, None, ALL, now());
        let expected = ["pod1:8090: Ready 4, Forming 8, Free 52"];
        assert_eq!(short(&listed.rows), expected);
    }

    #[test]
    fn without_the_right_to_list_controllers_partitions_name_them() {
        let mut known = cluster(Vec::new(), partitions(), Vec::new());
        known.controllers = Default::default();
        known.controllers.refuse("forbidden".to_owned());
        let listed = super::controllers(&known, None, ALL, now());
        assert_eq!(short(&listed.rows), ["pod1:8090: Ready 4, Forming 8"]);
        assert_eq!(listed.rows[0].total, None);
        let notes = listed.not_shown.join("\n");
        assert!(
            notes.starts_with("the VIPUControllers: forbidden"),
            "{notes}"
        );
    }

    #[test]
    fn those_with_the_worst_problems_come_first_if_it_is_wanted() {
        let mut cordoned = controller("pod2", 64, 0, 64);
        cordoned["spec"] = json!({"cordoned": true});
        let mut unready = controller("pod4", 64, 0, 64);
        unready["status"]["conditions"][0]["status"] = json!("False");
        let controllers = vec![
            controller("pod1", 64, 0, 64),
            cordoned,
            controller("pod3", 64, 8, 32),
            unready,
        ];
        let broken = partition_object("a/broken", 4, &placed("pod3", "Error"));
        let known = cluster(controllers, vec![broken], Vec::new());
        let addresses = |order| {
            let listed = controllers_in(&known, order, None, ALL, now());
            let row = |one: &ControllerRow| {
                let name = one.controller.address.trim_end_matches(":8090");
                format!("{name} {}", one.problems.len())
            };
            listed.rows.iter().map(row).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(addresses(Order::Address), "pod1 0, pod2 1, pod3 1, pod4 1");
        assert_eq!(addresses(Order::Problems), "pod3 1, pod4 1, pod2 1, pod1 0");
    }

    #[test]
    fn pages_of_256_controllers_have_50_rows() {
        let many = (0..256).map(|number| controller(&format!("pod{number:03}"), 64, 0, 64));
        let known = cluster(many.collect(), Vec::new(), Vec::new());
        let page = Page {
            offset: 250,
            limit: 50,
        };
        let listed = super::controllers(&known, None, page, now());
        assert_eq!((listed.total, listed.rows.len()), (256, 6));
        assert_eq!(listed.rows[5].controller.address, "pod255:8090");
    }
}
