//! Pure: the checks of a node, in the order of their causes: what fails first often explains the
//! rest.

mod controllers;
mod limits;
mod networks;
mod rdma;
#[cfg(test)]
mod table;

use ipu_api::node_check::{CheckResult, Outcome};

use crate::facts::Facts;
use crate::requirements::Requirements;

/// A check.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Its name, which is stable.
    pub name: &'static str,
    /// Reason of the condition if it fails.
    pub fault: &'static str,
    run: fn(&Facts, &Requirements) -> Finding,
}

/// All checks.
pub const CHECKS: [Check; 11] = [
    Check {
        name: "controller-label",
        fault: "NoControllerLabel",
        run: controllers::label,
    },
    Check {
        name: "controller-connection",
        fault: "ControllerUnreachable",
        run: controllers::connection,
    },
    Check {
        name: "kernel-modules",
        fault: "KernelModuleMissing",
        run: limits::modules,
    },
    Check {
        name: "rdma-device",
        fault: "RDMADeviceMissing",
        run: rdma::device,
    },
    Check {
        name: "rdma-link",
        fault: "RDMALinkDown",
        run: rdma::link,
    },
    Check {
        name: "rdma-resource",
        fault: "RDMAResourceMissing",
        run: rdma::resource,
    },
    Check {
        name: "multus",
        fault: "MultusMissing",
        run: networks::multus,
    },
    Check {
        name: "network",
        fault: "NetworkMissing",
        run: networks::definitions,
    },
    Check {
        name: "memlock",
        fault: "MemlockTooLow",
        run: limits::memlock,
    },
    Check {
        name: "shared-memory",
        fault: "SharedMemoryTooSmall",
        run: limits::shared_memory,
    },
    Check {
        name: "huge-pages",
        fault: "HugePagesMissing",
        run: limits::huge_pages,
    },
];

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    outcome: Outcome,
    message: String,
}

impl Finding {
    fn of(outcome: Outcome, message: impl Into<String>) -> Self {
        Self {
            outcome,
            message: message.into(),
        }
    }

    fn ok(message: impl Into<String>) -> Self {
        Self::of(Outcome::Ok, message)
    }

    fn failed(message: impl Into<String>) -> Self {
        Self::of(Outcome::Failed, message)
    }

    fn unknown(message: impl Into<String>) -> Self {
        Self::of(Outcome::Unknown, message)
    }

    fn skipped(message: impl Into<String>) -> Self {
        Self::of(Outcome::Skipped, message)
    }
}

/// Makes all checks.
pub fn results(facts: &Facts, requirements: &Requirements) -> Vec<CheckResult> {
    let result = |check: &Check| {
        let Finding { outcome, message } = (check.run)(facts, requirements);
        CheckResult {
            check: check.name.to_owned(),
            outcome,
            message,
        }
    };
    CHECKS.iter().map(result).collect()
}
