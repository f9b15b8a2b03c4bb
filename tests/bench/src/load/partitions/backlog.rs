//! Thousands of requests that wait on hundreds of V-IPU controllers, on a real API server and etcd:
//! what a small partition a second costs beside them, and how fast released IPUs are assigned.

mod figures;
mod followed;

use std::time::{Duration, Instant};

use cluster::api_writes::Writes;
use cluster::wait::{Seen, until};
use futures::{StreamExt, TryStreamExt, stream};
use ipu_api::ipupartition::{IPUPartition, PartitionPhase};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};
use vipu_simulator::Simulator;
use vipu_simulator::pod::PartitionSpec;

pub use self::figures::{Backlog, Period};
use self::figures::{most_refused, put_bytes, reactions};
use self::followed::Followed;
use super::super::bare::define;
use super::super::vipu_controllers::label;
use super::super::{LoadError, PATIENCE, SUBMITTED_AT_ONCE, api};
use super::proxy::{Proxy, api_server};
use super::waiting::{FREE, SIZES};
use super::{IPUS, partition_of};

/// IPUs of each V-IPU controller.
const TOTAL: u32 = 64;

/// IPUs of the partitions that are released, and of the first requests of the queue.
const RELEASED: u32 = 16;

/// Time between two small partitions, and between two releases.
const TICK: Duration = Duration::from_secs(1);

/// Small partitions that exist at a time, if they are slow.
const SMALL_AT_ONCE: usize = 32;

/// Time between two readings of what etcd has written.
const SETTLING: Duration = Duration::from_secs(10);

/// Bytes per second into etcd at which all waiting requests have their reason.
const SETTLED: f64 = 100_000.0;

/// The size of the load.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// V-IPU controllers. All but the last one have too few free IPUs for every waiting request, or
    /// free IPUs in pieces.
    pub controllers: usize,
    /// Waiting requests.
    pub requests: usize,
    /// Nodes, at least one for each controller.
    pub nodes: usize,
    /// Small partitions, one a second, without and with the waiting requests.
    pub seconds: usize,
    /// Releases of IPUs.
    pub releases: usize,
}

/// Measures a load of this size.
pub async fn backlog(size: Size) -> Result<Backlog, LoadError> {
    let (plane, client) = api_server().await?;
    define(&client, &ipu_api::crd::vipu_controller()).await?;
    let proxy = Proxy::start_on((plane, client), size.controllers, TOTAL).await?;
    more_nodes(&proxy, size).await?;
    let last = size.controllers - 1;
    let holders: Vec<_> = (0..TOTAL / RELEASED)
        .map(|number| pinned(&format!("holder-{number}"), &label(last)))
        .collect();
    proxy.record(&holders).await?;
    for (index, simulator) in proxy.simulators[..last].iter().enumerate() {
        fragment(simulator, FREE[index % FREE.len()])?;
    }
    proxy.once_settled().await?;
    let alone = proxy.period("alone", size.seconds).await?;
    let before = proxy.consumption()?;
    let asked = Instant::now();
    proxy.ask_for(&queue(size)).await?;
    proxy.once_settled().await?;
    let settled = asked.elapsed();
    let beside = proxy.period("beside", size.seconds).await?;
    let calls = proxy.simulators.iter().map(|one| one.server.calls(0));
    let refused_a_minute = most_refused(calls, beside.began, beside.took);
    let reactions = proxy.releases(last, size.releases).await?;
    Ok(Backlog {
        size,
        alone,
        settled,
        beside,
        refused_a_minute,
        reactions,
        before,
        after: proxy.consumption()?,
    })
}

impl Proxy {
    /// One small partition a second comes and goes, for as many seconds.
    async fn period(&self, name: &str, seconds: usize) -> Result<Period, LoadError> {
        let writes = Writes::so_far(&self.client).await.map_err(Box::new)?;
        let (bytes, used) = (put_bytes(&self.plane).await?, self.consumption()?);
        let (began, begun) = (jiff::Timestamp::now(), Instant::now());
        let ready = self.small(name, seconds).await?;
        let took = begun.elapsed();
        let bytes = put_bytes(&self.plane).await? - bytes;
        let cpu = self.consumption()?.cpu.saturating_sub(used.cpu);
        let now = Writes::so_far(&self.client).await.map_err(Box::new)?;
        Ok(Period {
            began,
            took,
            bytes_a_second: bytes / took.as_secs_f64(),
            cpu: cpu.as_secs_f64() / took.as_secs_f64(),
            writes: now.since(&writes, &[]),
            ready,
        })
    }

    /// Creates this number of small partitions, one a second, and deletes each once it is ready.
    /// Returns the times until they were ready.
    async fn small(&self, name: &str, count: usize) -> Result<Vec<Duration>, LoadError> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let numbers = stream::unfold((ticks, 0), |(mut ticks, number)| async move {
            ticks.tick().await;
            Some((number, (ticks, number + 1)))
        });
        numbers
            .take(count)
            .map(|number| self.come_and_go(request(&format!("{name}-{number}"), 1)))
            .buffer_unordered(SMALL_AT_ONCE)
            .try_collect()
            .await
    }

    async fn come_and_go(&self, object: Value) -> Result<Duration, LoadError> {
        let partitions: Api<IPUPartition> = Api::all(self.client.clone());
        let name = object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let begun = Instant::now();
        self.ask_for(std::slice::from_ref(&object)).await?;
        let ready = await_condition(partitions.clone(), &name, is_ready).await;
        ready.map_err(|error| LoadError::Missing(format!("{name}: {error}")))?;
        let took = begun.elapsed();
        let deleted = partitions.delete(&name, &DeleteParams::default()).await;
        deleted.map_err(api("delete a partition"))?;
        Ok(took)
    }

    /// Waits until the proxy writes little: each controller has its object, and each waiting
    /// request its reason.
    async fn once_settled(&self) -> Result<(), LoadError> {
        let mut ticks = interval(SETTLING);
        ticks.tick().await;
        let mut before = put_bytes(&self.plane).await?;
        until("the waiting requests to settle", PATIENCE, async || {
            ticks.tick().await;
            let now = put_bytes(&self.plane).await?;
            let rate = (now - before) / SETTLING.as_secs_f64();
            before = now;
            Ok::<_, LoadError>(Seen::when(rate, |rate| *rate < SETTLED))
        })
        .await?;
        Ok(())
    }

    /// Deletes partitions of the last controller, one after the other, while small partitions come
    /// and go. Returns the times from the end of each removal to the next request of a partition
    /// there.
    async fn releases(&self, last: usize, count: usize) -> Result<Vec<Duration>, LoadError> {
        let simulator = &self.simulators[last];
        let name = simulator.controller(&label(last)).name;
        let mut followed = Followed::start(self.client.clone(), name);
        let partitions: Api<IPUPartition> = Api::all(self.client.clone());
        let before = simulator
            .server
            .calls(0)
            .last()
            .map_or(0, |call| call.number);
        let release = async {
            let mut ticks = interval(TICK);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for _ in 0..count {
                ticks.tick().await;
                let held = followed.one().await?;
                let deleted = partitions.delete(&held, &DeleteParams::default()).await;
                deleted.map_err(api("delete a partition"))?;
                followed.once_replaced(&held).await?;
            }
            Ok::<_, LoadError>(())
        };
        tokio::select! {
            done = release => done?,
            small = self.small("meanwhile", usize::MAX) => drop(small?),
        }
        Ok(reactions(&simulator.server.calls(before)))
    }
}

/// More nodes, for one controller after the other.
async fn more_nodes(proxy: &Proxy, size: Size) -> Result<(), LoadError> {
    let nodes: Api<Node> = Api::all(proxy.client.clone());
    stream::iter(size.controllers..size.nodes)
        .map(Ok)
        .try_for_each_concurrent(SUBMITTED_AT_ONCE, async |number| {
            let label = label(number % size.controllers);
            let node = Node {
                metadata: ObjectMeta {
                    name: Some(format!("node-{number}")),
                    labels: Some([("ipunode".to_owned(), label)].into()),
                    ..ObjectMeta::default()
                },
                ..Node::default()
            };
            nodes.create(&PostParams::default(), &node).await.map(drop)
        })
        .await
        .map_err(api("make a node"))
}

/// Another user takes all IPUs of a controller but for `free` ones, of which no two are neighbours:
/// they hold no partition of two.
fn fragment(simulator: &Simulator, free: u32) -> Result<(), LoadError> {
    let id = |number: u32| format!("of-another-user-{number}");
    simulator
        .server
        .with(|world, now| {
            for number in 0..TOTAL {
                let spec = PartitionSpec {
                    id: id(number),
                    ipus: 1,
                    ..PartitionSpec::default()
                };
                world.pod.take(&spec, now)?;
            }
            (0..free).try_for_each(|number| world.pod.forget(&id(2 * number), now))
        })
        .map_err(|rejection| LoadError::Missing(rejection.to_string()))
}

/// The waiting requests. The first ones have the size of the partitions that are released.
fn queue(size: Size) -> Vec<Value> {
    let first = (0..size.releases).map(|number| request(&format!("first-{number:05}"), RELEASED));
    let sizes = SIZES.into_iter().cycle().enumerate();
    let others = sizes.map(|(number, ipus)| request(&format!("waits-{number:05}"), ipus));
    first.chain(others).take(size.requests).collect()
}

fn request(owner: &str, ipus: u32) -> Value {
    let mut object = pinned(owner, "");
    object["spec"]["ipus"] = ipus.into();
    object["spec"]["options"] = json!({});
    object
}

/// A request for nodes with this label.
fn pinned(owner: &str, label: &str) -> Value {
    let kind = ("example.com/v1", "Notebook");
    let mut object = partition_of(kind, (owner, &format!("uid-of-{owner}")), IPUS as usize);
    object["spec"]["ipus"] = RELEASED.into();
    object["spec"]["options"]["nodeSelector"]["ipunode"] = label.into();
    object
}

fn is_ready(object: Option<&IPUPartition>) -> bool {
    let status = object.and_then(|partition| partition.status.as_ref());
    status.is_some_and(|status| status.phase == PartitionPhase::Ready)
}
