//! The share of reserved controllers, and the sizes of waiting requests.

use super::*;

#[test]
fn only_a_share_of_the_controllers_is_reserved() {
    let pods = |count: usize| {
        let pods = (0..count).map(|number| view(&format!("pod{number:02}"), 16, 8));
        pods.collect::<Vec<_>>()
    };
    let me = one("me", 2, 0);
    let large = |count: i64, minutes: i64| -> Vec<QueueEntry> {
        let large = (0..count).map(|number| one(&format!("large-{number}"), 16, minutes + number));
        large.collect()
    };
    let reserved = |others: &[QueueEntry], pods: &[ControllerView]| {
        let shown = shown(&me, others, pods).into_iter();
        shown.filter(|largest| *largest == 0).count()
    };
    let cases = [
        ("one of a few", large(5, 60), 7, 1),
        ("an eighth", large(5, 60), 16, 2),
        ("one for each limit", large(1, 10), 16, 1),
        ("nobody has waited for the limit", large(5, 1), 16, 0),
        ("very long", large(1, 2 * 10_080), 16, 4),
    ];
    for (name, others, count, expected) in cases {
        assert_eq!(reserved(&others, &pods(count)), expected, "{name}");
    }
    // What fitted before a reservation is considered again after it: the second one of 8 gets the rest of the share.
    let mut pods_with_little = vec![view("pod00", 16, 8)];
    pods_with_little.extend((1..16).map(|number| view(&format!("pod{number:02}"), 16, 12)));
    let three = [one("a", 8, 15), one("b", 16, 14), one("c", 8, 12)];
    assert_eq!(reserved(&three, &pods_with_little), 2);
    // A request that only one controller suits does not use up the share of the others.
    let mut bound = one("bound", 16, 90);
    bound.node_selector = BTreeMap::from([("ipunode".to_owned(), "pod03".to_owned())]);
    let both = [bound, one("large", 16, 60)];
    assert_eq!(reserved(&both, &pods(7)), 2);
    // The earliest gang gets as many controllers as it needs, one after each limit.
    let gang = |minutes| QueueEntry {
        gang: 3,
        ..one("gang", 16, minutes)
    };
    for (minutes, expected) in [(10, 1), (20, 2), (30, 3), (600, 3)] {
        assert_eq!(reserved(&[gang(minutes)], &pods(7)), expected, "{minutes}");
    }
    assert_eq!(reserved(&[one("large", 16, 90), gang(60)], &pods(7)), 1);
}

#[test]
fn requests_are_counted_by_size() {
    let entries = [2, 8, 2, 3, 16].map(|ipus| one("one", ipus, 0));
    let sizes = sizes(entries.iter()).into_iter();
    let sizes: Vec<_> = sizes.map(|one| (one.ipus, one.count)).collect();
    assert_eq!(sizes, [(16, 1), (8, 1), (2, 2)]);
}
