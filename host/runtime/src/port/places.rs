//! Shares a limited number of places among addresses: the address with the fewest gets the next one, and the address
//! with the most is preempted.

mod queue;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use queue::Queue;

/// The number of places, the maximum for one address, and the maximum number of waiting requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// All places.
    pub total: usize,
    /// Maximum places of one address.
    pub each: usize,
    /// Maximum number of waiting requests of all addresses together.
    pub queue: usize,
}

/// Why no place is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// The address has its share.
    #[error("this address has reached the limit for one address ({0} at the same time); try again")]
    Address(usize),
    /// All places are taken.
    #[error("the limit for all addresses is reached ({0} at the same time); try again")]
    Total(usize),
}

impl Full {
    /// The value of the label `limit`.
    pub const fn limit(self) -> &'static str {
        match self {
            Self::Address(_) => "address",
            Self::Total(_) => "total",
        }
    }
}

/// The order in which places of one address are preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Places of clients that have sent nothing useful yet.
    New,
    /// Places of other clients that the server waits for.
    Idle,
}

/// Places of one kind. Clones share them.
#[derive(Clone, Debug)]
pub struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    share: Share,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_address: HashMap<IpAddr, Held>,
    /// Number of places made preemptible so far. It orders them by time.
    sequence: u64,
    queue: Queue,
}

/// The places of one address.
#[derive(Debug, Default)]
struct Held {
    amount: usize,
    preemptible: BTreeMap<Key, Preemptible>,
}

type Key = (Rank, u64);

#[derive(Debug)]
struct Preemptible {
    amount: usize,
    preempted: CancellationToken,
}

impl Places {
    /// Creates places that are all free.
    pub fn new(share: Share) -> Self {
        let taken = Mutex::default();
        Self(Arc::new(Shared { share, taken }))
    }

    /// Takes `amount` places for an address, without waiting. Preempts places of addresses that have more.
    pub fn take(&self, address: IpAddr, amount: usize) -> Result<Place, Full> {
        // An IPv4-mapped IPv6 address is the same address.
        let address = address.to_canonical();
        let mut taken = self.0.taken();
        match taken.make_available(self.0.share, address, amount) {
            Ok(()) => Ok(self.0.place(&mut taken, address, amount)),
            Err(full) => Err(full),
        }
    }

    /// As [`Self::take`], but waits up to this time if too few places are free. Among the waiting requests, the one of
    /// the address that will have the fewest places is first.
    pub async fn take_within(
        &self,
        address: IpAddr,
        amount: usize,
        patience: Duration,
    ) -> Result<Place, Full> {
        let address = address.to_canonical();
        let queued = self.0.taken().queue.push(address, amount, self.0.share);
        let (number, granted) = queued?;
        let _waits = Waits {
            shared: &self.0,
            number,
        };
        self.0.grant();
        match timeout(patience, granted).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(self.0.taken().lack(self.0.share, address, amount)),
        }
    }

    /// Preempts the first preemptible place of an address. Returns whether there was one.
    pub fn preempt(&self, address: IpAddr) -> bool {
        self.0.taken().preempt(address.to_canonical())
    }
}

impl Shared {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock()
    }

    fn place(self: &Arc<Self>, taken: &mut Taken, address: IpAddr, amount: usize) -> Place {
        if amount > 0 {
            taken.all += amount;
            taken.by_address.entry(address).or_default().amount += amount;
        }
        Place {
            shared: self.clone(),
            address,
            amount,
            key: None,
            preempted: CancellationToken::new(),
        }
    }

    /// Grants places to waiting requests while enough are free.
    fn grant(self: &Arc<Self>) {
        let mut granted = Vec::new();
        let mut taken = self.taken();
        while let Some(next) = taken.next_waiter(self.share) {
            let (address, amount) = (next.address, next.amount);
            if taken.make_available(self.share, address, amount).is_err() {
                break;
            }
            let waiter = taken.queue.remove(next.number);
            let place = self.place(&mut taken, address, amount);
            granted.extend(waiter.map(|waiter| (waiter, place)));
        }
        drop(taken);
        for (waiter, place) in granted {
            // If a request does not wait any more, its place is dropped, which passes it on.
            let _ = waiter.send(place);
        }
    }
}

impl Taken {
    fn of(&self, address: IpAddr) -> usize {
        self.by_address.get(&address).map_or(0, |held| held.amount)
    }

    fn lack(&self, share: Share, address: IpAddr, amount: usize) -> Full {
        if self.of(address) + amount > share.each {
            return Full::Address(share.each);
        }
        Full::Total(share.total)
    }

    /// Makes this number of places available to an address. Preempts places of other addresses if necessary.
    fn make_available(&mut self, share: Share, address: IpAddr, amount: usize) -> Result<(), Full> {
        let after = self.of(address) + amount;
        if after > share.each {
            return Err(Full::Address(share.each));
        }
        let full = Full::Total(share.total);
        let excess = (self.all + amount).saturating_sub(share.total);
        if excess > self.can_give_way(after) {
            return Err(full);
        }
        while self.all + amount > share.total {
            let others = self.by_address.iter();
            let others = others.filter(|(_, held)| held.gives_way_to(after));
            let most = others.max_by_key(|(_, held)| held.amount);
            let most = most.map(|(address, _)| *address).ok_or(full)?;
            self.preempt(most);
        }
        Ok(())
    }

    /// Number of places that can be preempted for an address that will have `after`.
    fn can_give_way(&self, after: usize) -> usize {
        let others = self.by_address.values();
        let others = others.filter(|held| held.gives_way_to(after));
        let preemptible = others.flat_map(|held| held.preemptible.values());
        preemptible.map(|one| one.amount).sum()
    }

    fn preempt(&mut self, address: IpAddr) -> bool {
        let held = self.by_address.get_mut(&address);
        let Some((_, first)) = held.and_then(|held| held.preemptible.pop_first()) else {
            return false;
        };
        self.give_back(address, first.amount);
        first.preempted.cancel();
        true
    }

    fn give_back(&mut self, address: IpAddr, amount: usize) {
        self.all -= amount;
        let left = self.of(address) - amount;
        match self.by_address.get_mut(&address) {
            Some(held) if left > 0 => held.amount = left,
            // An address without places is dropped, so that the map does not grow.
            _ => drop(self.by_address.remove(&address)),
        }
    }
}

impl Held {
    /// Whether places of this address can be preempted for an address that will have `after`: only if that is fewer.
    fn gives_way_to(&self, after: usize) -> bool {
        self.amount > after && !self.preemptible.is_empty()
    }
}

/// Removes a request from the queue when its wait ends in any way.
struct Waits<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.shared.taken().queue.remove(self.number);
    }
}

/// Taken places, until this is dropped or preempted.
#[derive(Debug)]
pub struct Place {
    shared: Arc<Shared>,
    address: IpAddr,
    amount: usize,
    key: Option<Key>,
    preempted: CancellationToken,
}

impl Place {
    /// Allows preemption from now on.
    pub fn set_preemptible(&mut self, rank: Rank) {
        self.keep();
        if self.amount == 0 {
            return;
        }
        let mut taken = self.shared.taken();
        taken.sequence += 1;
        let key = (rank, taken.sequence);
        if let Some(held) = taken.by_address.get_mut(&self.address) {
            let (amount, preempted) = (self.amount, self.preempted.clone());
            let preemptible = Preemptible { amount, preempted };
            held.preemptible.insert(key, preemptible);
            self.key = Some(key);
        }
        drop(taken);
        self.shared.grant();
    }

    /// Prevents preemption from now on, unless it has happened.
    pub fn keep(&mut self) {
        let Some(key) = self.key.take() else {
            return;
        };
        let mut taken = self.shared.taken();
        let held = taken.by_address.get_mut(&self.address);
        if held
            .and_then(|held| held.preemptible.remove(&key))
            .is_none()
        {
            self.amount = 0;
        }
    }

    /// The token that is cancelled on preemption.
    pub fn preempted(&self) -> CancellationToken {
        self.preempted.clone()
    }

    /// Merges another place of the same address into this one. The other one is not preemptible.
    pub fn join(&mut self, mut other: Self) {
        let rank = self.key.map(|(rank, _)| rank);
        self.keep();
        if self.amount > 0 {
            self.amount += std::mem::take(&mut other.amount);
        }
        if let Some(rank) = rank {
            self.set_preemptible(rank);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.keep();
        if self.amount > 0 {
            self.shared.taken().give_back(self.address, self.amount);
            self.shared.grant();
        }
    }
}

#[cfg(test)]
mod tests;
