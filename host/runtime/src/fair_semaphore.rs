//! A semaphore that serves waiting clients in turn: a client with many requests delays itself, and
//! delays others by at most one permit.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot::{self, Sender};

/// The client that requests a permit. `None`: the operator itself.
pub type Asker = Option<Client>;

/// A client: its address, and behind the address of an API server the user of the request, because
/// all users of a cluster share that address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    address: IpAddr,
    /// A hash of the name. Users of one hash wait as one.
    user: Option<u64>,
}

impl From<IpAddr> for Client {
    fn from(address: IpAddr) -> Self {
        Self {
            address,
            user: None,
        }
    }
}

impl Client {
    /// This user, whose name the API server has checked.
    #[must_use]
    pub fn for_user(self, name: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self {
            user: Some(hasher.finish()),
            ..self
        }
    }
}

/// A number of permits. Clones share them.
#[derive(Clone, Debug)]
pub struct FairSemaphore(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    free: usize,
    /// Waiting requests, by client. The first client is next.
    waiting: VecDeque<(Asker, VecDeque<Sender<FairPermit>>)>,
}

/// A permit, until it is dropped.
#[derive(Debug)]
pub struct FairPermit(FairSemaphore);

impl FairSemaphore {
    /// A semaphore with all permits free.
    pub fn new(permits: usize) -> Self {
        let waiting = VecDeque::new();
        Self(Arc::new(Mutex::new(State {
            free: permits,
            waiting,
        })))
    }

    /// Waits for a permit.
    pub async fn acquire(&self, asker: Asker) -> FairPermit {
        loop {
            let Some(given) = self.0.lock().take(asker) else {
                return FairPermit(self.clone());
            };
            if let Ok(permit) = given.await {
                return permit;
            }
        }
    }
}

impl State {
    /// Takes a permit. If none is free, returns the receiver of the next one.
    fn take(&mut self, asker: Asker) -> Option<oneshot::Receiver<FairPermit>> {
        // While a permit is free, no request waits.
        if let Some(free) = self.free.checked_sub(1) {
            self.free = free;
            return None;
        }
        let (given, receiver) = oneshot::channel();
        let mut queues = self.waiting.iter_mut();
        if let Some((_, queue)) = queues.find(|(other, _)| *other == asker) {
            queue.retain(|given| !given.is_closed());
            queue.push_back(given);
        } else {
            self.waiting.push_back((asker, VecDeque::from([given])));
        }
        Some(receiver)
    }

    /// The next request that still waits.
    fn next(&mut self) -> Option<Sender<FairPermit>> {
        while let Some((asker, mut queue)) = self.waiting.pop_front() {
            let next = std::iter::from_fn(|| queue.pop_front()).find(|given| !given.is_closed());
            if !queue.is_empty() {
                self.waiting.push_back((asker, queue));
            }
            if next.is_some() {
                return next;
            }
        }
        self.free += 1;
        None
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        let next = self.0.0.lock().next();
        if let Some(next) = next {
            // A request that has just been cancelled drops the permit, which passes it on.
            let _ = next.send(Self(self.0.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::stream::{FuturesUnordered, StreamExt};

    use super::*;

    fn address(last: u8) -> Client {
        IpAddr::from([10, 0, 0, last]).into()
    }

    /// The clients of these permits in the order in which they get them. Each permit is released at
    /// once.
    fn given(permits: usize, askers: &[Asker]) -> Vec<Asker> {
        let semaphore = FairSemaphore::new(permits);
        let held: Vec<_> = (0..permits)
            .map(|_| semaphore.acquire(None).now_or_never().unwrap())
            .collect();
        let mut waiting: FuturesUnordered<_> = askers
            .iter()
            .map(|asker| {
                semaphore
                    .acquire(*asker)
                    .map(move |permit| (*asker, permit))
            })
            .collect();
        assert!(waiting.next().now_or_never().is_none());
        drop(held);
        let mut order = Vec::new();
        while let Some(Some((asker, permit))) = waiting.next().now_or_never() {
            order.push(asker);
            drop(permit);
        }
        assert_eq!(semaphore.0.lock().free, permits);
        order
    }

    #[test]
    fn a_user_behind_an_api_server_that_asks_often_lets_others_in_between() {
        let user = |name: &str| Some(address(1).for_user(name));
        let (many, one, server) = (user("ann"), user("bob"), Some(address(1)));
        let mut askers = vec![many; 16];
        askers.extend([one, server]);
        assert_eq!(given(1, &askers)[..4], [many, one, server, many]);
    }

    #[test]
    fn an_address_that_asks_often_lets_others_in_between() {
        let (many, one, own) = (Some(address(1)), Some(address(2)), None);
        let mut askers = vec![many; 16];
        askers.extend([one, own, one]);
        let order = given(1, &askers);
        assert_eq!(order[..6], [many, one, own, many, one, many]);
        assert_eq!(order.len(), askers.len());
    }

    #[test]
    fn a_cancelled_waiter_returns_its_permit() {
        let semaphore = FairSemaphore::new(2);
        let take = |asker| semaphore.acquire(asker).now_or_never();
        let (first, second) = (take(None).unwrap(), take(Some(address(1))).unwrap());
        for _ in 0..100 {
            assert!(take(Some(address(1))).is_none());
        }
        assert_eq!(
            semaphore.0.lock().waiting[0].1.len(),
            1,
            "the others gave up"
        );
        drop(first);
        assert_eq!(semaphore.0.lock().free, 1);
        let again = take(Some(address(2))).unwrap();
        assert!(take(Some(address(2))).is_none());
        // Granted, and never received.
        let mut waiting = Box::pin(semaphore.acquire(Some(address(3))));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(again);
        assert_eq!(semaphore.0.lock().free, 0);
        drop(waiting);
        drop(second);
        assert_eq!(semaphore.0.lock().free, 2);
    }
}
