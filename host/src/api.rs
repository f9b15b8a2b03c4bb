//! The Kubernetes API of the operator: group `graphcore.ai`, version `v1alpha1`.

pub(crate) mod condition;
pub mod crd;
pub mod ipujob;
pub mod ipujob_status;
pub mod ipupartition;
pub mod ipupolicy;
pub mod pod_template;

/// API group of every kind of this operator.
pub const GROUP: &str = "graphcore.ai";

/// API version of every kind of this operator.
pub const VERSION: &str = "v1alpha1";

/// `apiVersion` of every kind of this operator.
pub const API_VERSION: &str = "graphcore.ai/v1alpha1";
