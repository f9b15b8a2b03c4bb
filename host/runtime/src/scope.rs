//! The namespaces that a release serves: the whole cluster, or some namespaces.
//!
//! Two releases with separate namespaces do not touch each other's objects. If two releases claim
//! the same namespace, the older one serves it, and the newer one is inactive until the conflict is
//! resolved (`conflict`, `conflicts`).

pub mod conflict;
pub mod conflicts;
pub mod namespaces;
pub mod watch;

pub use conflict::Conflict;
pub use conflicts::Conflicts;
pub use namespaces::Scope;
