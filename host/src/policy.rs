//! IPUPolicies: guests that admins put in the place of the built-in ones, or beside them, while the
//! operator runs.
//!
//! Every replica prepares what it is to ask and says so (`report`); one of them sees that all are ready
//! and puts the new version in force in the policy's status (`commit`); every replica follows that
//! status (`lineup`), so that all change at nearly the same moment. These are pure; `replica` and
//! `coordinator` do the I/O.

pub mod commit;
pub mod lineup;
pub mod matching;
pub mod report;
