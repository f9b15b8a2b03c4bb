//! A real Kubernetes in processes: its tools, a control plane for suites, and a cluster of two
//! nodes.
//!
//! Nothing is installed on the machine: programs and images are in the cache folder, and the state
//! of the cluster is in the run folder ([`settings`]).
//!
//! Entry points:
//! - [`Cluster::up`](lifecycle::Cluster::up) starts the cluster, [`lifecycle::down`] removes all of
//!   it, and [`session`] does both before and after some work. The programs and images come from
//!   the package `provision`.
//! - [`ControlPlane`](control_plane::ControlPlane) is an etcd and an API server alone.
//!   [`supervisor`] runs programs of a suite.
//! - [`node::run`] is the first process of a node: a program that starts a cluster calls it.
//! - [`fault`] stops parts of a cluster, [`relay`] disturbs connections, and [`wait`] defines how
//!   long tests wait.
//!
//! It must not know any package of the operator, or how the operator is built or installed.
#![forbid(unsafe_code)]

pub use provision::{
    command, debian, files, images, interrupt, kubernetes, lock, platform, progress, settings,
    tools,
};

pub mod api_writes;
pub mod cgroups;
pub mod control_plane;
pub mod definitions;
pub mod fault;
pub mod http;
pub mod kubeconfig;
pub mod lifecycle;
pub mod log_tail;
pub mod network;
pub mod node;
pub mod pki;
pub mod plan;
pub mod post_mortem;
pub mod process;
pub mod relay;
pub mod session;
pub mod supervisor;
pub mod wait;
