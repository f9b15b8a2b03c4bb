//! Runs the trials phase by phase: neighbours with the same use of the cluster are one phase.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use cluster::interrupt;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::fixture::Fixture;
use crate::lab::Lab;
use crate::managers::{self, Managers};
use crate::own_namespace;
use crate::quiet;
use crate::times::Times;
use crate::trials::{Case, Use};

/// Trials at the same time in a phase of shared use. Together they need at most 48 of the 80 IPUs.
const AT_ONCE: usize = 3;

/// The results of all phases.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// Trials that ran.
    pub(crate) run: u64,
    /// Trials that passed.
    pub(crate) passed: u64,
}

/// Prints the names of the trials.
pub(crate) fn list(arguments: &Arguments, cases: &[Case]) -> ExitCode {
    let trial = |case: &Case| Trial::test(case.name, || Err("it is only listed".into()));
    let trials = cases.iter().map(trial).collect();
    libtest_mimic::run(arguments, trials).exit_code()
}

/// Runs the trials that match the arguments. Prints the slowest at the end.
pub(crate) fn run(arguments: &Arguments, cases: &[Case], lab: &Arc<Lab>) -> Totals {
    let times = Times::from_env();
    let mut totals = Totals::default();
    let numbered: Vec<(usize, Case)> = cases.iter().copied().enumerate().collect();
    for phase in numbered.chunk_by(|(_, one), (_, next)| one.usage == next.usage) {
        if interrupt::came() {
            break;
        }
        let mut remaining = cases
            .iter()
            .skip(phase.first().map_or(0, |(number, _)| *number));
        let allows_load = remaining.all(|case| case.usage.tolerates_load());
        let trials = phase.iter().map(|(number, case)| {
            let namespace = format!("trial-{number}");
            trial(*case, namespace, lab, &times, allows_load)
        });
        let trials: Vec<Trial> = trials
            .filter(|trial| !arguments.is_filtered_out(trial))
            .collect();
        let Some((_, first)) = phase.first().filter(|_| !trials.is_empty()) else {
            continue;
        };
        lab.progress.stage(stage(first.usage));
        let asked = arguments.test_threads.unwrap_or(AT_ONCE);
        let arguments = Arguments {
            test_threads: Some(threads(first.usage, asked)),
            ..arguments.clone()
        };
        let conclusion = libtest_mimic::run(&arguments, trials);
        totals.run += conclusion.num_passed + conclusion.num_failed;
        totals.passed += conclusion.num_passed;
    }
    lab.progress.stage("stop the cluster");
    times.print();
    totals
}

fn threads(usage: Use, asked: usize) -> usize {
    match usage {
        Use::Shared => asked.min(AT_ONCE),
        Use::Alone(_) | Use::Sparing | Use::Quiet => 1,
    }
}

fn stage(usage: Use) -> &'static str {
    match usage {
        Use::Shared => "trials beside each other",
        Use::Alone(Managers::Neither) => "trials alone",
        Use::Alone(_) => "trials with JobSet or Kueue",
        Use::Sparing => "trials on a machine with little other work",
        Use::Quiet => "trials on a quiet machine",
    }
}

fn trial(case: Case, namespace: String, lab: &Arc<Lab>, times: &Times, allows_load: bool) -> Trial {
    let (lab, times) = (Arc::clone(lab), times.clone());
    Trial::test(case.name, move || {
        if allows_load {
            quiet::allow_load()?;
        }
        if case.usage == Use::Quiet {
            quiet::wait(&lab)?;
        }
        let begin = Instant::now();
        let done = checked(case, &namespace, &lab);
        times.add(case.name, begin.elapsed())?;
        done
    })
}

fn checked(case: Case, namespace: &str, lab: &Arc<Lab>) -> Result<(), Failed> {
    let check = case.check;
    match case.usage {
        Use::Shared => {
            let fixture = Fixture::shared(lab, namespace)?;
            let done = check(&fixture);
            lab.runtime.block_on(own_namespace::delete(&fixture))?;
            done
        }
        Use::Alone(managers) => {
            managers::ensure(lab, managers)?;
            check(&Fixture::alone(lab)?)
        }
        Use::Sparing | Use::Quiet => {
            managers::ensure(lab, Managers::Neither)?;
            check(&Fixture::alone(lab)?)
        }
    }
}
