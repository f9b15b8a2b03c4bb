//! The common parts of all metrics of a process: their prefix, and bounded label values. Each area
//! owns its families.

mod bounded;

pub use bounded::{OTHER, Values};

/// Prefix of the name of every metric.
pub const PREFIX: &str = "ipu_operator";

/// Converts a count to the value of a gauge.
pub fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
