//! The share of reserved controllers, and the sizes of waiting requests.

use ipu_api::guest::placement::SizeCount;

use super::*;
use crate::queue::sizes;

/// A day in minutes.
const DAY: i64 = 24 * 60;

/// A week in minutes.
const WEEK: i64 = 7 * DAY;

/// So many controllers, each half full.
fn pods(count: usize) -> Vec<ControllerView> {
    let pods = (0..count).map(|number| view(&format!("pod{number:02}"), 16, 8));
    pods.collect()
}

/// So many large requests. The latest one has waited for so many minutes.
fn large(count: i64, minutes: i64) -> Vec<QueueEntry> {
    let large = (0..count).map(|number| one(&format!("large-{number}"), 16, minutes + number));
    large.collect()
}

/// Returns the number of these controllers that are reserved for earlier requests.
fn reserved(others: &[QueueEntry], pods: &[ControllerView]) -> usize {
    let shown = shown(&one("me", 2, 0), others, pods).into_iter();
    shown.filter(|largest| *largest == 0).count()
}

/// A request that only the controller of this name suits, with its waiting time in minutes.
fn bound(pod: &str, ipus: u32, minutes: i64) -> QueueEntry {
    let selector = BTreeMap::from([("ipunode".to_owned(), pod.to_owned())]);
    one(&format!("bound-to-{pod}"), ipus, minutes)
        .with(|request| request.requirements = Requirements::labels(selector).into())
}

/// One such request for each of these controllers, which could serve it if it were empty.
fn bound_to_each(pods: &[ControllerView], minutes: i64) -> Vec<QueueEntry> {
    let each = pods.iter().zip(0_i64..);
    let each = each.map(|(pod, later)| bound(&pod.name, pod.total_ipus, minutes - later));
    each.collect()
}

#[test]
fn requests_for_single_controllers_have_one_share_of_the_cluster_together() {
    let cases = [
        ("one of a few", 7, 50, 1),
        ("an eighth", 16, 50, 2),
        ("half of the time", 16, DAY + 60, 0),
        ("the next ones after a week", 16, WEEK + DAY, 3),
        ("half of them at most", 16, 20 * WEEK, 8),
    ];
    for (name, count, minutes, expected) in cases {
        let all_pods = pods(count);
        let each = bound_to_each(&all_pods, minutes);
        assert_eq!(reserved(&each, &all_pods), expected, "{name}");
    }
    // The rest of the cluster has its share, whatever is requested of single controllers.
    let all_pods = pods(16);
    let mut all = bound_to_each(&all_pods, 50);
    all.push(one("large", 16, 20));
    assert_eq!(reserved(&all, &all_pods), 4);
    // The earliest request has its turn. While its controller serves others, the next one has it.
    let me = one("me", 2, 0);
    for (minutes, expected) in [(60, [0, 8, 8]), (DAY, [8, 0, 8])] {
        let both = [bound("pod00", 16, minutes), bound("pod01", 16, 50)];
        assert_eq!(shown(&me, &both, &pods(3)), expected, "{minutes}");
    }
}

#[test]
fn controllers_that_are_too_small_for_a_request_do_not_count_in_its_share() {
    let large_pods = (0..4).map(|number| view(&format!("large{number}"), 64, 32));
    let mut all_pods: Vec<_> = large_pods.collect();
    all_pods.extend(pods(60));
    let of_large = bound_to_each(&all_pods[..4], 50);
    assert_eq!(reserved(&of_large, &all_pods), 1);
    // The reservations of small ones for other requests are no loss for it.
    let mut all = bound_to_each(&all_pods[4..], 90);
    all.extend(of_large);
    assert_eq!(reserved(&all, &all_pods), 8 + 1);
    // A request that all of the large ones suit is not bound.
    all.push(one("large", 64, 20));
    assert_eq!(reserved(&all, &all_pods), 8 + 2);
}

#[test]
fn a_gang_for_few_controllers_gets_what_it_needs_if_anything_is_left() {
    let gang = || QueueEntry {
        // Only the first two of three have a node that starts its Pods.
        unsuited: BTreeMap::from([("pod02".to_owned(), String::new())]).into(),
        ..one("gang", 16, 40).with(|request| request.gang = 2)
    };
    let me = one("me", 2, 0);
    assert_eq!(shown(&me, &[gang()], &pods(3)), [0, 0, 8]);
    let both = [bound("pod02", 16, 50), gang()];
    assert_eq!(shown(&me, &both, &pods(3)), [8, 8, 0]);
}

#[test]
fn only_a_share_of_the_controllers_is_reserved() {
    let cases = [
        ("one of a few", large(5, 50), 7, 1),
        ("an eighth", large(5, 50), 16, 2),
        ("one for each limit", large(1, 10), 16, 1),
        ("nobody has waited for the limit", large(5, 1), 16, 0),
        ("not more in the first week", large(1, 6 * DAY), 7, 1),
        ("one more after a week", large(1, WEEK), 7, 2),
        ("only for the earliest", large(5, WEEK), 7, 2),
        ("half of them at most", large(1, 9 * WEEK), 7, 4),
        ("one after the other", large(1, 20 * WEEK), 64, 28),
    ];
    for (name, others, count, expected) in cases {
        assert_eq!(reserved(&others, &pods(count)), expected, "{name}");
    }
    // What fitted before a reservation is considered again after it: the second one of 8 gets the
    // rest of the share.
    let mut pods_with_little = vec![view("pod00", 16, 8)];
    pods_with_little.extend((1..16).map(|number| view(&format!("pod{number:02}"), 16, 12)));
    let three = [one("a", 8, 15), one("b", 16, 14), one("c", 8, 12)];
    assert_eq!(reserved(&three, &pods_with_little), 2);
    // A request that only one controller suits does not use up the share of the others.
    let both = [bound("pod03", 16, 90), one("large", 16, 50)];
    assert_eq!(reserved(&both, &pods(7)), 2);
    // The only controller serves others for half of the time, also if more than one request waits
    // for it.
    for (minutes, expected) in [(50, 1), (DAY - 10, 1), (DAY, 0), (2 * DAY, 1), (4 * DAY, 0)] {
        for count in [1, 5] {
            assert_eq!(
                reserved(&large(count, minutes), &pods(1)),
                expected,
                "{minutes}"
            );
        }
    }
}

#[test]
fn the_earliest_gang_gets_as_many_controllers_as_it_needs() {
    let gang = |size, minutes| one("gang", 16, minutes).with(|request| request.gang = size);
    // One more after each limit.
    for (minutes, expected) in [(10, 1), (20, 2), (30, 3), (2 * WEEK, 3), (3 * WEEK, 4)] {
        let reserved = reserved(&[gang(3, minutes)], &pods(7));
        assert_eq!(reserved, expected, "{minutes}");
    }
    assert_eq!(reserved(&[one("large", 16, 50), gang(3, 40)], &pods(7)), 1);
    // All controllers serve others for half of the time, if the gang needs all of them.
    for (minutes, expected) in [(10, 1), (20, 2), (DAY, 0), (2 * DAY, 2)] {
        let reserved = reserved(&[gang(2, minutes)], &pods(2));
        assert_eq!(reserved, expected, "{minutes}");
    }
}

/// The hours until a request for 64 IPUs is served by controllers of 64, of which `endless` have a
/// job of 1 IPU that never ends. The others begin full of jobs of 8 IPUs, and more of them wait all
/// the time. Each ends within an hour.
fn hours_until_served(controllers: usize, endless: usize) -> i64 {
    let large = one("large", 64, 0);
    // The controller of each job of 8 IPUs, and the minute of its end.
    let mut jobs: Vec<(usize, i64)> = (0..controllers)
        .zip(0_i64..)
        .flat_map(|(on, pod)| (0..8).map(move |job| (on, 15 + (8 * job + 3 * pod) % 45)))
        .filter(|(on, _)| *on >= endless)
        .collect();
    let view = |on: usize, jobs: &[(usize, i64)]| {
        let count = jobs.iter().filter(|job| job.0 == on).count();
        let used = 8 * u32::try_from(count).unwrap() + u32::from(on < endless);
        view(&format!("pod{on}"), 64, used)
    };
    let (mut minute, mut made) = (10, 0);
    loop {
        jobs.retain(|(_, end)| *end > minute);
        if (0..controllers).any(|on| view(on, &jobs).largest_free >= large.ipus) {
            return minute / 60;
        }
        let small = one("small", 8, -minute);
        let entries = [large.clone(), small.clone()];
        let time = now() + SignedDuration::from_mins(minute);
        loop {
            let views = (0..controllers).map(|on| view(on, &jobs)).collect();
            let capacity = capacity_for(&small, &entries, &[], 0, views, LIMIT, time);
            let mut shown = capacity.views.iter();
            let Some(on) = shown.position(|view| view.largest_free >= small.ipus) else {
                break;
            };
            made += 1;
            jobs.push((on, minute + 15 + made * 7 % 45));
        }
        minute += 5;
    }
}

#[test]
fn jobs_that_never_end_delay_a_large_request_but_not_for_ever() {
    let cases = [
        (7, 0, 1),
        (7, 1, WEEK / 60 + 1),
        (7, 3, 3 * WEEK / 60 + 1),
        (8, 5, 4 * WEEK / 60 + 1),
        // Only the last controller can become empty: its turn begins after eight weeks.
        (8, 7, 8 * WEEK / 60 + 1),
        (2, 1, 8 * WEEK / 60 + 1),
        (1, 0, 1),
    ];
    for (controllers, endless, most) in cases {
        let hours = hours_until_served(controllers, endless);
        assert!(hours <= most, "{endless} of {controllers}: {hours} hours");
    }
}

#[test]
fn controllers_that_refuse_a_request_are_reserved_for_it_after_a_day() {
    let pods = [
        view("pod1", 64, 24),
        view("pod2", 64, 16),
        view("pod3", 64, 40),
    ];
    let me = one("me", 2, 0);
    let refused = |minutes| QueueEntry {
        is_refused: true,
        ..one("refused", 32, minutes)
    };
    let cases = [
        ("before the limit", refused(9), [32, 32, 16]),
        ("on the first day", refused(1_430), [32, 32, 16]),
        ("after it", refused(1_440), [32, 0, 16]),
        ("a week later", refused(8 * DAY + 10), [0, 0, 16]),
        (
            "it waits for a policy",
            one("fits", 32, 1_440),
            [32, 32, 16],
        ),
    ];
    for (name, earlier, expected) in cases {
        assert_eq!(shown(&me, &[earlier], &pods), expected, "{name}");
    }
    // Where the free blocks are known, no controller needs to refuse it.
    let scattered = pods.clone().map(|view| ControllerView {
        largest_free: 16,
        free_blocks: vec![SizeCount {
            ipus: 16,
            count: view.free_ipus() / 16,
        }],
        ..view
    });
    for (minutes, expected) in [(1_430, [16, 16, 16]), (1_440, [16, 0, 16])] {
        let waiting = one("scattered", 32, minutes);
        assert_eq!(shown(&me, &[waiting], &scattered), expected, "{minutes}");
    }
    // The empty one would hold it, so it is refused for another reason.
    let pods = [view("pod1", 64, 24), view("pod2", 64, 0)];
    assert_eq!(shown(&me, &[refused(1_500)], &pods), [32, 64]);
}

#[test]
fn requests_are_counted_by_size() {
    let entries = [2, 8, 2, 3, 16].map(|ipus| one("one", ipus, 0));
    let sizes = sizes(entries.iter()).into_iter();
    let sizes: Vec<_> = sizes.map(|one| (one.ipus, one.count)).collect();
    assert_eq!(sizes, [(16, 1), (8, 1), (2, 2)]);
}
