//! The client of OCI registries: references, fetches, signatures and pushes.
//!
//! It does not know Kubernetes. `registry` sends requests within limits of size and time, `fetch` and `push` order them, and
//! the pure files evaluate the responses.

mod address;
mod challenge;
pub mod cosign;
pub mod credentials;
pub mod fetch;
pub mod http;
pub mod manifest;
pub mod push;
pub mod reference;
pub mod registry;
mod tls;
mod upload;

/// Longest excerpt of a registry's text in a message, in bytes.
const EXCERPT_MAX: usize = 160;
