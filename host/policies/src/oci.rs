//! OCI registries: how a module is named there, fetched, signed and pushed.
//!
//! Nothing here knows Kubernetes. `registry` speaks with a registry, within bounds of size and time;
//! `fetch` and `push` say in which order; what the answers mean is decided by the pure files.

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

/// The first letters of what others wrote, so many at most.
fn excerpt(text: &str, most: usize) -> String {
    let letters = text.chars().filter(|letter| !letter.is_control());
    letters.take(most).collect()
}
