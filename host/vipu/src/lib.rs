//! A client of the gRPC API of V-IPU controllers.
//!
//! [`VipuClient`] calls one controller, [`Registry`] keeps a client for each controller of an admin's list, and
//! [`Inventories`] caches what they report. `model` holds the values, `error` what can go wrong and whether an operation may
//! have happened, `failure_stats` the failures of a day, and `cordon` the controllers that take no new partitions.
//!
//! The package knows neither jobs nor policies.
#![forbid(unsafe_code)]

pub mod auth;
mod causes;
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
pub use model::Lookup;
pub use registry::Registry;

#[cfg(test)]
mod proptests;
