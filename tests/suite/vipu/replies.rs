//! Many controllers with endless replies: how much the client reads, and that no caller waits for
//! them.

use std::time::Duration;

use cluster::wait::{Seen, eventually};
use futures::future::join_all;
use tokio::task::JoinSet;
use vipu_client::{Deadlines, Registry};
use vipu_simulator::endless::CLAIMED;
use vipu_simulator::faults::Order;
use vipu_simulator::{Options, Simulator};

const LIARS: usize = 16;

/// Concurrent reads of each of them.
const READS: usize = 16;

/// The maximum of bytes read: eight replies, the bytes that a connection may send before they are
/// read, and the beginning of each of the eight concurrent reads of one controller.
const MOST: usize = 8 * CLAIMED as usize + LIARS * ((256 << 10) + 8 * (64 << 10));

/// Controllers that block every read after as many bytes of a reply as the operator accepts.
async fn liars() -> Vec<Simulator> {
    let started = (0..LIARS).map(|number| Options::quick(&format!("liar{number}"), 16));
    let liars = join_all(started.map(Simulator::start)).await;
    let liars: Vec<_> = liars.into_iter().map(Result::unwrap).collect();
    for liar in &liars {
        liar.server.order(Order {
            endless: true,
            ..Order::default()
        });
    }
    liars
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controllers_with_endless_replies_take_bounded_memory_together_and_delay_nobody() {
    let liars = liars().await;
    let honest = Simulator::start(Options::quick("honest", 1024));
    let honest = honest.await.unwrap();
    let registry = Registry::new(Deadlines::default());
    let mut reads = JoinSet::new();
    for liar in &liars {
        let client = registry.client(&liar.controller("liar")).unwrap();
        for _ in 0..READS {
            let client = client.clone();
            reads.spawn(async move { client.list().await });
        }
    }
    let taken = || -> Vec<usize> {
        let taken = liars.iter().map(|liar| liar.server.taken.bytes());
        taken.collect()
    };
    let all_begun = async || Seen::when(taken(), |taken| taken.iter().all(|bytes| *bytes > 0));
    eventually("every controller has begun to answer", all_begun).await;
    let client = registry.client(&honest.controller("honest")).unwrap();
    for _ in 0..4 {
        let inventory = client.inventory();
        let mut inventory = std::pin::pin!(inventory);
        let inventory = loop {
            let bytes: usize = taken().iter().sum();
            assert!(bytes <= MOST, "{bytes} bytes are read, more than {MOST}");
            let soon = Duration::from_millis(5);
            if let Ok(inventory) = tokio::time::timeout(soon, &mut inventory).await {
                break inventory.unwrap();
            }
        };
        assert_eq!(inventory.total, 1024);
    }
}
