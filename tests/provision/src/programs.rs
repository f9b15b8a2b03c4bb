//! The programs that the commands of the Makefile run, and the one cargo call that builds all of
//! them.

/// The arguments of cargo. The quick profile, one call for all of them: so each crate has the
/// features that all of them need together, and nothing is compiled twice.
pub const BUILD: [&str; 17] = [
    "build",
    "--locked",
    "--package",
    "harness",
    "--package",
    "ipu-operator",
    "--package",
    "ipu-kubectl",
    "--package",
    "ipu-agent",
    "--package",
    "vipu-simulator",
    "--bin=harness",
    "--bin=ipu-operator",
    "--bin=kubectl-ipu",
    "--bin=ipu-agent",
    "--bin=vipu-simulator",
];

/// The variable with a folder that has these programs already: `make test` builds them with the
/// tests.
pub const PROGRAMS: &str = "IPU_OPERATOR_PROGRAMS";
