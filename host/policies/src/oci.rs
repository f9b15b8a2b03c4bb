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

/// Cuts a text of others for a message.
fn excerpt(text: &str, most: usize) -> String {
    let letters = text.chars().filter(|letter| !letter.is_control());
    letters.take(most).collect()
}
