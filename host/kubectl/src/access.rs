//! Pure: the result of a read with the rights of the user, or the API server's refusal.

/// The result of a read, or the refusal.
#[derive(Clone, Debug, PartialEq)]
pub enum Access<T> {
    /// The user may read it.
    Allowed(T),
    /// The user may not read it. The text is the message of the API server.
    Denied(String),
}

impl<T> Access<T> {
    /// The result, if the user may read it.
    pub fn allowed(&self) -> Option<&T> {
        match self {
            Self::Allowed(value) => Some(value),
            Self::Denied(_) => None,
        }
    }

    /// Applies `change` to the value, if the user may read it.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Access<U> {
        match self {
            Self::Allowed(value) => Access::Allowed(change(value)),
            Self::Denied(words) => Access::Denied(words),
        }
    }

    /// The message of the API server, if the user may not read it.
    pub fn denied(&self) -> Option<&str> {
        match self {
            Self::Allowed(_) => None,
            Self::Denied(words) => Some(words),
        }
    }
}

/// The objects of a list. Another version of the operator may have written unreadable ones.
#[derive(Clone, Debug)]
pub struct Objects<T> {
    /// Those that can be read.
    pub readable: Vec<T>,
    /// The number of the others.
    pub unreadable: usize,
}

impl<T> Objects<T> {
    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.readable.is_empty() && self.unreadable == 0
    }
}

impl<T> FromIterator<Option<T>> for Objects<T> {
    fn from_iter<I: IntoIterator<Item = Option<T>>>(objects: I) -> Self {
        let objects: Vec<_> = objects.into_iter().collect();
        Self {
            unreadable: objects.iter().filter(|one| one.is_none()).count(),
            readable: objects.into_iter().flatten().collect(),
        }
    }
}
