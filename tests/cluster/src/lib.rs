//! A real Kubernetes in processes: its tools, a control plane for suites, and a cluster of two nodes.
//!
//! Nothing is installed on the machine: programs and images are in the cache folder, and the state of the cluster is in the
//! run folder ([`settings`]).
//!
//! Entry points:
//! - [`Tools::fetch`](tools::Tools::fetch) fetches the pinned programs, [`Cluster::up`](lifecycle::Cluster::up) starts the
//!   cluster, [`lifecycle::down`] removes all of it, and [`session`] does both before and after some work.
//! - [`ControlPlane`](control_plane::ControlPlane) is an etcd and an API server alone. [`supervisor`] runs programs of a suite.
//! - [`node::run`] is the first process of a node: a program that starts a cluster calls it.
//! - [`images`] makes images without a registry, [`fault`] stops parts of a cluster, and [`wait`] defines how long tests wait.
//!
//! It must not know any package of the operator, or how the operator is built or installed.
#![forbid(unsafe_code)]

pub mod api_writes;
pub mod cgroups;
pub mod command;
pub mod control_plane;
pub mod debian;
pub mod definitions;
pub mod fault;
pub mod files;
pub mod http;
pub mod images;
pub mod interrupt;
pub mod kubeconfig;
pub mod kubernetes;
pub mod lifecycle;
pub mod lock;
pub mod log_tail;
pub mod network;
pub mod node;
pub mod pki;
pub mod plan;
pub mod platform;
pub mod post_mortem;
pub mod process;
pub mod progress;
pub mod session;
pub mod settings;
pub mod supervisor;
pub mod tools;
pub mod wait;
