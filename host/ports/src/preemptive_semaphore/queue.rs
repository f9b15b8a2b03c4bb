//! Requests that wait for permits. The request of the address that will have the fewest permits is
//! first.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use tokio::sync::oneshot::{Receiver, Sender, channel};

use super::{Full, Permit, Share, State};

/// Waiting requests in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Vec<WaitingRequest>,
    last: u64,
}

#[derive(Debug)]
struct WaitingRequest {
    request: Request,
    granted: Sender<Permit>,
}

/// A request for permits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) number: u64,
    pub(super) address: IpAddr,
    pub(super) amount: usize,
}

impl Queue {
    /// Queues a request. If the queue is full, this ends the last request of the address with the
    /// most requests, unless that is this address.
    pub(super) fn push(
        &mut self,
        address: IpAddr,
        amount: usize,
        share: Share,
    ) -> Result<(u64, Receiver<Permit>), Full> {
        if amount > share.each {
            return Err(Full::Address(share.each));
        }
        if self.waiting.len() >= share.queue {
            let last = self.last_of_longest(address);
            self.waiting.remove(last.ok_or(Full::Total(share.total))?);
        }
        self.last += 1;
        let (sender, receiver) = channel();
        self.waiting.push(WaitingRequest {
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
    pub(super) fn remove(&mut self, number: u64) -> Option<Sender<Permit>> {
        let mut index = self.waiting.iter();
        let index = index.position(|one| one.request.number == number)?;
        Some(self.waiting.remove(index).granted)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The last request of the address with the most requests, if that has more than this address
    /// will have.
    fn last_of_longest(&self, address: IpAddr) -> Option<usize> {
        let addresses = || self.waiting.iter().map(|one| one.request.address);
        let mut counts = HashMap::<_, usize>::new();
        for address in addresses() {
            *counts.entry(address).or_default() += 1;
        }
        let own = counts.get(&address).copied().unwrap_or_default();
        let (longest, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let mut last = self.waiting.iter();
        let last = last.rposition(|one| one.request.address == longest);
        last.filter(|_| count > own + 1)
    }
}

impl State {
    /// The next request: of the first allowed request of each address, the one whose address will
    /// have the fewest permits.
    pub(super) fn next_request(&self, share: Share) -> Option<Request> {
        let mut seen = HashSet::new();
        let requests = self.queue.waiting.iter().map(|one| one.request);
        let first = requests.filter(|request| seen.insert(request.address));
        let after = |request: &Request| self.of(request.address) + request.amount;
        let may_have = first.filter(|request| after(request) <= share.each);
        may_have.min_by_key(after)
    }
}
