//! The webhooks of IPUJobs: guests set defaults and check rules.
//!
//! `server` serves both webhooks, and `intake` limits the requests. `request` parses an AdmissionReview, `chain_run` calls the
//! policies of a hook in their order, `mutate`, `patch` and `validate` turn their answers into a verdict, and `answer`
//! formats it; all of these but `server`, `intake` and `chain_run` are pure. `callers` identifies the API server.
//!
//! The package knows neither the job controller nor partitions.
#![forbid(unsafe_code)]

pub mod answer;
pub mod callers;
pub mod chain_run;
pub mod failure;
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
