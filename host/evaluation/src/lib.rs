//! Pure: measures placement policies: replays the jobs of a cluster in virtual time against the operator's queue.
//!
//! [`replay()`] runs arrivals and ends of [`jobs`] against the queue and the placement of `ipu_partitions`, with a buddy
//! allocator for each V-IPU controller. The caller provides the policy as a function, so the package runs no guest itself.
//! [`figures`] condenses a replay into figures, each beside its bound where one is known, [`report`] prints them and
//! [`plot`] draws them. [`generate`] makes jobs from a seed.
//!
//! The same input gives the same output, bit for bit.
#![forbid(unsafe_code)]

mod bound;
mod buddy;
pub mod controllers;
pub mod figures;
pub mod generate;
pub mod jobs;
mod optimum;
pub mod plot;
mod pool;
pub mod replay;
pub mod report;
mod requested;
#[cfg(test)]
mod samples;
mod statistics;
pub mod timeline;
mod usage;

pub use controllers::{Controller, ControllersError};
pub use jobs::{Job, JobsError};
pub use replay::{Decided, Order, Replay, Settings, replay};
