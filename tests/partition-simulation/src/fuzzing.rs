//! A fuzz target of `tests/fuzz`: a function from bytes, which panics where an invariant of parsed
//! input breaks.

use ipu_api::ipupartition::IPUPartition;

use crate::cooperative_env::cases;

/// An IPUPartition as JSON, in worlds of every kind.
pub fn partition_status(input: &[u8]) {
    let object = serde_json::from_slice::<IPUPartition>(input);
    for case in object.iter().flat_map(cases) {
        case.check();
    }
}

#[cfg(test)]
mod tests;
