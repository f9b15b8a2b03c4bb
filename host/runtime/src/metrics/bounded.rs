//! Keeps the values of a label few, whatever comes from outside.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

/// The value that stands for all that are too many.
pub const OTHER: &str = "_other";

/// Most values of one label that comes from outside. A digest or a policy that is no longer asked
/// keeps its counts.
const VALUES_MAX: usize = 64;

/// The values of a label that were seen so far.
#[derive(Clone, Debug, Default)]
pub struct Values(Arc<Mutex<BTreeSet<Box<str>>>>);

impl Values {
    /// The value to count under.
    pub fn bounded(&self, value: &str) -> String {
        // Every change of it is whole before the next one begins.
        let mut seen = self.0.lock();
        if !seen.contains(value) {
            if seen.len() == VALUES_MAX {
                return OTHER.to_owned();
            }
            seen.insert(value.into());
        }
        value.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_values_stay_and_the_rest_is_one() {
        let values = Values::default();
        for number in 0..VALUES_MAX {
            assert_eq!(values.bounded(&number.to_string()), number.to_string());
        }
        assert_eq!(values.bounded("late"), OTHER);
        assert_eq!(values.bounded("0"), "0");
    }
}
