//! Pod templates and quantities by their meaning, and not by their text.
//!
//! Entry points:
//! - [`canonical`] makes the same form of templates from which Kubernetes makes the same Pods.
//! - [`quantity`] reads quantities.
//!
//! It is pure, and guests are compiled with it. It must not depend on anything but `serde_json`, and it needs no later
//! compiler than guests do.
#![forbid(unsafe_code)]

mod canonical;
mod defaults;
pub mod quantity;

pub use canonical::canonical;
