//! Pure: the result of a read with the rights of the user, who may lack the right.

/// What was read, or why the user may not read it.
#[derive(Clone, Debug, PartialEq)]
pub enum Access<T> {
    /// The user may read it.
    Allowed(T),
    /// The user may not, in the words of the API server.
    Denied(String),
}

impl<T> Access<T> {
    /// What was read, if the user may read it.
    pub fn allowed(&self) -> Option<&T> {
        match self {
            Self::Allowed(value) => Some(value),
            Self::Denied(_) => None,
        }
    }

    /// The words of the API server, if the user may not read it.
    pub fn denied(&self) -> Option<&str> {
        match self {
            Self::Allowed(_) => None,
            Self::Denied(words) => Some(words),
        }
    }
}
