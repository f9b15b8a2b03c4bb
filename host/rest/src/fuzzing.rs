//! A fuzz target of `tests/fuzz`: a function from bytes, which panics where an invariant of parsed
//! input breaks.

use super::invariants;

/// Bodies of `/query` and of `/partitions`.
pub fn rest_bodies(input: &[u8]) {
    invariants::check_query_request(input);
    invariants::check_create_request(input);
}

#[cfg(test)]
mod tests;
