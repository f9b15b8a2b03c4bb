//! The webhooks of IPUJobs and of Pods that request IPUs: guests set defaults and check rules.
//!
//! `server` serves the webhooks, and `intake` limits the requests. `request` reads an AdmissionReview, `hook_chain` calls the
//! guests of a hook in their order, `mutate`, `patch` and `validate` turn their answers into a verdict, and `answer` formats
//! it; `pods` shows a Pod to the same guests. All but `server`, `intake`,
//! `hook_chain` and `pods` itself are pure. `callers` knows which callers are certainly the API
//! server.
//!
//! The package knows neither the job controller nor partitions.
#![forbid(unsafe_code)]

pub mod answer;
pub mod callers;
pub mod failure;
pub mod hook_chain;
pub mod intake;
pub mod metrics;
pub mod mutate;
pub mod patch;
mod pods;
pub mod request;
pub mod server;
pub mod validate;

/// Path of the mutating webhook.
pub const MUTATE_PATH: &str = "/mutate-graphcore-ai-v1alpha1-ipujob";

/// Path of the mutating webhook of Pods that request IPUs themselves.
pub const MUTATE_POD_PATH: &str = "/mutate-v1-pod";

/// Path of the validating webhook.
pub const VALIDATE_PATH: &str = "/validate-graphcore-ai-v1alpha1-ipujob";
