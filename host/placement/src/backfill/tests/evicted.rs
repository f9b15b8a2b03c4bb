//! The capacity that is left for a partition that is evicted.

use super::*;

#[test]
fn an_eviction_uses_only_the_capacity_after_the_queue() {
    let pods = vec![view("pod1", 16, 8), view("pod2", 8, 0)];
    let entries = [one("waits", 8, 1), one("too-large", 64, 1)];
    let asked = [("pod2", 4), ("pod9", 4)];
    let me = one("me", 4, 60);
    let left = capacity_after_queue(&me, &entries, asked.into_iter(), pods, LIMIT, now());
    let left: Vec<u32> = left.iter().map(|view| view.largest_free).collect();
    assert_eq!(left, [0, 4]);
}

#[test]
fn an_eviction_uses_no_capacity_that_is_reserved_for_earlier_requests() {
    let large = one("large", 16, 50);
    let stalled = QueueEntry {
        is_stalled: true,
        ..large.clone()
    };
    let owner = Uid::of("owner-me");
    let sibling = large.clone().with(|request| request.owner = owner);
    let fits = one("fits", 8, 50);
    let cases = [
        ("before the limit", one("large", 16, 9), 0, [8, 4]),
        ("after it", large.clone(), 0, [0, 4]),
        ("after it, for a later request", large, 60, [8, 4]),
        ("it waits for something else", stalled, 0, [8, 4]),
        ("it belongs to the same owner", sibling, 0, [8, 4]),
        ("it fits", fits, 60, [0, 4]),
    ];
    for (name, waits, minutes, expected) in cases {
        let pods = vec![view("pod1", 16, 8), view("pod2", 16, 12)];
        let (me, entries) = (one("me", 4, minutes), [waits]);
        let left = capacity_after_queue(&me, &entries, std::iter::empty(), pods, LIMIT, now());
        let left: Vec<u32> = left.iter().map(|view| view.largest_free).collect();
        assert_eq!(left, expected, "{name}");
    }
}
