//! Pure: an audit of existing objects: each as the request that would create it again, and what a
//! guest decides about it.

mod outcome;
mod review;
mod tally;

pub use outcome::{ObjectName, Outcome};
pub use review::{Subject, Update};
pub use tally::Tally;
