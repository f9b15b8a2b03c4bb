//! Duration of a decision on a partition, and of an answer to `/query`, over few and many
//! controllers.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use cluster::settings::Settings;
use ipu_api::guest::placement::{ControllerView, PartitionRequest, PlacementContext};
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::{GuestHost, GuestHostOptions};
use ipu_placement::backfill;
use ipu_placement::queue::{self, QueueEntry};
use ipu_placement::samples;
use ipu_policies::active_policies::ActivePolicies;
use ipu_rest::query_request::QueryRequest;
use ipu_rest::what_if;
use jiff::{SignedDuration, Timestamp};

use super::super::LoadError;

/// Decisions of each kind. The median of their times counts.
const RUNS: usize = 301;

/// IPUs of each controller.
const TOTAL: u32 = 64;

/// IPUs of the evaluated partition, which fits only on the last controller.
const REQUESTED_IPUS: u32 = 4;

/// IPUs of the earlier requests, which fit on no controller.
const EARLIER_IPUS: u32 = 16;

/// Duration of the decisions with a number of controllers.
#[derive(Clone, Copy, Debug)]
pub struct Decided {
    /// Number of controllers.
    pub controllers: usize,
    /// The capacity for it in an empty queue.
    pub capacity: Duration,
    /// The same, behind 1,000 earlier requests.
    pub capacity_behind_1000: Duration,
    /// The serial walk, as native code.
    pub native: Duration,
    /// The placement guest's answer, checked.
    pub guest: Duration,
    /// The answer to `/query` by the guest, once the controllers' inventories are known.
    pub query: Duration,
}

/// Measures each decision with this number of controllers, in this process.
pub async fn decisions(controllers: usize) -> Result<Decided, LoadError> {
    let guest = placement_guest().await?;
    let views: Vec<_> = (0..controllers)
        .map(|index| view(index, index + 1 == controllers))
        .collect();
    let request = PartitionRequest {
        namespace: "default".to_owned(),
        owner: "me".to_owned(),
        slot: 0,
        ipus: REQUESTED_IPUS,
        gcds: 1,
        node_selector: BTreeMap::new(),
        context: PlacementContext::default(),
    };
    let query = QueryRequest {
        size: REQUESTED_IPUS,
        gcds: 1,
        namespace: request.namespace.clone(),
        node_selector: BTreeMap::new(),
        gang_size: 1,
    };
    let (mut placed, mut answered) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let begun = Instant::now();
        let decided = guest.place(black_box(&request), &views, &[]).await;
        placed.push(begun.elapsed());
        if let Some(why) = decided.overruled {
            return Err(LoadError::Missing(format!("no answer of the guest: {why}")));
        }
        let begun = Instant::now();
        black_box(
            what_if::answer(
                &guest,
                black_box(&query),
                PlacementContext::default(),
                &views,
            )
            .await,
        );
        answered.push(begun.elapsed());
    }
    Ok(Decided {
        controllers,
        capacity: capacity_for(0, &views),
        capacity_behind_1000: capacity_for(1_000, &views),
        native: timed(|| ipu_placement::serial_walk::serial_walk(black_box(&request), &views, &[])),
        guest: median(&mut placed),
        query: median(&mut answered),
    })
}

/// The time to compute the capacity behind this number of earlier requests, whose decisions follow.
fn capacity_for(earlier_entries: usize, views: &[ControllerView]) -> Duration {
    let now = Timestamp::now();
    let limit = SignedDuration::from_mins(10);
    let me = entry("me", REQUESTED_IPUS, now);
    let mut entries: Vec<_> = (0..earlier_entries)
        .map(|number| {
            let asked = now - SignedDuration::from_mins(1);
            entry(&format!("earlier-{number}"), EARLIER_IPUS, asked)
        })
        .collect();
    entries.push(me.clone());
    queue::in_order(&mut entries);
    timed(|| backfill::capacity_for(black_box(&me), &entries, &[], 0, views.to_vec(), limit, now))
}

/// The built-in guest for placement, as `make dist` builds it.
async fn placement_guest() -> Result<ActivePolicies, LoadError> {
    let options = GuestHostOptions {
        guests_dir: Settings::from_env()?.checkout.join("dist/guests"),
        hooks: vec![Hook::Placement],
        ..GuestHostOptions::default()
    };
    Ok(ActivePolicies::new(GuestHost::open(options).await?))
}

fn timed<T>(decide: impl Fn() -> T) -> Duration {
    let mut times: Vec<_> = (0..RUNS)
        .map(|_| {
            let begun = Instant::now();
            black_box(decide());
            begun.elapsed()
        })
        .collect();
    median(&mut times)
}

/// The median of an odd number of times.
fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn view(index: usize, is_free: bool) -> ControllerView {
    let free = if is_free { REQUESTED_IPUS } else { 0 };
    ControllerView {
        name: format!("controller-{index}.example.org:8090"),
        label_key: "ipunode".to_owned(),
        label_value: format!("pod{index}"),
        has_nodes: true,
        unschedulable: None,
        unreachable: None,
        total_ipus: TOTAL,
        used_ipus: TOTAL - free,
        largest_free: free,
        free_blocks: Vec::new(),
        failures: 0,
    }
}

fn entry(name: &str, ipus: u32, created: Timestamp) -> QueueEntry {
    let mut entry = samples::waiting(name, ipus, created);
    entry.is_expected = true;
    entry
}
