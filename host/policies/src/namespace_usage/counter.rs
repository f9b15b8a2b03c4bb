//! Pure: counts the IPUs that every namespace has and requests, from the IPUPartitions.
//!
//! A quota in a placement policy must hold if two partitions are placed shortly after one another.
//! Decisions are made one at a time, and the decision "try" counts at once (`reserve`), before the
//! watch shows its result.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipu_api::guest::namespace::{Usage, others};
use ipu_api::ipupartition::{IPUPartition, IPUPartitionStatus};
use ipu_api::uid::Uid;
use ipu_runtime::watch_store::{Change, Store, by_ref};
use kube::Resource;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;

/// The usage of all namespaces.
#[derive(Debug, Default)]
pub struct UsageCounter {
    partitions: Store<Uid, PartitionUsage>,
    /// The usage by namespace. The entries of the partitions share the names.
    namespaces: BTreeMap<Arc<str>, Usage>,
}

/// A partition that a placement policy has just placed, before the operator writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    uid: Uid,
    usage: PartitionUsage,
}

impl Reservation {
    /// The reservation for this partition.
    pub fn of(partition: &IPUPartition) -> Self {
        let mut usage = PartitionUsage::of(partition);
        usage.reserved_at = Some(usage.generation);
        let uid = partition.meta().uid.as_deref();
        let uid = Uid::of(uid.unwrap_or_default());
        Self { uid, usage }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PartitionUsage {
    namespace: Arc<str>,
    ipus: u32,
    state: UsageState,
    /// The observed `status.generation`, which grows with each attempt.
    generation: i64,
    /// The `status.generation` of the reservation, until the watch shows a later one.
    reserved_at: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UsageState {
    Placed,
    Waiting,
    Unused,
}

impl PartitionUsage {
    fn of(partition: &IPUPartition) -> Self {
        let status = partition.status.as_ref();
        let state = if status.is_some_and(IPUPartitionStatus::is_placed) {
            UsageState::Placed
        } else if partition.is_waiting() {
            UsageState::Waiting
        } else {
            UsageState::Unused
        };
        Self {
            namespace: partition.spec.owner.namespace.as_str().into(),
            ipus: partition.spec.ipus,
            state,
            generation: status.map_or(0, |status| status.generation),
            reserved_at: None,
        }
    }

    /// Keeps the reservation of the previous version until the watch shows its result.
    fn with_reservation_of(mut self, previous: Option<&Self>) -> Self {
        let reserved_at = previous.and_then(|previous| previous.reserved_at);
        self.reserved_at = reserved_at.filter(|reserved_at| self.generation <= *reserved_at);
        self
    }

    /// Shares the name of its namespace with the other entries.
    fn with_shared_name(mut self, namespaces: &BTreeMap<Arc<str>, Usage>) -> Self {
        if let Some((known, _)) = namespaces.get_key_value(&self.namespace) {
            self.namespace = Arc::clone(known);
        }
        self
    }

    fn usage(&self) -> Usage {
        let state = match self.reserved_at {
            Some(_) => UsageState::Placed,
            None => self.state,
        };
        match state {
            UsageState::Placed => Usage {
                ipus: self.ipus,
                partitions: 1,
                ..Usage::default()
            },
            UsageState::Waiting => Usage {
                waiting_ipus: self.ipus,
                waiting_partitions: 1,
                ..Usage::default()
            },
            UsageState::Unused => Usage::default(),
        }
    }
}

impl UsageCounter {
    /// Applies an event of a watch of all IPUPartitions. An object that became invalid keeps its
    /// previous usage.
    pub fn apply_event(&mut self, event: &Event<DeserializeGuard<IPUPartition>>) {
        let uid =
            |object: &&DeserializeGuard<IPUPartition>| object.meta().uid.as_deref().map(Uid::of);
        let namespaces = &self.namespaces;
        let changes = self
            .partitions
            .apply_event(by_ref(event), uid, |uid, object, known| {
                let before = known.get(uid);
                match &object.0 {
                    Ok(partition) => Some(
                        PartitionUsage::of(partition)
                            .with_reservation_of(before)
                            .with_shared_name(namespaces),
                    ),
                    Err(_) => before.cloned(),
                }
            });
        for change in changes {
            self.count(change);
        }
    }

    /// Returns the usage of a namespace without the partition with the UID `excluded`. `None` until
    /// the partitions are listed.
    pub fn of(&self, namespace: &str, excluded: &str) -> Option<Usage> {
        if !self.partitions.is_listed() {
            return None;
        }
        let mut usage = self.namespaces.get(namespace).copied().unwrap_or_default();
        let own = self.partitions.objects().get(&Uid::of(excluded));
        if let Some(own) = own.filter(|own| *own.namespace == *namespace) {
            adjust(&mut usage, own.usage(), u32::saturating_sub);
        }
        Some(usage)
    }

    /// Returns the usage of every namespace that has or requests IPUs.
    pub fn all(&self) -> Vec<(String, Usage)> {
        let all = self.namespaces.iter();
        all.map(|(name, usage)| (name.to_string(), *usage))
            .collect()
    }

    /// Returns the usage of the other namespaces with the most IPUs.
    pub fn others(&self, namespace: &str) -> BTreeMap<String, Usage> {
        others(&self.namespaces, namespace)
    }

    /// Counts a partition as placed.
    pub fn reserve(&mut self, reservation: Reservation) {
        self.replace(reservation.uid, reservation.usage);
    }

    /// Releases a reservation.
    pub fn release(&mut self, uid: &str) {
        let uid = Uid::of(uid);
        if let Some(mut usage) = self.partitions.objects().get(&uid).cloned() {
            usage.reserved_at = None;
            self.replace(uid, usage);
        }
    }

    /// Releases all reservations.
    pub fn release_all(&mut self) {
        let all = self.partitions.objects().iter();
        let reserved = all.filter(|(_, usage)| usage.reserved_at.is_some());
        let released = reserved.map(|(uid, usage)| {
            let mut usage = usage.clone();
            usage.reserved_at = None;
            (*uid, usage)
        });
        for (uid, usage) in released.collect::<Vec<_>>() {
            self.replace(uid, usage);
        }
    }

    /// Replaces the usage of a partition, unless it was deleted.
    fn replace(&mut self, uid: Uid, usage: PartitionUsage) {
        if let Some(change) = self.partitions.replace(uid, usage) {
            self.count(change);
        }
    }

    fn count(&mut self, change: Change<Uid, PartitionUsage>) {
        let now = self.partitions.objects().get(&change.key);
        if let Some(now) = now {
            let usage = self.namespaces.entry(Arc::clone(&now.namespace));
            adjust(usage.or_default(), now.usage(), u32::saturating_add);
        }
        if let Some(before) = change.before {
            self.subtract(&before);
        }
    }

    fn subtract(&mut self, partition: &PartitionUsage) {
        let Some(usage) = self.namespaces.get_mut(&partition.namespace) else {
            return;
        };
        adjust(usage, partition.usage(), u32::saturating_sub);
        if *usage == Usage::default() {
            self.namespaces.remove(&partition.namespace);
        }
    }
}

/// Adds or subtracts.
fn adjust(usage: &mut Usage, by: Usage, changed: fn(u32, u32) -> u32) {
    usage.ipus = changed(usage.ipus, by.ipus);
    usage.partitions = changed(usage.partitions, by.partitions);
    usage.waiting_ipus = changed(usage.waiting_ipus, by.waiting_ipus);
    usage.waiting_partitions = changed(usage.waiting_partitions, by.waiting_partitions);
}

#[cfg(test)]
mod tests;
