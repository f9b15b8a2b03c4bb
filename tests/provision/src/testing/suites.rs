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

/// The tests that need neither a server nor root.
pub(super) const QUICK: Suite = Suite {
    name: "quick tests",
    file: "quick",
    targets: &[
        "--lib",
        "--test=agent",
        "--test=bounded_json",
        "--test=command_line",
        "--test=compile",
        "--test=policy_cli",
        "--test=suite",
    ],
    arguments: &TIMED,
};

/// The tests on a real API server. Two at the same time: the trials beside them use the cores too, and some tests count calls
/// that a loaded machine repeats. With four, two cores were busy all the time, and programs of MPI did not reach each other.
pub(super) const API_SERVER: Suite = Suite {
    name: "API-server suite",
    file: "api-server",
    targets: &["--test=apiserver"],
    arguments: &["-Zunstable-options", "--report-time", "--test-threads=2"],
};

/// The trials on real nodes.
pub(super) const NODES: Suite = Suite {
    name: "trials on nodes",
    file: "nodes",
    targets: &["--test=e2e"],
    arguments: &[],
};

const TIMED: [&str; 2] = ["-Zunstable-options", "--report-time"];
