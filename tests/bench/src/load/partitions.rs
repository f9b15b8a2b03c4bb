//! The vipu-proxy under load: requests for partitions, its usage with many partitions, and the time
//! of its decisions.

mod backlog;
mod bare;
mod decisions;
mod proxy;
mod waiting;

use std::ops::Range;
use std::time::{Duration, Instant};

pub use backlog::{Backlog, Period, Size, backlog};
pub use bare::bare_partitions;
pub use decisions::{Decided, decisions};
use serde_json::{Value, json};
use vipu_simulator::Simulator;
use vipu_simulator::faults::Method;
pub use waiting::{Waiting, waiting};

use self::proxy::Proxy;
use super::consumption::Consumption;
use super::product::FIRST;
use super::{Load, LoadError, vipu_controllers};
use cluster::api_writes::Writes;

/// Simulated V-IPU controllers over which the partitions are spread. The bound on a V-IPU
/// controller's replies allows the IPUs that each one needs for its share of 10,000 partitions.
const CONTROLLERS: usize = 64;

/// IPUs of each partition.
const IPUS: u32 = 2;

/// Time between two queries. The port accepts 100 requests a second from one address.
const QUERY_INTERVAL: Duration = Duration::from_millis(20);

/// Simulated V-IPU controllers behind `/query`.
const ASKED_CONTROLLERS: usize = 16;

/// The measurements of one load of partitions.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The speed and the writes.
    pub load: Load,
    /// The calls of the V-IPU controllers.
    pub calls: Calls,
    /// One of the objects, as a sample for other clients.
    pub object: Value,
}

/// The calls to the V-IPU controllers for all partitions, without the periodic reads of their
/// inventories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// CreatePartition.
    pub creates: u64,
    /// GetPartitionStatus.
    pub statuses: u64,
    /// GetPartitionIpuofConfig.
    pub configs: u64,
}

/// The usage of the proxy with one partition, and with many.
#[derive(Clone, Copy, Debug)]
pub struct Many {
    /// Number of partitions.
    pub count: usize,
    /// Consumption until the first one was ready.
    pub one: Consumption,
    /// Consumption until all of them were ready.
    pub ready: Consumption,
    /// The median of the minutes after that.
    pub idle: Consumption,
    /// After a sweep of all of them.
    pub swept: Consumption,
    /// The duration of that sweep.
    pub sweep: Duration,
}

impl Calls {
    /// All calls to these controllers so far.
    fn so_far(simulators: &[Simulator]) -> Self {
        let mut calls = Calls::default();
        for call in simulators.iter().flat_map(|one| one.server.calls(0)) {
            match call.method {
                Method::CreatePartition => calls.creates += 1,
                Method::GetPartitionStatus => calls.statuses += 1,
                Method::GetPartitionIpuofConfig => calls.configs += 1,
                _ => {}
            }
        }
        calls
    }

    fn since(self, before: Self) -> Self {
        Calls {
            creates: self.creates - before.creates,
            statuses: self.statuses - before.statuses,
            configs: self.configs - before.configs,
        }
    }
}

/// Measures partitions from the first request until all of them are ready.
pub async fn record_partitions(count: usize) -> Result<Recorded, LoadError> {
    let proxy = Proxy::start(CONTROLLERS, ipus_for(count)).await?;
    proxy.record(&[partition(FIRST, 0)]).await?;
    let object = proxy.object_of(FIRST).await?;
    let writes = Writes::so_far(&proxy.client).await.map_err(Box::new)?;
    let calls = Calls::so_far(&proxy.simulators);
    let all = notebooks(0..count);
    let used = Consumption::of_api_server(&proxy.plane)?;
    let begun = Instant::now();
    proxy.record(&all).await?;
    let took = begun.elapsed();
    // The proxy also writes the summary for users: one ConfigMap for all partitions.
    let others = [
        "POST ipupartitions",
        "PATCH configmaps",
        "POST events",
        "PATCH events",
    ];
    let writes = Writes::so_far(&proxy.client)
        .await
        .map_err(Box::new)?
        .since(&writes, &others);
    Ok(Recorded {
        load: Load {
            count,
            took,
            writes,
            api_server: Consumption::of_api_server(&proxy.plane)?.saturating_sub(used),
        },
        calls: Calls::so_far(&proxy.simulators).since(calls),
        object,
    })
}

/// Measures what the proxy uses with one and with `count` partitions, and its sweep of them.
pub async fn many_partitions(count: usize) -> Result<Many, LoadError> {
    let proxy = Proxy::start(CONTROLLERS, ipus_for(count)).await?;
    proxy.record(&[partition(FIRST, 0)]).await?;
    let one = proxy.consumption()?;
    // IPUJobs own half of them. The sweep must know whether these jobs exist.
    let half = count.div_ceil(2);
    proxy.record(&notebooks(1..half)).await?;
    proxy.record(&proxy.of_jobs(half..count).await?).await?;
    let ready = proxy.consumption()?;
    let idle = proxy.idle_consumption().await?;
    let sweep = proxy.once_swept(count).await?;
    Ok(Many {
        count,
        one,
        ready,
        idle,
        swept: proxy.consumption()?,
        sweep,
    })
}

/// The time of `/query` over HTTP, `runs` times, with 16 controllers whose inventories the proxy
/// reads every two seconds.
pub async fn queries(runs: usize) -> Result<Vec<Duration>, LoadError> {
    let proxy = Proxy::start(ASKED_CONTROLLERS, IPUS).await?;
    let (mut took, mut next) = (Vec::new(), tokio::time::interval(QUERY_INTERVAL));
    for _ in 0..runs {
        next.tick().await;
        let begun = Instant::now();
        proxy.query(IPUS).await?;
        took.push(begun.elapsed());
    }
    Ok(took)
}

/// IPUs of each controller: its share of the partitions, and one partition more.
fn ipus_for(count: usize) -> u32 {
    let share = u32::try_from(count.div_ceil(CONTROLLERS)).unwrap_or(u32::MAX);
    share.saturating_add(1).saturating_mul(IPUS)
}

fn notebooks(numbers: Range<usize>) -> Vec<Value> {
    numbers
        .map(|number| partition(&format!("notebook-{number}"), number))
        .collect()
}

/// Partition `number`, on one controller after the other. No controller reconciles the kind of its
/// owner.
fn partition(owner: &str, number: usize) -> Value {
    let uid = format!("uid-of-{owner}");
    partition_of(("example.com/v1", "Notebook"), (owner, &uid), number)
}

/// Partition `number`, of an owner of this version and kind, and of this name and UID.
fn partition_of((version, kind): (&str, &str), (owner, uid): (&str, &str), number: usize) -> Value {
    let owner = json!({
        "apiVersion": version, "kind": kind, "namespace": "default", "name": owner, "uid": uid,
    });
    let label = vipu_controllers::label(number % CONTROLLERS);
    json!({
        "apiVersion": ipu_api::API_VERSION,
        "kind": "IPUPartition",
        "metadata": {"name": format!("default.{}-0", owner["name"].as_str().unwrap_or_default())},
        "spec": {
            "owner": owner, "slot": 0, "ipus": IPUS, "gcds": 1,
            "options": {"nodeSelector": {"ipunode": label}},
        },
    })
}
