//! Pure: values that a pass looks thousands of requests up by, each with its hash.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// A shared value whose hash is computed once. A copy, the comparison with a copy, and that with a
/// value that differs cost the same however large it is.
#[derive(Clone, Debug)]
pub struct Hashed<T> {
    value: Arc<T>,
    hash: u64,
}

impl<T> Hashed<T> {
    /// Whether both are one value in memory.
    pub fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.value, &other.value)
    }
}

impl<T: Hash> From<T> for Hashed<T> {
    fn from(value: T) -> Self {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        Self {
            value: Arc::new(value),
            hash: hasher.finish(),
        }
    }
}

impl<T: Hash + Default> Default for Hashed<T> {
    fn default() -> Self {
        T::default().into()
    }
}

impl<T> Deref for Hashed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: PartialEq> PartialEq for Hashed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.is_shared_with(other) || self.hash == other.hash && self.value == other.value
    }
}

impl<T: Eq> Eq for Hashed<T> {}

impl<T> Hash for Hashed<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_equal_whether_they_are_shared_or_not() {
        let one = Hashed::from(vec!["a"; 1_000]);
        let (copy, equal, other) = (one.clone(), one.to_vec().into(), vec!["b"].into());
        assert!(one.is_shared_with(&copy) && !one.is_shared_with(&equal));
        assert_eq!((&one, one.hash), (&equal, equal.hash));
        assert_ne!(one, other);
        assert_eq!(Hashed::<Vec<&str>>::default(), Vec::new().into());
    }
}
