//! Pure: values that many objects have in common, each in memory once.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// The values of all objects. Values that no object has any more are dropped before their number
/// doubles.
#[derive(Debug)]
pub struct Interned<T: ?Sized> {
    values: HashSet<Arc<T>>,
    /// The number of values at which unused ones are dropped.
    limit: usize,
}

impl<T: ?Sized> Default for Interned<T> {
    fn default() -> Self {
        Self {
            values: HashSet::new(),
            limit: 0,
        }
    }
}

impl<T: Eq + Hash + ?Sized> Interned<T> {
    /// Returns the shared value that is equal to this one.
    pub fn known(&self, value: &T) -> Option<Arc<T>> {
        self.values.get(value).cloned()
    }

    /// Shares a value that is not known.
    pub fn insert(&mut self, value: Arc<T>) -> Arc<T> {
        if self.values.len() >= self.limit {
            self.values.retain(|one| Arc::strong_count(one) > 1);
            self.limit = 2 * self.values.len();
        }
        self.values.insert(Arc::clone(&value));
        value
    }

    /// Returns the number of values, with those that no object has any more.
    pub fn count(&self) -> usize {
        self.values.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_shared_and_unused_ones_are_dropped() {
        let mut words = Interned::<str>::default();
        let one = words.insert("a".into());
        assert!(Arc::ptr_eq(&one, &words.known("a").unwrap()));
        for number in 0..100 {
            let word = number.to_string();
            assert_eq!(words.known(&word), None);
            words.insert(word.into());
        }
        assert!(words.count() <= 2, "{words:?}");
        assert!(Arc::ptr_eq(&one, &words.known("a").unwrap()));
    }
}
