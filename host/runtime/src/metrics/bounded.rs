//! Bounds the number of values of a label for any input from outside.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

/// Value of the label for all values beyond the limit.
pub const OTHER: &str = "_other";

/// Maximum number of values of one label from outside. A digest or a policy that is no longer
/// active keeps its counts.
const VALUES_MAX: usize = 64;

/// The known values of a label.
#[derive(Clone, Debug, Default)]
pub struct Values(Arc<Mutex<BTreeSet<Box<str>>>>);

impl Values {
    /// Returns the value of the label to count.
    pub fn bounded(&self, value: &str) -> String {
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
