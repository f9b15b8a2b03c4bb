//! The suites of `make test`.

/// Some test programs that run together.
#[derive(Debug)]
pub(super) struct Suite {
    pub(super) name: &'static str,
    /// Name of its log, without the ending.
    pub(super) file: &'static str,
    /// Arguments with which cargo selects its programs.
    pub(super) targets: &'static [&'static str],
    /// Arguments of its programs.
    pub(super) arguments: &'static [&'static str],
}

/// The tests that need neither a server nor root, without the simulation.
pub(super) const QUICK: Suite = Suite {
    name: "quick tests",
    file: "quick",
    targets: &QUICK_TARGETS,
    arguments: &["-Zunstable-options", "--report-time", "--skip=simulation::"],
};

/// The tests of those programs that [`QUICK`] leaves out.
pub(super) const SIMULATION: Suite = Suite {
    name: "simulation",
    file: "simulation",
    targets: &QUICK_TARGETS,
    arguments: &["-Zunstable-options", "--report-time", "simulation::"],
};

const QUICK_TARGETS: [&str; 7] = [
    "--lib",
    "--test=agent",
    "--test=bounded_json",
    "--test=command_line",
    "--test=compile",
    "--test=policy_cli",
    "--test=suite",
];

/// The tests on a real API server, without those of [`API_SERVER_LATER`]. Two at the same time: the
/// trials beside them use the cores too, and some tests count calls that a loaded machine repeats.
pub(super) const API_SERVER: Suite = Suite {
    name: "API-server suite",
    file: "api-server",
    targets: &["--test=apiserver"],
    arguments: &[
        "-Zunstable-options",
        "--report-time",
        "--test-threads=2",
        "--skip=kueue::",
        "--skip=chart::",
        "--skip=gitops::",
        // The long tests.
        "--skip=clock::",
        "--skip=partition::measured::",
    ],
};

/// The tests that [`API_SERVER`] leaves out: about a third. With four at a time from the beginning,
/// two cores were busy all the time, and programs of MPI did not reach each other.
pub(super) const API_SERVER_LATER: Suite = Suite {
    name: "API-server suite, later part",
    file: "api-server-later",
    targets: &["--test=apiserver"],
    arguments: &[
        "-Zunstable-options",
        "--report-time",
        "--test-threads=2",
        "kueue::",
        "chart::",
        "gitops::",
    ],
};

/// The trials on real nodes.
pub(super) const NODES: Suite = Suite {
    name: "trials on nodes",
    file: "nodes",
    targets: &["--test=e2e"],
    arguments: &[],
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The tests that only `make test-full` runs.
    const LONG: [&str; 2] = ["clock::", "partition::measured::"];

    #[test]
    fn each_test_is_in_one_of_two_parts() {
        for (part, rest) in [(&QUICK, &SIMULATION), (&API_SERVER, &API_SERVER_LATER)] {
            assert_eq!(part.targets, rest.targets);
            let arguments = part.arguments.iter();
            let skipped: Vec<_> = arguments
                .filter_map(|argument| argument.strip_prefix("--skip="))
                .filter(|skipped| !LONG.contains(skipped))
                .collect();
            let arguments = rest.arguments.iter().copied();
            let filters: Vec<_> = arguments
                .filter(|argument| !argument.starts_with('-'))
                .collect();
            assert_eq!(skipped, filters);
        }
    }
}
