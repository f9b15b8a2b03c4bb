//! Requests that wait for places. The request of the address that will have the fewest places is first.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use tokio::sync::oneshot::{Receiver, Sender, channel};

use super::{Full, Place, Share, Taken};

/// Waiting requests in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiters: Vec<Waiter>,
    last: u64,
}

#[derive(Debug)]
struct Waiter {
    request: Request,
    granted: Sender<Place>,
}

/// A request for places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) number: u64,
    pub(super) address: IpAddr,
    pub(super) amount: usize,
}

impl Queue {
    /// Queues a request. If the queue is full, this ends the last request of the address with the most requests, unless
    /// that is this address.
    pub(super) fn push(
        &mut self,
        address: IpAddr,
        amount: usize,
        share: Share,
    ) -> Result<(u64, Receiver<Place>), Full> {
        if amount > share.each {
            return Err(Full::Address(share.each));
        }
        if self.waiters.len() >= share.queue {
            let last = self.last_of_longest(address);
            self.waiters.remove(last.ok_or(Full::Total(share.total))?);
        }
        self.last += 1;
        let (sender, receiver) = channel();
        self.waiters.push(Waiter {
            request: Request {
                number: self.last,
                address,
                amount,
            },
            granted: sender,
        });
        Ok((self.last, receiver))
    }

    /// Removes a request from the queue.
    pub(super) fn remove(&mut self, number: u64) -> Option<Sender<Place>> {
        let mut index = self.waiters.iter();
        let index = index.position(|one| one.request.number == number)?;
        Some(self.waiters.remove(index).granted)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// The last request of the address with the most requests, if that has more than this address will have.
    fn last_of_longest(&self, address: IpAddr) -> Option<usize> {
        let addresses = || self.waiters.iter().map(|one| one.request.address);
        let mut counts = HashMap::<_, usize>::new();
        for address in addresses() {
            *counts.entry(address).or_default() += 1;
        }
        let own = counts.get(&address).copied().unwrap_or_default();
        let (longest, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let mut last = self.waiters.iter();
        let last = last.rposition(|one| one.request.address == longest);
        last.filter(|_| count > own + 1)
    }
}

impl Taken {
    /// The next request: of the first allowed request of each address, the one whose address will have the fewest
    /// places.
    pub(super) fn next_waiter(&self, share: Share) -> Option<Request> {
        let mut seen = HashSet::new();
        let requests = self.queue.waiters.iter().map(|one| one.request);
        let first = requests.filter(|request| seen.insert(request.address));
        let after = |request: &Request| self.of(request.address) + request.amount;
        let may_have = first.filter(|request| after(request) <= share.each);
        may_have.min_by_key(after)
    }
}
