//! The IPU-Machines of ready partitions, by the addresses in their IPUoF configurations.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use ipu_api::ipupartition::{ControllerRef, IPUPartition, PartitionPhase};
use ipu_runtime::{clock, metrics};
use ipu_text::sanitize;
use jiff::Timestamp;
use kube::ResourceExt;
use parking_lot::Mutex;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use vipu_client::model::Device;

use super::ANSWER_LIMIT;
use crate::controllers::ControllerPool;
use crate::store::Brief;

/// Age at which the addresses of a partition are read again: a program may reset its partition,
/// which may move it.
const AGE: Duration = Duration::from_mins(10);

/// The same if the V-IPU controller has reported no address.
const RETRY: Duration = Duration::from_mins(1);

/// Partitions that are read for one scrape. The next scrapes read the others.
const READS_MAX: usize = 64;

/// Partitions that are read at the same time. Each is a call for each of its GCDs.
const CONCURRENCY: usize = 4;

/// Maximum number of series: one for each partition and machine.
const SERIES_MAX: usize = 4_096;

/// Maximum bytes of a name in a label: those of an object of Kubernetes.
const NAME_MAX: usize = 253;

/// The machines of the ready partitions, as far as they are known. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Machines(Arc<Mutex<HashMap<Key, Entry>>>);

/// A partition on a V-IPU controller. A reset gives it another key, because it may move it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    controller: String,
    id: String,
    resets: i64,
    auto_resets: u32,
}

/// What a V-IPU controller has reported about a partition.
#[derive(Clone, Debug, Default)]
struct Entry {
    /// Begin of the last read.
    read: Timestamp,
    machines: BTreeMap<IpAddr, u32>,
}

/// A ready partition whose addresses are to be read.
struct Due {
    key: Key,
    controller: ControllerRef,
    ipus: u32,
    gcds: u32,
}

/// The labels of a partition on a machine.
type Labels = [(&'static str, String); 6];

/// Whether the partition is ready, and no deletion has begun.
pub(super) fn is_ready(brief: &Brief) -> bool {
    brief.phase == Some(PartitionPhase::Ready) && !brief.is_deleted()
}

impl Machines {
    /// Reads the addresses of partitions that are not known or were read too long ago, and forgets
    /// those of others.
    pub(super) async fn refresh(&self, ready: &[Arc<IPUPartition>], pool: &ControllerPool) {
        let due = due(&mut self.0.lock(), ready, clock::now());
        let reads = due.into_iter().map(|due| self.read(due, pool));
        let all = stream::iter(reads).buffer_unordered(CONCURRENCY).collect();
        // What this scrape has no time for, the next one reads.
        let _: Result<(), _> = tokio::time::timeout(ANSWER_LIMIT, all).await;
    }

    /// Reads the addresses of a partition. Without an answer, the known ones stay.
    async fn read(&self, due: Due, pool: &ControllerPool) {
        let Due {
            key, ipus, gcds, ..
        } = due;
        // Before the call, so that a controller that does not answer holds up no other one at the
        // next scrape.
        self.record(&key, BTreeMap::new());
        if let Ok(client) = pool.client(&due.controller) {
            let devices = client.devices(&key.id, gcds).await;
            self.record(&key, by_machine(&devices, ipus));
        }
    }

    fn record(&self, key: &Key, machines: BTreeMap<IpAddr, u32>) {
        let mut known = self.0.lock();
        let entry = known.entry(key.clone()).or_default();
        entry.read = clock::now();
        if !machines.is_empty() {
            entry.machines = machines;
        }
    }

    /// Registers what is known of these partitions.
    pub(super) fn expose(&self, ready: &[Arc<IPUPartition>], now: &mut Registry) {
        let known = self.0.lock();
        let machines: Family<Labels, Gauge> = Family::default();
        let (mut series, mut unknown) = (0, 0);
        for partition in ready {
            let entry = key(partition).and_then(|key| known.get(&key));
            let found = entry.map(|entry| &entry.machines);
            let found = found.filter(|found| !found.is_empty());
            let Some(found) = found.filter(|found| series + found.len() <= SERIES_MAX) else {
                unknown += 1;
                continue;
            };
            series += found.len();
            for (machine, ipus) in found {
                let gauge = machines.get_or_create(&labels(partition, *machine));
                gauge.set(i64::from(*ipus));
            }
        }
        now.register(
            "partition_machine_ipus",
            "IPUs of a ready partition on an IPU-Machine, by the machine's address in the IPUoF configuration. \
             Only with hardware.metrics.enabled",
            machines,
        );
        let count: Gauge = Gauge::default();
        count.set(metrics::count(unknown));
        now.register(
            "partitions_machines_unknown",
            "Ready partitions without ipu_operator_partition_machine_ipus: their V-IPU controller has reported no \
             addresses, or there are too many. Only with hardware.metrics.enabled",
            count,
        );
    }
}

/// The key of a ready partition. `None`: its status names no controller or id.
fn key(partition: &IPUPartition) -> Option<Key> {
    let status = partition.status.as_ref()?;
    Some(Key {
        controller: status.controller.as_ref()?.name.clone(),
        id: status.partition_id.clone()?,
        resets: status.observed_reset_generation,
        auto_resets: status.auto_resets.as_ref().map_or(0, |resets| resets.count),
    })
}

/// Forgets partitions that are not ready. Returns those whose addresses are to be read at `now`:
/// first those that were never read, then those that were read longest ago.
fn due(known: &mut HashMap<Key, Entry>, ready: &[Arc<IPUPartition>], now: Timestamp) -> Vec<Due> {
    let mut kept = HashMap::with_capacity(ready.len());
    let mut due = Vec::new();
    for partition in ready {
        let Some(key) = key(partition) else { continue };
        let entry = known.remove(&key);
        let read = entry.as_ref().map(|entry| entry.read);
        if entry.as_ref().is_none_or(|entry| is_old(entry, now)) {
            due.extend(asked(partition, &key).map(|asked| (read, asked)));
        }
        kept.extend(entry.map(|entry| (key, entry)));
    }
    *known = kept;
    due.sort_by_key(|(read, _)| *read);
    let due = due.into_iter().take(READS_MAX);
    due.map(|(_, asked)| asked).collect()
}

fn is_old(entry: &Entry, now: Timestamp) -> bool {
    let limit = if entry.machines.is_empty() {
        RETRY
    } else {
        AGE
    };
    let age = now.duration_since(entry.read);
    Duration::try_from(age).is_ok_and(|age| age >= limit)
}

fn asked(partition: &IPUPartition, key: &Key) -> Option<Due> {
    let controller = partition.status.as_ref()?.controller.clone()?;
    Some(Due {
        key: key.clone(),
        controller,
        ipus: partition.spec.ipus,
        gcds: partition.spec.gcds,
    })
}

/// IPUs on each machine, of at most as many devices as the partition has IPUs. Text that is no
/// address counts for none, so that no text of a V-IPU controller becomes a label.
fn by_machine(devices: &[Device], ipus: u32) -> BTreeMap<IpAddr, u32> {
    let mut machines = BTreeMap::new();
    let most = usize::try_from(ipus).unwrap_or(usize::MAX);
    for device in devices.iter().take(most) {
        if let Ok(address) = device.ip.parse::<IpAddr>() {
            *machines.entry(address).or_default() += 1;
        }
    }
    machines
}

fn labels(partition: &IPUPartition, machine: IpAddr) -> Labels {
    let owner = &partition.spec.owner;
    let status = partition.status.as_ref();
    let controller = status.and_then(|status| status.controller.as_ref());
    let controller = controller.map_or("", |controller| &controller.name);
    [
        ("machine", machine.to_string()),
        ("owner", sanitize(&owner.name, NAME_MAX)),
        ("owner_kind", sanitize(&owner.kind, NAME_MAX)),
        ("owner_namespace", sanitize(&owner.namespace, NAME_MAX)),
        ("partition", partition.name_any()),
        ("vipu_controller", sanitize(controller, NAME_MAX)),
    ]
}

#[cfg(test)]
mod tests;
