//! Tests of the figures, on replays that are short enough to count by hand.

use super::*;
use crate::replay::{Settings, replay};
use crate::samples::walk;

fn job(namespace: &str, arrival: u64, ipus: u32, duration: u64) -> Job {
    Job {
        namespace: namespace.into(),
        arrival,
        ipus,
        gang: 1,
        duration,
    }
}

fn of(jobs: &[Job], ipus: u32) -> Figures {
    let controllers = [Controller {
        name: "pod".to_owned(),
        ipus,
    }];
    let input = Input {
        jobs,
        controllers: &controllers,
        large: 8,
    };
    figures(
        input,
        &replay(jobs, &controllers, &Settings::default(), walk),
    )
}

/// Value and bound of a figure.
fn values(figures: &Figures, name: &str) -> (Option<f64>, Option<f64>) {
    let mut figures = figures.figures.iter();
    let figure = figures.find(|figure| figure.name == name).unwrap();
    (figure.value, figure.bound)
}

#[test]
fn figures_and_bounds_are_counted() {
    // The long job runs first, and the short one waits for it: the other way round would be better.
    let jobs = [job("a", 0, 8, 50), job("b", 0, 8, 20)];
    let found = of(&jobs, 8);
    let expected = [
        ("allocation", Some(1.0), Some(1.0)),
        ("saturatedAllocation", Some(1.0), Some(1.0)),
        ("fragmentation", Some(0.0), Some(0.0)),
        ("lastEnd", Some(70.0), Some(70.0)),
        ("waitMean", Some(25.0), Some(10.0)),
        ("waitP50", Some(0.0), Some(0.0)),
        ("waitP99", Some(50.0), Some(20.0)),
        ("largeWaitMean", Some(25.0), Some(10.0)),
        ("largeWaitP99", Some(50.0), Some(20.0)),
        ("boundedSlowdownMean", Some(2.25), Some(1.2)),
        ("boundedSlowdownP99", Some(3.5), Some(1.4)),
    ];
    let close = |found: Option<f64>, expected: Option<f64>| match (found, expected) {
        (Some(found), Some(expected)) => (found - expected).abs() < 1e-6,
        (found, expected) => found == expected,
    };
    for (name, value, bound) in expected {
        let found = values(&found, name);
        assert!(close(found.0, value), "{name}: {found:?}");
        assert!(close(found.1, bound), "bound of {name}: {found:?}");
    }
    // Slowdowns of 1 and 3.5: (4.5)² / (2 × 13.25).
    let fairness = values(&found, "fairness").0.unwrap();
    assert!((fairness - 20.25 / 26.5).abs() < 1e-6, "{fairness}");
    assert_eq!(
        (found.ran, found.rejected, found.waiting, found.large),
        (2, 0, 0, 2)
    );
    let names: Vec<_> = found
        .namespaces
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b"]);
    assert!((found.namespaces[1].wait_mean - 50.0).abs() < 1e-6);
}

#[test]
fn no_value_surpasses_its_bound() {
    for seed in 0..20 {
        let jobs = crate::generate::jobs(seed, 60, 16);
        let found = of(&jobs, 48);
        for figure in &found.figures {
            let Some((value, bound)) = figure.value.zip(figure.bound) else {
                continue;
            };
            let is_share = matches!(figure.unit, Unit::Share);
            let slack = if is_share {
                bound - value
            } else {
                value - bound
            };
            assert!(slack > -1e-6, "seed {seed}: {figure:?}");
        }
    }
}

#[test]
fn jobs_that_never_fit_do_not_count() {
    let jobs = [job("a", 0, 8, 50), job("a", 0, 64, 20)];
    let found = of(&jobs, 8);
    assert_eq!((found.ran, found.rejected), (1, 1));
    assert_eq!(values(&found, "lastEnd"), (Some(50.0), Some(50.0)));
    let nothing = of(&jobs[1..], 8);
    assert_eq!(values(&nothing, "waitMean"), (None, None));
    assert_eq!(values(&nothing, "allocation"), (None, None));
}
