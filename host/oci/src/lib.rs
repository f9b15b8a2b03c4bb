//! The client of OCI registries.
//!
//! Entry points:
//! - [`reference`] names an artefact, [`credentials`] are those of a Secret, and [`registry`] sends
//!   requests within limits of size and time.
//! - [`fetch`] and [`push`] order the requests. [`manifest`] and [`cosign`] evaluate the responses.
//!
//! It must not know Kubernetes, policies, or what a module is for.
#![forbid(unsafe_code)]

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
