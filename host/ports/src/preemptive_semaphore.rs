//! A semaphore that shares its permits among addresses: the address with the fewest gets the next
//! one, and the address with the most is preempted.

mod queue;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time;
use tokio_util::sync::CancellationToken;

use queue::Queue;

/// The number of permits, the maximum for one address, and the maximum number of waiting requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// All permits.
    pub total: usize,
    /// Maximum permits of one address.
    pub each: usize,
    /// Maximum number of waiting requests of all addresses together.
    pub queue: usize,
}

/// Reason why no permit is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// The address has its share.
    #[error("this address has reached the limit for one address ({0} at the same time); try again")]
    Address(usize),
    /// All permits are taken.
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

/// The order in which permits of one address are preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Permits of clients that have sent nothing useful yet.
    New,
    /// Permits of other clients that the server waits for.
    Idle,
}

/// A number of permits. Clones share them.
#[derive(Clone, Debug)]
pub struct PreemptiveSemaphore(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    share: Share,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    acquired: usize,
    by_address: HashMap<IpAddr, AddressPermits>,
    /// Number of permits made preemptible so far. It orders them by time.
    sequence: u64,
    queue: Queue,
}

/// The acquired permits of one address.
#[derive(Debug, Default)]
struct AddressPermits {
    amount: usize,
    preemptible: BTreeMap<Key, Preemptible>,
}

type Key = (Rank, u64);

#[derive(Debug)]
struct Preemptible {
    amount: usize,
    preempted: CancellationToken,
}

impl PreemptiveSemaphore {
    /// A semaphore with all permits free.
    pub fn new(share: Share) -> Self {
        let state = Mutex::default();
        Self(Arc::new(Shared { share, state }))
    }

    /// Acquires `amount` permits for an address, without waiting. Preempts permits of addresses
    /// that have more.
    pub fn try_acquire(&self, address: IpAddr, amount: usize) -> Result<Permit, Full> {
        // An IPv4-mapped IPv6 address is the same address.
        let address = address.to_canonical();
        let mut state = self.0.state.lock();
        match state.make_available(self.0.share, address, amount) {
            Ok(()) => Ok(self.0.permit(&mut state, address, amount)),
            Err(full) => Err(full),
        }
    }

    /// As [`Self::try_acquire`], but waits up to this time if too few permits are free. Among the
    /// waiting requests, the one of the address that will have the fewest permits is first.
    pub async fn acquire(
        &self,
        address: IpAddr,
        amount: usize,
        timeout: Duration,
    ) -> Result<Permit, Full> {
        let address = address.to_canonical();
        let share = self.0.share;
        let queued = self.0.state.lock().queue.push(address, amount, share);
        let (number, granted) = queued?;
        let _guard = QueueGuard {
            shared: &self.0,
            number,
        };
        self.0.grant();
        match time::timeout(timeout, granted).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(self.0.state.lock().lack(share, address, amount)),
        }
    }

    /// Preempts the first preemptible permit of an address. Returns whether there was one.
    pub fn preempt(&self, address: IpAddr) -> bool {
        self.0.state.lock().preempt(address.to_canonical())
    }
}

impl Shared {
    fn permit(self: &Arc<Self>, state: &mut State, address: IpAddr, amount: usize) -> Permit {
        if amount > 0 {
            state.acquired += amount;
            state.by_address.entry(address).or_default().amount += amount;
        }
        Permit {
            shared: self.clone(),
            address,
            amount,
            key: None,
            preempted: CancellationToken::new(),
        }
    }

    /// Grants permits to waiting requests while enough are free.
    fn grant(self: &Arc<Self>) {
        let mut granted = Vec::new();
        let mut state = self.state.lock();
        while let Some(next) = state.next_request(self.share) {
            let (address, amount) = (next.address, next.amount);
            if state.make_available(self.share, address, amount).is_err() {
                break;
            }
            let request = state.queue.remove(next.number);
            let permit = self.permit(&mut state, address, amount);
            granted.extend(request.map(|request| (request, permit)));
        }
        drop(state);
        for (request, permit) in granted {
            // If a request does not wait any more, its permit is dropped, which passes it on.
            let _ = request.send(permit);
        }
    }
}

impl State {
    fn of(&self, address: IpAddr) -> usize {
        let permits = self.by_address.get(&address);
        permits.map_or(0, |permits| permits.amount)
    }

    fn lack(&self, share: Share, address: IpAddr, amount: usize) -> Full {
        if self.of(address) + amount > share.each {
            return Full::Address(share.each);
        }
        Full::Total(share.total)
    }

    /// Makes this number of permits available to an address. Preempts permits of other addresses if
    /// necessary.
    fn make_available(&mut self, share: Share, address: IpAddr, amount: usize) -> Result<(), Full> {
        let after = self.of(address) + amount;
        if after > share.each {
            return Err(Full::Address(share.each));
        }
        let full = Full::Total(share.total);
        let excess = (self.acquired + amount).saturating_sub(share.total);
        if excess > self.preemptible_for(after) {
            return Err(full);
        }
        while self.acquired + amount > share.total {
            let others = self.by_address.iter();
            let others = others.filter(|(_, permits)| permits.are_preemptible_for(after));
            let most = others.max_by_key(|(_, permits)| permits.amount);
            let most = most.map(|(address, _)| *address).ok_or(full)?;
            self.preempt(most);
        }
        Ok(())
    }

    /// Number of permits that can be preempted for an address that will have `after`.
    fn preemptible_for(&self, after: usize) -> usize {
        let others = self.by_address.values();
        let others = others.filter(|permits| permits.are_preemptible_for(after));
        let preemptible = others.flat_map(|permits| permits.preemptible.values());
        preemptible.map(|one| one.amount).sum()
    }

    fn preempt(&mut self, address: IpAddr) -> bool {
        let permits = self.by_address.get_mut(&address);
        let first = permits.and_then(|permits| permits.preemptible.pop_first());
        let Some((_, first)) = first else {
            return false;
        };
        self.release(address, first.amount);
        first.preempted.cancel();
        true
    }

    fn release(&mut self, address: IpAddr, amount: usize) {
        self.acquired -= amount;
        let left = self.of(address) - amount;
        match self.by_address.get_mut(&address) {
            Some(permits) if left > 0 => permits.amount = left,
            // An address without permits is dropped, so that the map does not grow.
            _ => drop(self.by_address.remove(&address)),
        }
    }
}

impl AddressPermits {
    /// Whether some of them can be preempted for an address that will have `after`: only if that is
    /// fewer.
    fn are_preemptible_for(&self, after: usize) -> bool {
        self.amount > after && !self.preemptible.is_empty()
    }
}

/// Removes a request from the queue when its wait ends in any way.
struct QueueGuard<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        self.shared.state.lock().queue.remove(self.number);
    }
}

/// Acquired permits, until this is dropped or preempted.
#[derive(Debug)]
pub struct Permit {
    shared: Arc<Shared>,
    address: IpAddr,
    amount: usize,
    key: Option<Key>,
    preempted: CancellationToken,
}

impl Permit {
    /// Allows preemption from now on.
    pub fn set_preemptible(&mut self, rank: Rank) {
        self.keep();
        if self.amount == 0 {
            return;
        }
        let mut state = self.shared.state.lock();
        state.sequence += 1;
        let key = (rank, state.sequence);
        if let Some(permits) = state.by_address.get_mut(&self.address) {
            let (amount, preempted) = (self.amount, self.preempted.clone());
            let preemptible = Preemptible { amount, preempted };
            permits.preemptible.insert(key, preemptible);
            self.key = Some(key);
        }
        drop(state);
        self.shared.grant();
    }

    /// Prevents preemption from now on, unless it has happened.
    pub fn keep(&mut self) {
        let Some(key) = self.key.take() else {
            return;
        };
        let mut state = self.shared.state.lock();
        let permits = state.by_address.get_mut(&self.address);
        let preemptible = permits.and_then(|permits| permits.preemptible.remove(&key));
        if preemptible.is_none() {
            self.amount = 0;
        }
    }

    /// The token that is cancelled on preemption.
    pub fn preempted(&self) -> CancellationToken {
        self.preempted.clone()
    }

    /// Merges another permit of the same address into this one. The other one is not preemptible.
    pub fn merge(&mut self, mut other: Self) {
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

impl Drop for Permit {
    fn drop(&mut self) {
        self.keep();
        if self.amount > 0 {
            self.shared.state.lock().release(self.address, self.amount);
            self.shared.grant();
        }
    }
}

#[cfg(test)]
mod tests;
