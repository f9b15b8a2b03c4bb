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

    /// The message of the API server, if the user may not read it.
    pub fn denied(&self) -> Option<&str> {
        match self {
            Self::Allowed(_) => None,
            Self::Denied(words) => Some(words),
        }
    }
}
