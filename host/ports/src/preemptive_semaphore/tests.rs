//! Allocation of permits, the queue for them, and preemption.

use std::net::Ipv4Addr;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::*;

const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const C: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));

fn semaphore(total: usize, each: usize) -> PreemptiveSemaphore {
    PreemptiveSemaphore::new(Share {
        total,
        each,
        queue: 4,
    })
}

/// Permits of an address, each of which may be preempted.
fn idle(semaphore: &PreemptiveSemaphore, address: IpAddr, count: usize) -> Vec<Permit> {
    let idle = |_| {
        let mut permit = semaphore.try_acquire(address, 1).unwrap();
        permit.set_preemptible(Rank::Idle);
        permit
    };
    (0..count).map(idle).collect()
}

fn waiting(
    semaphore: &PreemptiveSemaphore,
    address: IpAddr,
    amount: usize,
) -> BoxFuture<'_, Result<Permit, Full>> {
    let mut waiting = semaphore
        .acquire(address, amount, Duration::from_hours(1))
        .boxed();
    assert!(waiting.as_mut().now_or_never().is_none());
    waiting
}

#[test]
fn one_address_cannot_take_what_the_others_need() {
    let semaphore = semaphore(5, 3);
    let of_a = semaphore.try_acquire(A, 3).unwrap();
    assert_eq!(semaphore.try_acquire(A, 1).unwrap_err(), Full::Address(3));
    let mapped = "::ffff:10.0.0.1".parse().unwrap();
    assert_eq!(
        semaphore.try_acquire(mapped, 1).unwrap_err(),
        Full::Address(3)
    );
    let of_b = semaphore.try_acquire(B, 2).unwrap();
    assert_eq!(semaphore.try_acquire(C, 1).unwrap_err(), Full::Total(5));
    drop(of_a);
    let _of_c = semaphore.try_acquire(C, 3).unwrap();
    drop(of_b);
    assert_eq!(semaphore.0.state.lock().by_address.len(), 1);
}

#[tokio::test]
async fn who_waits_gets_what_becomes_free_and_nobody_waits_for_ever() {
    let semaphore = semaphore(5, 3);
    let first = semaphore.try_acquire(A, 3).unwrap();
    let none = semaphore.acquire(A, 1, Duration::ZERO).await;
    assert_eq!(none.unwrap_err(), Full::Address(3));
    assert!(semaphore.0.state.lock().queue.is_empty());
    let waiting = semaphore.acquire(A, 2, Duration::MAX);
    let (waited, ()) = tokio::join!(waiting, async { drop(first) });
    assert_eq!(waited.unwrap().amount, 2);
    assert_eq!(
        semaphore.acquire(A, 4, Duration::MAX).await.unwrap_err(),
        Full::Address(3)
    );
}

#[test]
fn where_all_are_taken_whoever_has_most_gives_way() {
    // Eight addresses have all there is.
    let semaphore = semaphore(128, 16);
    let others = (1..=8).map(|last| IpAddr::from([10, 0, 1, last]));
    let others: Vec<_> = others.map(|other| idle(&semaphore, other, 16)).collect();
    let newcomer: Vec<_> = (0..14)
        .map(|_| semaphore.try_acquire(A, 1).unwrap())
        .collect();
    let preempted = |permits: &[Permit]| {
        let preempted = permits.iter().map(|one| one.preempted().is_cancelled());
        preempted.collect::<Vec<_>>()
    };
    for permits in &others {
        let preempted = preempted(permits);
        let count = preempted.iter().filter(|preempted| **preempted).count();
        assert!((1..=2).contains(&count), "{preempted:?}");
        assert!(preempted.is_sorted_by(|a, b| a >= b), "the oldest first");
    }
    // No address has more permits than the new one will have.
    assert_eq!(semaphore.try_acquire(A, 1).unwrap_err(), Full::Total(128));
    drop((others, newcomer));
    assert_eq!(semaphore.0.state.lock().acquired, 0);
    assert!(semaphore.0.state.lock().by_address.is_empty());
}

#[test]
fn what_is_kept_does_not_give_way_and_what_is_new_does_so_first() {
    let semaphore = semaphore(3, 3);
    let mut of_a = idle(&semaphore, A, 3);
    of_a[0].keep();
    of_a[2].set_preemptible(Rank::New);
    let of_b = semaphore.try_acquire(B, 1).unwrap();
    assert!(of_a[2].preempted().is_cancelled());
    assert!(
        semaphore.try_acquire(B, 1).is_err(),
        "both would have as much"
    );
    drop(of_b);
    assert!(semaphore.preempt(A));
    assert!(of_a[1].preempted().is_cancelled());
    assert!(!semaphore.preempt(A));
    // A preempted permit releases nothing, whatever happens to it.
    of_a[1].set_preemptible(Rank::Idle);
    assert!(!semaphore.preempt(A));
    assert_eq!(semaphore.0.state.lock().acquired, 1);
}

#[tokio::test]
async fn the_waiter_with_the_fewest_permits_is_next() {
    let semaphore = semaphore(5, 4);
    let (mut of_a, of_b) = (idle(&semaphore, A, 4), semaphore.try_acquire(B, 1).unwrap());
    of_a.iter_mut().for_each(Permit::keep);
    let again = waiting(&semaphore, A, 1);
    let mut more = waiting(&semaphore, B, 1);
    let mut first = waiting(&semaphore, C, 1);
    drop(of_a.pop());
    let _of_c = first.as_mut().now_or_never().unwrap().unwrap();
    assert!(more.as_mut().now_or_never().is_none());
    drop(of_a.pop());
    let _more = more.now_or_never().unwrap().unwrap();
    drop(again);
    // Requests that no longer wait are skipped.
    drop(of_b);
    assert_eq!(semaphore.0.state.lock().of(A), 2);
}

#[tokio::test]
async fn who_waits_is_let_in_once_somebody_can_give_way() {
    let semaphore = semaphore(2, 2);
    let mut of_a = semaphore.try_acquire(A, 2).unwrap();
    let mut of_b = waiting(&semaphore, B, 1);
    of_a.set_preemptible(Rank::Idle);
    assert!(of_b.as_mut().now_or_never().is_some());
    assert!(of_a.preempted().is_cancelled());
}

#[tokio::test]
async fn a_full_queue_loses_the_last_of_whoever_waits_most() {
    let semaphore = semaphore(1, 1);
    let _one = semaphore.try_acquire(C, 1).unwrap();
    let mut of_a: Vec<_> = (0..4).map(|_| waiting(&semaphore, A, 1)).collect();
    let of_b = [waiting(&semaphore, B, 1), waiting(&semaphore, B, 1)];
    for one in of_a.drain(2..) {
        assert_eq!(one.now_or_never().unwrap().unwrap_err(), Full::Total(1));
    }
    let third = semaphore.acquire(B, 1, Duration::MAX).now_or_never();
    assert_eq!(third.unwrap().unwrap_err(), Full::Total(1));
    drop(of_b);
}

#[test]
fn merged_permits_are_one() {
    let semaphore = semaphore(4, 4);
    let mut first = semaphore.try_acquire(A, 1).unwrap();
    first.set_preemptible(Rank::New);
    first.merge(semaphore.try_acquire(A, 2).unwrap());
    assert!(semaphore.preempt(A));
    assert!(first.preempted().is_cancelled());
    assert_eq!(semaphore.0.state.lock().acquired, 0);
    first.merge(semaphore.try_acquire(A, 2).unwrap());
    assert_eq!(semaphore.0.state.lock().acquired, 0);
}
