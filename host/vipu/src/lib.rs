//! V-IPU controllers: their wire protocol, a client for one, and what is known of all of them.
#![forbid(unsafe_code)]

pub mod auth;
pub mod client;
mod codec;
pub mod controllers;
pub mod cordon;
pub mod departed;
pub mod error;
pub mod failure_stats;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(test)]
mod generators;
#[cfg(any(test, feature = "fuzzing"))]
mod invariants;
pub mod inventory;
pub mod model;
pub mod proto;
pub mod registry;
pub mod replies;

pub use auth::{AuthOptions, files::AuthFiles};
pub use client::{Deadlines, VipuClient};
pub use error::VipuError;
pub use inventory::Inventories;
pub use model::Truth;
pub use registry::Registry;

#[cfg(test)]
mod proptests;
