//! Requests that wait for places, of which the one goes first whose address will have least.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use tokio::sync::oneshot::{Receiver, Sender, channel};

use super::{Full, Place, Share, Taken};

/// Requests that wait, in the order in which they came.
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

/// What is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) number: u64,
    pub(super) address: IpAddr,
    pub(super) amount: usize,
}

impl Queue {
    /// Lets a request wait. In a full queue the last request of the address that has most of them ends, unless that is
    /// this one.
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

    /// Ends the wait of a request.
    pub(super) fn remove(&mut self, number: u64) -> Option<Sender<Place>> {
        let mut index = self.waiters.iter();
        let index = index.position(|one| one.request.number == number)?;
        Some(self.waiters.remove(index).granted)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// The last request of the address that has most of them, where it has more than this one will have.
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
    /// The request that is next: the first one of each address that may have it, and of these the one whose address
    /// will have least.
    pub(super) fn next_waiter(&self, share: Share) -> Option<Request> {
        let mut seen = HashSet::new();
        let requests = self.queue.waiters.iter().map(|one| one.request);
        let first = requests.filter(|request| seen.insert(request.address));
        let after = |request: &Request| self.of(request.address) + request.amount;
        let may_have = first.filter(|request| after(request) <= share.each);
        may_have.min_by_key(after)
    }
}
