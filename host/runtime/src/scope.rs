//! Whose jobs a release serves: those of the whole cluster, or of some namespaces.
//!
//! Two releases with namespaces of their own do not touch each other's objects. Where two want the same
//! namespace, the one that was there first serves it, and the other one rests as a whole until that is
//! fixed (`conflict`, `conflicts`).

pub mod conflict;
pub mod conflicts;
pub mod namespaces;
pub mod watch;

pub use conflict::Conflict;
pub use conflicts::Conflicts;
pub use namespaces::Scope;
