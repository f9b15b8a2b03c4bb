//! Fuzz targets of `tests/fuzz`: functions from bytes, which panic where an invariant of parsed input breaks.

use ipu_api::ipupartition::IPUPartition;

use crate::cooperative_env::cases;
use crate::rest;

/// Bodies of `/query` and of `/partitions`.
pub fn rest_bodies(input: &[u8]) {
    rest::invariants::check_query_request(input);
    rest::invariants::check_create_request(input);
}

/// An IPUPartition as JSON, in worlds of every kind.
pub fn partition_status(input: &[u8]) {
    let object = serde_json::from_slice::<IPUPartition>(input);
    for case in object.iter().flat_map(cases) {
        case.check();
    }
}

#[cfg(test)]
mod tests;
