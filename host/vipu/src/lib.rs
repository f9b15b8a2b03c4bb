//! V-IPU controllers: their wire protocol, a client for one, and what is known of all of them.

pub mod auth;
pub mod client;
pub mod cordon;
mod codec;
pub mod controllers;
pub mod departed;
pub mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(any(test, feature = "fuzzing"))]
mod invariants;
pub mod inventory;
pub mod model;
#[cfg(test)]
mod generators;
pub mod proto;
pub mod registry;
pub mod replies;
pub mod failure_stats;

pub use auth::{AuthOptions, files::AuthFiles};
pub use client::{Deadlines, VipuClient};
pub use error::VipuError;
pub use inventory::Inventories;
pub use model::Truth;
pub use registry::Registry;

#[cfg(test)]
mod proptests;
