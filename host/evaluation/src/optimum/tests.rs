//! Tests of the optimum: instances that are solved by hand, and all policies on generated ones.

use ipu_api::guest::placement::{Decision, PlacementRequest};
use ipu_placement::serial_walk::serial_walk;

use super::*;
use crate::replay::{Decided, Outcome, Settings, replay};
use crate::samples::{controllers, job};
use crate::{bound, generate};

fn is_close(found: Option<f64>, expected: Option<f64>) -> bool {
    match (found, expected) {
        (Some(found), Some(expected)) => (found - expected).abs() < 1e-6,
        (found, expected) => found == expected,
    }
}

/// A name, the jobs, the IPUs of each controller, and the expected optima: the weighted wait and
/// the last end.
type Case = (&'static str, Vec<Job>, &'static [u32], Option<(f64, f64)>);

fn small_instances() -> [Case; 8] {
    [
        ("nothing", vec![], &[8], Some((0.0, 0.0))),
        (
            "the shorter one first",
            vec![job(0, (1, 8), 50), job(0, (1, 8), 20)],
            &[8],
            Some((20.0, 70.0)),
        ),
        // The large job waits for both halves. It starts earlier if the short jobs run side by
        // side.
        (
            "two controllers",
            vec![
                job(0, (1, 4), 10),
                job(0, (1, 4), 10),
                job(0, (1, 8), 10),
                job(0, (1, 8), 10),
            ],
            &[8, 8],
            Some((10.0, 20.0)),
        ),
        // The relaxation lets both run at once: 12 of 12 IPUs. In aligned blocks, the second one
        // waits.
        (
            "blocks",
            vec![job(0, (1, 8), 10), job(0, (1, 8), 10)],
            &[12],
            Some((10.0, 20.0)),
        ),
        // The wait is lowest if all IPUs stay free for 5 seconds. The last end is earliest if the
        // long job starts.
        (
            "waiting for a later job",
            vec![job(0, (1, 8), 100), job(5, (1, 8), 1)],
            &[8],
            Some((6.0, 101.0)),
        ),
        (
            "a gang",
            vec![job(0, (1, 8), 30), job(0, (2, 8), 10)],
            &[8, 8],
            Some((10.0, 40.0)),
        ),
        (
            "too large for a controller",
            vec![job(0, (1, 16), 1)],
            &[8],
            None,
        ),
        ("too many IPUs", vec![job(0, (1, 1), 1)], &[64], None),
    ]
}

#[test]
fn small_instances_are_solved_as_by_hand() {
    for (name, jobs, ipus, expected) in small_instances() {
        let jobs: Vec<&Job> = jobs.iter().collect();
        let controllers = controllers(ipus);
        let (wait, end) = (
            weighted_wait(&jobs, |_| 1.0, &controllers),
            last_end(&jobs, &controllers),
        );
        assert!(
            is_close(wait, expected.map(|one| one.0)),
            "{name}: {wait:?}"
        );
        assert!(is_close(end, expected.map(|one| one.1)), "{name}: {end:?}");
    }
}

#[test]
fn a_weight_changes_the_order() {
    let jobs = [job(0, (1, 8), 50), job(0, (1, 8), 20)];
    let jobs: Vec<&Job> = jobs.iter().collect();
    let heavy = |job: &Job| if job.duration == 50 { 10.0 } else { 1.0 };
    let wait = weighted_wait(&jobs, heavy, &controllers(&[8]));
    assert!(is_close(wait, Some(50.0)), "{wait:?}");
}

/// Tries the controllers that are not full, ordered by their free IPUs: the fullest first, or the
/// emptiest.
fn by_free(request: &PlacementRequest, fullest: bool) -> Decision {
    let PlacementRequest {
        request,
        controllers,
        attempts,
    } = request;
    let mut controllers = controllers.clone();
    controllers.sort_by_key(|view| i64::from(view.free_ipus()) * if fullest { 1 } else { -1 });
    serial_walk(request, &controllers, attempts)
}

#[test]
fn no_policy_surpasses_the_optimum_and_the_optimum_not_the_relaxation() {
    let policies: [fn(&PlacementRequest) -> Decision; 3] = [
        |asked| serial_walk(&asked.request, &asked.controllers, &asked.attempts),
        |asked| by_free(asked, true),
        |asked| by_free(asked, false),
    ];
    for seed in 0..30 {
        let pods = controllers(if seed % 2 == 0 { &[8, 8] } else { &[16] });
        let mut jobs = generate::jobs(seed, 6, 8);
        jobs.retain(|job| job.fits(&pods));
        let all: Vec<&Job> = jobs.iter().collect();
        let least = weighted_wait(&all, |_| 1.0, &pods).unwrap();
        let ipus = controllers::capacity(&pods);
        let relaxed = bound::weighted_wait(&all, |_| 1.0, ipus);
        assert!(relaxed <= least + 1e-6, "{seed}: {relaxed} {least}");
        let end = last_end(&all, &pods).unwrap();
        let relaxed = float(bound::last_end(&all, &pods));
        assert!(relaxed <= end + 1e-6, "{seed}: {relaxed} {end}");
        for policy in policies {
            let place = |_: u64, asked: PlacementRequest| Decided {
                decision: policy(&asked),
                overruled: None,
            };
            let replay = replay(&jobs, &pods, &Settings::default(), place);
            let (mut waited, mut last) = (0, 0);
            for (job, outcome) in jobs.iter().zip(&replay.outcomes) {
                let Outcome::Ran { started } = outcome else {
                    panic!("{seed}: {outcome:?}");
                };
                waited += started - job.arrival;
                last = last.max(started + job.duration);
            }
            assert!(least <= float(waited) + 1e-6, "{seed}: {least} {waited}");
            assert!(end <= float(last) + 1e-6, "{seed}: {end} {last}");
        }
    }
}
