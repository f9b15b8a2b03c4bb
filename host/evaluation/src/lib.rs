//! Pure: measures placement policies: replays the jobs of a cluster in virtual time against the
//! operator's queue.
//!
//! Entry points:
//! - [`jobs`] and [`controllers`] read the input, and [`generate`] makes jobs from a seed.
//! - [`replay()`] runs arrivals and ends of the jobs against the queue and the placement of
//!   `ipu_partitions`, with a buddy allocator for each V-IPU controller.
//! - [`figures`] condenses a replay into figures, each beside its bound where one is known,
//!   [`report`] prints them and [`plot`] draws them.
//!
//! The same input gives the same output, bit for bit. The order of the queue and the check of a
//! decision are the operator's own code, and no copy of it. It must not know how a guest is loaded
//! or called: the caller provides the policy as a function (`ipu-authoring`). It calls neither the
//! API server nor a clock.
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

pub use buddy::BlockChoice;
pub use controllers::{Controller, ControllersError};
pub use jobs::{Job, JobsError};
pub use replay::{Decided, Order, Replay, Settings, replay};
