//! The admission webhooks of IPUJobs: defaults are set and rules are checked by the policies.
//!
//! `request` reads what the API server sends, `mutate`, `patch` and `validate` decide what to make of a
//! policy's answer, `answer` is what goes back; all of these are pure. `intake` lets calls in within
//! limits, and `server` does the I/O between them.
#![forbid(unsafe_code)]

pub mod answer;
pub mod callers;
pub mod failure;
pub mod hook_chain;
pub mod intake;
pub mod metrics;
pub mod mutate;
pub mod patch;
pub mod request;
pub mod server;
pub mod validate;

/// Path of the mutating webhook.
pub const MUTATE_PATH: &str = "/mutate-graphcore-ai-v1alpha1-ipujob";

/// Path of the validating webhook.
pub const VALIDATE_PATH: &str = "/validate-graphcore-ai-v1alpha1-ipujob";
