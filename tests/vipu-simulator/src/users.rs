//! Pure: which V-IPU user sees which partitions, if the simulator separates users.

use std::collections::BTreeMap;

use crate::codes::CodeName;

/// The gRPC metadata that names the caller.
pub(super) const USER_ID: &str = "user-id";

/// The creator of each partition, and the reply to other users.
#[derive(Clone, Debug, Default)]
pub struct Users {
    /// The code of the reply about a partition of another user. Lists do not show these partitions.
    /// `None`: every user sees every partition.
    pub hides: Option<CodeName>,
    made_by: BTreeMap<String, String>,
}

impl Users {
    /// Records that this user has created a partition.
    pub fn made(&mut self, user: &str, id: &str) {
        self.made_by.insert(id.to_owned(), user.to_owned());
    }

    /// Whether this user sees a partition. Every user sees one that was created by hand.
    pub(super) fn sees(&self, user: &str, id: &str) -> bool {
        let maker = self.made_by.get(id);
        self.hides.is_none() || maker.is_none_or(|maker| maker == user)
    }

    /// Returns the code that hides a partition from this user. `None`: the user sees it.
    pub(super) fn hidden(&self, user: &str, id: &str) -> Option<CodeName> {
        self.hides.filter(|_| !self.sees(user, id))
    }
}
