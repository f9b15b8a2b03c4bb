//! The webhooks of IPUJobs and of Pods that request IPUs: guests set defaults and check rules.
//!
//! Entry points:
//! - [`server`] serves the webhooks, [`callers`] identifies the API server, and [`intake`] limits
//!   the requests.
//! - [`request`] parses an AdmissionReview, [`chain_run`] calls the policies of a hook in their
//!   order, [`mutate`], [`patch`], [`validate`] and [`existing`] turn their answers into a verdict,
//!   and [`answer`] formats it. `pods` shows a Pod to the same policies, and [`scale`] a change of
//!   the number of instances. [`RecreatedPod`] shows an existing one for an audit.
//!   [`shared_partition`] has the rules that apply to no Pod that shares a partition.
//! - [`audit`] reviews objects that exist, for `ipu-operator policy audit` and for policies in mode
//!   Shadow.
//! - [`pod_trial`] warns of Pods of a job that the API server would refuse.
//!
//! All but `server`, `intake`, `chain_run`, `pod_trial`, `scale` and `pods` itself are pure.
//!
//! It must not know the controllers of jobs, Pods and partitions, or the V-IPU.
#![forbid(unsafe_code)]

pub mod answer;
pub mod audit;
pub mod callers;
pub mod chain_run;
pub mod existing;
pub mod failure;
pub mod intake;
pub mod metrics;
pub mod mutate;
pub mod patch;
pub mod pod_trial;
mod pods;
pub mod request;
pub mod scale;
pub mod server;
pub mod shared_partition;
pub mod validate;

pub use pods::{PodFields, RecreatedPod};

/// Path of the mutating webhook.
pub const MUTATE_PATH: &str = "/mutate-graphcore-ai-v1alpha1-ipujob";

/// Path of the mutating webhook of Pods that request IPUs themselves.
pub const MUTATE_POD_PATH: &str = "/mutate-v1-pod";

/// Path of the validating webhook of Pods that request IPUs themselves.
pub const VALIDATE_POD_PATH: &str = "/validate-v1-pod";

/// Path of the validating webhook of changes of an IPUJob's number of instances.
pub const VALIDATE_SCALE_PATH: &str = "/validate-graphcore-ai-v1alpha1-ipujob-scale";

/// Path of the validating webhook.
pub const VALIDATE_PATH: &str = "/validate-graphcore-ai-v1alpha1-ipujob";
