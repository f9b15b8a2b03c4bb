//! Pure: how many IPUs every namespace has and wants, counted as IPUPartitions come and go.
//!
//! A placement policy that holds namespaces to a quota must not be raced: two partitions that are
//! placed at the same moment would each be told of a namespace without the other. So what a policy
//! was told carries a stamp, and its "try" counts at once (`promise`), unless somebody was given
//! IPUs since the stamp: then the policy is asked again.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipu_api::ipupartition::{IPUPartition, IPUPartitionStatus};
use ipu_api::uid::Uid;
use kube::Resource;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;

use ipu_guest_host::facts::{OTHERS_MAX, Usage};
use ipu_runtime::watch_store::{Change, Store, by_ref};

/// What all namespaces have and want.
#[derive(Debug, Default)]
pub struct Tally {
    partitions: Store<Uid, Entry>,
    /// Names of namespaces are shared by all that is kept of their partitions.
    namespaces: BTreeMap<Arc<str>, Usage>,
    given: u64,
}

/// A moment of the tally: nobody was given IPUs between two that are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(u64);

/// A partition that a placement policy has just given a controller, before anything of it is
/// written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    uid: Uid,
    entry: Entry,
}

impl Promise {
    /// The promise of IPUs to this partition.
    pub fn to(partition: &IPUPartition) -> Self {
        let mut entry = Entry::of(partition);
        entry.promised = Some(entry.generation);
        let uid = partition.meta().uid.as_deref();
        let uid = Uid::of(uid.unwrap_or_default());
        Self { uid, entry }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    namespace: Arc<str>,
    ipus: u32,
    stand: Stand,
    /// The `status.generation` that was seen: it grows when an attempt is written down.
    generation: i64,
    /// The `status.generation` at which IPUs were promised, until the watch shows a later one.
    promised: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Held,
    Waits,
    Neither,
}

impl Entry {
    fn of(partition: &IPUPartition) -> Self {
        let status = partition.status.as_ref();
        let stand = if status.is_some_and(IPUPartitionStatus::is_placed) {
            Stand::Held
        } else if partition.is_waiting() {
            Stand::Waits
        } else {
            Stand::Neither
        };
        Self {
            namespace: partition.spec.owner.namespace.as_str().into(),
            ipus: partition.spec.ipus,
            stand,
            generation: status.map_or(0, |status| status.generation),
            promised: None,
        }
    }

    /// The same as it is seen later; a promise holds until what came of it is seen.
    fn after(mut self, before: Option<&Self>) -> Self {
        let promised = before.and_then(|before| before.promised);
        self.promised = promised.filter(|promised| self.generation <= *promised);
        self
    }

    /// The same with the name of its namespace that is kept already.
    fn in_one_of(mut self, namespaces: &BTreeMap<Arc<str>, Usage>) -> Self {
        if let Some((known, _)) = namespaces.get_key_value(&self.namespace) {
            self.namespace = Arc::clone(known);
        }
        self
    }

    fn usage(&self) -> Usage {
        let stand = match self.promised {
            Some(_) => Stand::Held,
            None => self.stand,
        };
        match stand {
            Stand::Held => Usage {
                ipus: self.ipus,
                partitions: 1,
                ..Usage::default()
            },
            Stand::Waits => Usage {
                waiting_ipus: self.ipus,
                waiting_partitions: 1,
                ..Usage::default()
            },
            Stand::Neither => Usage::default(),
        }
    }
}

impl Tally {
    /// Takes in what a watch of all IPUPartitions tells. One that cannot be read any more counts as
    /// it was.
    pub fn hear(&mut self, event: &Event<DeserializeGuard<IPUPartition>>) {
        let uid =
            |object: &&DeserializeGuard<IPUPartition>| object.meta().uid.as_deref().map(Uid::of);
        let namespaces = &self.namespaces;
        let changes = self
            .partitions
            .apply_event(by_ref(event), uid, |uid, object, known| {
                let before = known.get(uid);
                match &object.0 {
                    Ok(partition) => Some(Entry::of(partition).after(before).in_one_of(namespaces)),
                    Err(_) => before.cloned(),
                }
            });
        for change in changes {
            self.count(change);
        }
    }

    /// Now, for `promise`.
    pub fn stamp(&self) -> Stamp {
        Stamp(self.given)
    }

    /// What a namespace has and wants, the partition of UID `but` not counted; none before the
    /// partitions were listed.
    pub fn of(&self, namespace: &str, but: &str) -> Option<Usage> {
        if !self.partitions.is_listed() {
            return None;
        }
        let mut usage = self.namespaces.get(namespace).copied().unwrap_or_default();
        let own = self.partitions.objects().get(&Uid::of(but));
        if let Some(own) = own.filter(|own| *own.namespace == *namespace) {
            subtract(&mut usage, own.usage());
        }
        Some(usage)
    }

    /// What every namespace has and wants, where it has or wants anything.
    pub fn all(&self) -> Vec<(String, Usage)> {
        let all = self.namespaces.iter();
        all.map(|(name, usage)| (name.to_string(), *usage))
            .collect()
    }

    /// What the other namespaces have and want: those with the most.
    pub fn others(&self, namespace: &str) -> BTreeMap<String, Usage> {
        let others = self.namespaces.iter();
        let mut others: Vec<_> = others.filter(|(name, _)| ***name != *namespace).collect();
        let most = |usage: &Usage| u64::from(usage.ipus) + u64::from(usage.waiting_ipus);
        others.sort_by(|(one, has), (other, hers)| most(hers).cmp(&most(has)).then(one.cmp(other)));
        others.truncate(OTHERS_MAX);
        let pairs = others.into_iter();
        pairs
            .map(|(name, usage)| (name.to_string(), *usage))
            .collect()
    }

    /// Counts a partition as held from now on, if nobody was given IPUs since `stamp`. Whether it was.
    pub fn promise(&mut self, promise: Promise, stamp: Stamp) -> bool {
        if self.stamp() != stamp {
            return false;
        }
        self.replace(promise.uid, promise.entry);
        true
    }

    /// Takes a promise back.
    pub fn withdraw(&mut self, uid: &str) {
        let uid = Uid::of(uid);
        if let Some(mut entry) = self.partitions.objects().get(&uid).cloned() {
            entry.promised = None;
            self.replace(uid, entry);
        }
    }

    /// A partition that is gone meanwhile counts no more.
    fn replace(&mut self, uid: Uid, entry: Entry) {
        if let Some(change) = self.partitions.replace(uid, entry) {
            self.count(change);
        }
    }

    fn count(&mut self, change: Change<Uid, Entry>) {
        let now = self.partitions.objects().get(&change.key);
        let has = now.map(Entry::usage).unwrap_or_default();
        let had = change.before.as_ref().map(Entry::usage);
        self.given += u64::from(has.ipus > had.unwrap_or_default().ipus);
        if let Some(now) = now {
            let usage = self.namespaces.entry(Arc::clone(&now.namespace));
            add(usage.or_default(), has);
        }
        if let Some(before) = change.before {
            self.take_off(&before);
        }
    }

    fn take_off(&mut self, entry: &Entry) {
        let Some(usage) = self.namespaces.get_mut(&entry.namespace) else {
            return;
        };
        subtract(usage, entry.usage());
        if *usage == Usage::default() {
            self.namespaces.remove(&entry.namespace);
        }
    }
}

fn add(usage: &mut Usage, more: Usage) {
    usage.ipus = usage.ipus.saturating_add(more.ipus);
    usage.partitions = usage.partitions.saturating_add(more.partitions);
    usage.waiting_ipus = usage.waiting_ipus.saturating_add(more.waiting_ipus);
    usage.waiting_partitions = usage
        .waiting_partitions
        .saturating_add(more.waiting_partitions);
}

fn subtract(usage: &mut Usage, less: Usage) {
    usage.ipus = usage.ipus.saturating_sub(less.ipus);
    usage.partitions = usage.partitions.saturating_sub(less.partitions);
    usage.waiting_ipus = usage.waiting_ipus.saturating_sub(less.waiting_ipus);
    usage.waiting_partitions = usage
        .waiting_partitions
        .saturating_sub(less.waiting_partitions);
}

#[cfg(test)]
mod tests;
