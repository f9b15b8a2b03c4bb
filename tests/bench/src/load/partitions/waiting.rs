//! Duration of a decision on one of many waiting requests, and of a round over all of them: the
//! queue and the native serial walk.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipu_api::guest::placement::{ControllerView, Decision};
use ipu_api::ipupartition::{
    IPUPartition, IPUPartitionSpec, OwnerMetadata, PartitionOptions, PartitionOwner,
};
use ipu_api::partition_request::largest_partition;
use ipu_api::vipu_controller::CordonStates;
use ipu_placement::cycle::Pass;
use ipu_placement::guest_call::values::partition_request;
use ipu_placement::guest_call::{Candidates, Placement};
use ipu_placement::node_match::NodeFacts;
use ipu_placement::queue;
use ipu_placement::serial_walk::serial_walk;
use ipu_placement::unsuited::NodeSnapshot;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Number of controllers.
const CONTROLLERS: usize = 256;

/// IPUs of each controller.
const TOTAL: u32 = 64;

/// Free IPUs of the controllers, one after the other: most of them serve only small requests.
pub(super) const FREE: [u32; 8] = [0, 0, 3, 0, 1, 7, 0, 12];

/// Sizes of the waiting requests, one after the other.
pub(super) const SIZES: [u32; 7] = [16, 8, 32, 16, 64, 4, 8];

/// Time between two requests: with thousands, most have waited for the backfill limit.
const GAP: SignedDuration = SignedDuration::from_secs(3);

/// Waiting time after which capacity is reserved.
const LIMIT: Duration = Duration::from_mins(10);

/// Decisions on one request; the middle one of their times counts.
const RUNS: usize = 31;

/// The measurements with a number of waiting requests.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// Number of controllers.
    pub controllers: usize,
    /// Number of waiting requests.
    pub requests: usize,
    /// Whether the node of every other controller is cordoned.
    pub is_half_cordoned: bool,
    /// One decision, on the last request of the queue.
    pub decision: Duration,
    /// The share of the queue in it, without the serial walk.
    pub queue: Duration,
    /// A decision on each request.
    pub round: Duration,
}

/// Measures decisions with this number of waiting requests. `is_half_cordoned`: the node of every
/// other controller is cordoned.
pub fn waiting(requests: usize, is_half_cordoned: bool) -> Waiting {
    let now = Timestamp::now();
    let partitions: Vec<_> = (0..requests)
        .rev()
        .zip(SIZES.into_iter().cycle())
        .map(|(later, ipus)| partition(requests - later, ipus, now, later))
        .collect();
    let entries = queue::entries(partitions.iter(), now);
    let pass = Pass::new(candidates(is_half_cordoned), entries, Vec::new(), LIMIT);
    let decide = |partition: &IPUPartition| decided(partition, &pass, now);
    let last = partitions.last();
    let (decision, queue) = last.map_or((Duration::ZERO, Duration::ZERO), |last| {
        let prepare = || pass.prepare(last, 0, now);
        (median_of(|| decide(last)), median_of(prepare))
    });
    let begun = Instant::now();
    for partition in &partitions {
        black_box(decide(partition));
    }
    Waiting {
        controllers: CONTROLLERS,
        requests,
        is_half_cordoned,
        decision,
        queue,
        round: begun.elapsed(),
    }
}

/// The controllers, each with a node.
fn candidates(is_half_cordoned: bool) -> Candidates {
    let nodes = (0..CONTROLLERS).map(|index| {
        let label = ("ipunode".to_owned(), format!("pod{index}"));
        Arc::new(NodeFacts {
            name: format!("node{index}"),
            labels: BTreeMap::from([label]),
            is_cordoned: is_half_cordoned && index % 2 == 0,
            ..NodeFacts::default()
        })
    });
    let nodes = NodeSnapshot::of(nodes.collect());
    Candidates::of((0..CONTROLLERS).map(view).collect(), CordonStates::new())
        .on_nodes(Some(Arc::new(nodes)))
}

/// The median time of many runs.
fn median_of<T>(run: impl Fn() -> T) -> Duration {
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let begun = Instant::now();
            black_box(run());
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[RUNS / 2]
}

/// Whether the request gets a controller, decided as a pass does.
fn decided(one: &IPUPartition, pass: &Pass, now: Timestamp) -> bool {
    let Placement::Ask(asked) = pass.prepare(one, 0, now) else {
        return false;
    };
    let request = partition_request(one, Default::default(), asked.waiting.clone(), 0, now);
    let decision = serial_walk(&request, asked.views(), &asked.tried);
    matches!(decision, Decision::Try(_))
}

fn view(index: usize) -> ControllerView {
    let free = FREE[index % FREE.len()];
    ControllerView {
        name: format!("controller-{index}.example.org:8090"),
        label_key: "ipunode".to_owned(),
        label_value: format!("pod{index}"),
        has_nodes: true,
        total_ipus: TOTAL,
        used_ipus: TOTAL - free,
        largest_free: largest_partition(free),
        ..ControllerView::default()
    }
}

/// A request with this number of later ones.
fn partition(number: usize, ipus: u32, now: Timestamp, later: usize) -> IPUPartition {
    let owner = format!("job-{number:06}");
    let spec = IPUPartitionSpec {
        owner: PartitionOwner {
            api_version: "graphcore.ai/v1alpha1".to_owned(),
            kind: "IPUJob".to_owned(),
            namespace: format!("team-{}", number % 50),
            name: owner.clone(),
            uid: owner.clone(),
        },
        slot: 0,
        ipus,
        gcds: 1,
        options: PartitionOptions::default(),
        owner_metadata: OwnerMetadata::default(),
        reset_generation: 0,
    };
    let mut partition = IPUPartition::new(&owner, spec);
    partition.metadata.uid = Some(owner);
    let waited = GAP * i32::try_from(later).unwrap_or(i32::MAX);
    partition.metadata.creation_timestamp = Some(Time(now - waited));
    partition
}
