//! Tests of the replay: order, backfill, reservations, gangs and fragmentation, with the built-in
//! serial walk.

use super::*;
use crate::generate;
use crate::samples::{controllers, job, walk};

fn run(jobs: &[Job], ipus: &[u32]) -> Replay {
    replay(jobs, &controllers(ipus), &Settings::default(), walk)
}

/// The second in which each job starts. `None`: it never does.
fn starts(replay: &Replay) -> Vec<Option<u64>> {
    let starts = replay.outcomes.iter().map(|outcome| match outcome {
        Outcome::Ran { started } => Some(*started),
        Outcome::Rejected(_) | Outcome::Waiting => None,
    });
    starts.collect()
}

#[test]
fn jobs_start_in_the_order_of_the_queue() {
    type Case = (&'static str, Vec<Job>, &'static [u32], Vec<Option<u64>>);
    let cases: [Case; 6] = [
        (
            "one after the other",
            vec![job(0, (1, 8), 50), job(1, (1, 8), 50), job(2, (1, 8), 50)],
            &[8],
            vec![Some(0), Some(50), Some(100)],
        ),
        (
            "backfill serves a later job that fits",
            vec![job(0, (1, 4), 100), job(1, (1, 8), 50), job(2, (1, 4), 300)],
            &[8],
            vec![Some(0), Some(302), Some(2)],
        ),
        (
            "after the limit, the controller is reserved for the earlier job",
            vec![
                job(0, (1, 4), 87_000),
                job(1, (1, 8), 50),
                job(86_950, (1, 4), 300),
            ],
            &[8],
            vec![Some(0), Some(87_000), Some(87_050)],
        ),
        (
            "a job that never fits is rejected",
            vec![job(0, (1, 16), 10), job(0, (1, 8), 10)],
            &[8],
            vec![None, Some(0)],
        ),
        (
            "a gang starts when all of it fits",
            vec![job(0, (1, 8), 40), job(1, (2, 8), 50), job(2, (1, 8), 10)],
            &[8, 8],
            vec![Some(0), Some(40), Some(2)],
        ),
        (
            "IPUs that are not adjacent hold no large partition",
            // The two of 4 IPUs leave 8 free ones in two pieces.
            vec![
                job(0, (1, 4), 500),
                job(0, (1, 4), 60),
                job(0, (1, 4), 500),
                job(0, (1, 4), 60),
                job(70, (1, 8), 10),
            ],
            &[16],
            vec![Some(0), Some(0), Some(0), Some(0), Some(500)],
        ),
    ];
    for (name, jobs, ipus, expected) in cases {
        assert_eq!(starts(&run(&jobs, ipus)), expected, "{name}");
    }
}

#[test]
fn a_refusal_is_counted_and_another_controller_is_tried() {
    let mut jobs: Vec<_> = [500, 60, 500, 60]
        .map(|seconds| job(0, (1, 4), seconds))
        .into();
    jobs.push(job(70, (1, 8), 10));
    let replay = run(&jobs, &[16, 8]);
    assert_eq!(starts(&replay).last(), Some(&Some(70)));
    assert_eq!(replay.counts.refused, 1);
    assert_eq!(replay.counts.overruled, 0);
    // A policy that knows the blocks is not refused.
    let exact = Settings {
        exact_blocks: true,
        ..Settings::default()
    };
    let replay = super::replay(&jobs, &controllers(&[16, 8]), &exact, walk);
    assert_eq!(starts(&replay).last(), Some(&Some(70)));
    assert_eq!(replay.counts.refused, 0);
}

#[test]
fn a_part_of_a_gang_is_released_after_its_patience() {
    // 8 free IPUs on each controller are counted, and one of them has them in two pieces.
    let mut jobs: Vec<_> = [500, 60, 500, 60]
        .map(|seconds| job(0, (1, 4), seconds))
        .into();
    jobs.push(job(70, (2, 8), 10));
    let replay = run(&jobs, &[16, 8]);
    // It holds one partition, requests the other one every two minutes, and gets it when the others
    // end.
    assert_eq!(starts(&replay).last(), Some(&Some(500)));
    assert!(replay.counts.refused > 2, "{:?}", replay.counts);
}

#[test]
fn a_policy_that_never_decides_ends_the_replay() {
    let jobs = [job(0, (1, 8), 10)];
    let waits = |_: u64, request: PlacementRequest| Decided {
        decision: Decision::Wait(vec![ipu_api::guest::placement::PassedOver {
            controller: request.controllers[0].name.clone(),
            reason: "no".to_owned(),
        }]),
        overruled: Some("it trapped".to_owned()),
    };
    let replay = replay(&jobs, &controllers(&[8]), &Settings::default(), waits);
    assert_eq!(replay.outcomes, [Outcome::Waiting]);
    let reason = replay.counts.first_overruled.as_deref();
    assert_eq!((replay.counts.overruled, reason), (1, Some("it trapped")));
}

#[test]
fn a_fair_share_serves_the_namespace_with_the_fewest_ipus() {
    let jobs = [
        job(0, (1, 8), 300),
        job(0, (1, 8), 100),
        job(1, (1, 8), 50),
        Job {
            namespace: "speech".into(),
            ..job(2, (1, 8), 50)
        },
    ];
    for (order, [third, last]) in [
        (Order::Creation, [100, 150]),
        (Order::FairShare, [150, 100]),
    ] {
        let settings = Settings {
            order,
            ..Settings::default()
        };
        let replay = replay(&jobs, &controllers(&[8, 8]), &settings, walk);
        let expected = [Some(0), Some(0), Some(third), Some(last)];
        assert_eq!(starts(&replay), expected, "{order:?}");
    }
}

#[test]
fn one_policy_follows_another_at_a_second() {
    let jobs = [job(0, (1, 4), 100), job(2, (1, 4), 100), job(3, (1, 8), 10)];
    // The second policy uses the other controller for the second job, and leaves no block for the
    // third one.
    for (change, expected) in [(u64::MAX, 3), (2, 100)] {
        let place = |now: u64, mut request: PlacementRequest| {
            if now >= change {
                request.controllers.reverse();
            }
            walk(now, request)
        };
        let replay = replay(&jobs, &controllers(&[8, 8]), &Settings::default(), place);
        let expected = [Some(0), Some(2), Some(expected)];
        assert_eq!(starts(&replay), expected, "{change}");
    }
}

#[test]
fn the_timeline_has_what_runs_and_waits() {
    let jobs = [job(0, (1, 8), 50), job(10, (1, 4), 50)];
    let replay = run(&jobs, &[8]);
    assert_eq!(replay.timeline.span(), (0, 100));
    let mean = |value: fn(&Point) -> u64| {
        let value = |point: &Point| float(value(point));
        replay.timeline.mean(|_| true, value).unwrap()
    };
    assert!((mean(|point| point.running) - 6.0).abs() < 1e-9);
    assert!((mean(|point| point.waiting) - 1.6).abs() < 1e-9);
}

#[test]
fn the_same_jobs_give_the_same_replay_and_all_ipus_are_free_at_its_end() {
    let mut jobs = generate::jobs(3, 400, 64);
    let controllers = controllers(&[64, 64, 64, 32]);
    crate::jobs::at_load(&mut jobs, &controllers, 110);
    let settings = Settings::default();
    let first = replay(&jobs, &controllers, &settings, walk);
    assert_eq!(first, replay(&jobs, &controllers, &settings, walk));
    assert!(
        starts(&first).iter().flatten().count() > 390,
        "{:?}",
        first.counts
    );
    let (_, end) = first.timeline.span();
    let last = first
        .timeline
        .sampled((end, end + 1), 1, |point| float(point.running));
    assert_eq!(last, [0.0]);
}
