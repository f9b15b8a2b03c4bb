//! The simulated V-IPU controllers of a load: their work takes no time.

use vipu_simulator::pod::Timings;
use vipu_simulator::{Options, Simulator};

use super::LoadError;

/// V-IPU controllers with the same number of IPUs each.
pub(super) async fn simulators(count: usize, ipus: u32) -> Result<Vec<Simulator>, LoadError> {
    let mut simulators = Vec::new();
    for index in 0..count {
        let options = Options {
            timings: Timings {
                forming_ms: 0,
                removing_ms: 0,
                resetting_ms: 0,
            },
            ..Options::quick(&label(index), ipus)
        };
        simulators.push(Simulator::start(options).await?);
    }
    Ok(simulators)
}

/// Label of the nodes of a simulated controller.
pub(super) fn label(index: usize) -> String {
    format!("pod{}", index + 1)
}

/// The admin's list of the simulated controllers, entry by entry.
pub(super) fn entries(simulators: &[Simulator]) -> Vec<String> {
    let all = simulators.iter().enumerate();
    all.map(|(index, one)| format!("{}:ipunode={}", one.address, label(index)))
        .collect()
}
