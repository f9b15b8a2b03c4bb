//! Pure: which V-IPU user sees which partitions, where a simulator is told to tell them apart.

use std::collections::BTreeMap;

use crate::codes::CodeName;

/// The gRPC metadata that names the caller.
pub(super) const USER_ID: &str = "user-id";

/// Who made which partition, and what others are told of it.
#[derive(Clone, Debug, Default)]
pub struct Users {
    /// The code that a user gets who asks for a partition of another one, which his list does not show.
    /// None: everybody sees everything.
    pub hides: Option<CodeName>,
    made_by: BTreeMap<String, String>,
}

impl Users {
    /// This user has made a partition.
    pub fn made(&mut self, user: &str, id: &str) {
        self.made_by.insert(id.to_owned(), user.to_owned());
    }

    /// Whether this user sees a partition. One that was made by hand is everybody's.
    pub(super) fn sees(&self, user: &str, id: &str) -> bool {
        let maker = self.made_by.get(id);
        self.hides.is_none() || maker.is_none_or(|maker| maker == user)
    }

    /// The code that hides a partition from this user, where one does.
    pub(super) fn hidden(&self, user: &str, id: &str) -> Option<CodeName> {
        self.hides.filter(|_| !self.sees(user, id))
    }
}
