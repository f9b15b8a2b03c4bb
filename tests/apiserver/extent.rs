//! The extent of tests whose full extent takes minutes. `make test-full` runs them in full.

use std::env;

/// The variable that selects the extent: `full`, or not set.
const VARIABLE: &str = "IPU_OPERATOR_APISERVER";

/// Returns the value for the full extent, or the other one.
pub(crate) fn full_or<T>(full: T, otherwise: T) -> T {
    match env::var(VARIABLE).ok().as_deref() {
        Some("full") => full,
        None => otherwise,
        Some(other) => panic!("{VARIABLE} is {other:?}; it can be `full`, or not set"),
    }
}
