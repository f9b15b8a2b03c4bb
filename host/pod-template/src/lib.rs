//! Pod templates and quantities by their meaning, and not by their text.
//!
//! Entry points:
//! - [`canonical`] makes the same form of templates from which Kubernetes makes the same Pods.
//! - [`fill_nulls`] replaces null by what Kubernetes reads there.
//! - [`quantity`] reads quantities.
//!
//! It is pure, and guests are compiled with it. It must not depend on anything but `serde_json`,
//! and it needs no later compiler than guests do.
#![forbid(unsafe_code)]

mod canonical;
mod defaults;
mod nulls;
pub mod quantity;

pub use canonical::canonical;
pub use nulls::fill_nulls;
