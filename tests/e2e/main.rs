//! One run on real nodes: the demo, then trials in which processes are killed, nodes become
//! unreachable, or data is invalid, and the jobs still end as expected.
//!
//! The cluster starts once for all trials and stops after them, also when they fail. Trials that
//! change nothing outside of their namespaces run three at a time, and the others alone.

mod api_outage;
mod autoscaled;
mod described;
mod disruptions;
mod documents;
mod failing_pods;
mod fenced;
mod firewall;
mod fixture;
mod flooded;
mod guides;
mod host_network;
mod interactive;
mod lab;
mod launcher;
mod life;
mod long_names;
mod lost_node;
mod managers;
mod many_jobs;
mod mounted_agent;
mod namespaces;
mod native_pods;
mod networks;
mod own_namespace;
mod parallel;
mod partition_ids;
mod phases;
mod pods;
mod policies;
mod queued;
mod quiet;
mod release;
mod released_guests;
mod service;
mod shared_rights;
mod simulators;
mod streams;
mod times;
mod train;
mod trials;
mod unaffected;
mod upgraded;

use std::process::ExitCode;

use cluster::interrupt::{self, First};
use lab::Lab;
use libtest_mimic::Arguments;

/// The variable that selects trials: `long` runs the long trials instead of the others, and `full`
/// runs both.
const EXTENT: &str = "IPU_OPERATOR_E2E";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    match part(&words) {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
        None => run(),
    }
}

/// Runs the part of the work that this process has been started for. `None`: it is the first
/// process.
fn part(words: &[String]) -> Option<anyhow::Result<()>> {
    match words {
        // The first process of a node is the program that starts the cluster.
        [_, word, spec] if word == "node" => {
            let done = cluster::node::run(std::path::Path::new(spec));
            Some(done.map_err(anyhow::Error::from))
        }
        // The load of a trial runs as if it were in a Pod.
        [_, word, pid, targets] if word == "flood" => Some(flooded::load(pid, targets)),
        _ => None,
    }
}

/// Runs the trials on a new cluster.
fn run() -> ExitCode {
    let arguments = Arguments::from_args();
    let extent = std::env::var(EXTENT).unwrap_or_default();
    let Some(cases) = trials::chosen(&extent) else {
        eprintln!("{EXTENT} is {extent:?}; it can be `long` or `full`, or not set");
        return ExitCode::FAILURE;
    };
    if arguments.list {
        return phases::list(&arguments, &cases);
    }
    if let Err(error) = interrupt::watch(First::EndCluster) {
        eprintln!("failed to watch for Ctrl-C: {error}");
        return ExitCode::FAILURE;
    }
    let lab = match Lab::set_up() {
        Ok(lab) => lab,
        Err(error) => {
            eprintln!("the cluster did not start: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let totals = phases::run(&arguments, &cases, &lab);
    if let Err(error) = lab.tear_down() {
        eprintln!("the cluster was not removed completely: {error:#}");
        return ExitCode::FAILURE;
    }
    lab.progress.summary();
    if interrupt::came() {
        return ExitCode::from(interrupt::STATUS);
    }
    if totals.run == 0 {
        eprintln!("no trial matches the arguments");
        return ExitCode::FAILURE;
    }
    println!("{} of {} trials passed", totals.passed, totals.run);
    if totals.passed == totals.run {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
