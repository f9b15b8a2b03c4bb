//! A client of the gRPC API of V-IPU controllers.
//!
//! Entry points:
//! - [`VipuClient`] calls one controller, [`Registry`] keeps a client for each controller of an
//!   admin's list, and [`Inventories`] caches what they report.
//! - [`model`] has the values, and [`error`] the errors and whether the operation may have been
//!   carried out.
//! - [`failure_stats`] counts the failures of a day, and [`cordon`] has the controllers that take
//!   no new partitions.
//! - [`auth`] reads certificates and credentials, and [`proto`] is the API of the server.
//!
//! It must not know jobs, policies, the queue of requests, or a client of Kubernetes' objects.
#![forbid(unsafe_code)]

pub mod auth;
pub mod client;
mod codec;
pub mod controllers;
pub mod cordon;
pub mod create_scope;
pub mod departed;
pub mod error;
pub mod failure_stats;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
#[cfg(test)]
mod generators;
#[cfg(any(test, fuzzing))]
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
