//! Pure: the fields that the dashboard stores of each watched object.

mod controller;
mod job;
mod node;
mod partition;
mod policy;

pub use self::controller::{Accounted, Controller};
pub use self::job::{Job, Obstacle};
pub use self::node::Node;
pub use self::partition::{Owner, Partition, Reason};
pub use self::policy::Policy;
