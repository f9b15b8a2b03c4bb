//! V-IPU controllers: their wire protocol, a client for one, and what is known of all of them.

pub mod client;
pub mod closed;
pub mod controllers;
pub mod error;
pub mod inventory;
pub mod model;
pub mod proto;
pub mod registry;

pub use client::{Deadlines, VipuClient};
pub use error::VipuError;
pub use inventory::Inventories;
pub use model::Truth;
pub use registry::Registry;
