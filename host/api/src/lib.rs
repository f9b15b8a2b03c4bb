//! The Kubernetes API of the operator: group `graphcore.ai`, version `v1alpha1`.
//!
//! Any client of the operator can use it. Entry points:
//! - [`ipujob::IPUJob`], [`ipupartition::IPUPartition`], [`ipupolicy::IPUPolicy`],
//!   [`vipu_controller::VIPUController`] and [`ipuaccounting::IPUAccounting`] are the kinds.
//!   [`accounting`] is part of the last.
//! - [`crd`] generates their CustomResourceDefinitions, and `crds/REFERENCE.md` from these.
//! - [`labels`] has the labels, annotations and finalizers that the operator sets, [`naming`] the
//!   names of its objects and the ids of V-IPU partitions. [`dns1123`] checks names by the rules of
//!   Kubernetes.
//! - [`pod_template`] has the users' templates in a form that can be compared, and [`quantity`]
//!   their quantities.
//! - [`pod_request`] reads the IPUs that a Pod of any owner requests, and [`partition_request`]
//!   makes an IPUPartition.
//! - [`condition`] renews a condition of a status. [`uid`] keeps a UID in little memory, and
//!   [`object_ref`] names an object. [`node_scheduling`] is what Pods require of a node,
//!   [`node_check`] the result of a check of a node, and [`interned`] shares equal values.
//! - [`guest`] has the values of the contract with guests.
//!
//! It does no I/O and decides nothing. It must not know the V-IPU, how a guest is called,
//! registries, or any package of this workspace but `ipu-pod-template`, and it needs no client of
//! Kubernetes.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod condition;
pub mod crd;
pub mod dns1123;
pub mod guest;
pub mod interned;
pub mod ipuaccounting;
pub mod ipujob;
mod ipujob_run;
pub mod ipujob_status;
pub mod ipupartition;
pub mod ipupolicy;
pub mod labels;
pub mod naming;
pub mod node_check;
pub mod node_scheduling;
pub mod object_ref;
pub mod owner_metadata;
pub mod partition_conditions;
pub mod partition_request;
pub mod pod_request;
pub mod pod_template;
pub mod queueing;
pub mod uid;
pub mod vipu_controller;

pub use ipu_pod_template::quantity;

/// API group of every kind of this operator.
pub const GROUP: &str = "graphcore.ai";

/// API version of every kind of this operator.
pub const VERSION: &str = "v1alpha1";

/// `apiVersion` of every kind of this operator.
pub const API_VERSION: &str = "graphcore.ai/v1alpha1";
