//! A real Kubernetes in processes: the tools it is made of, a control plane for tests, a cluster of
//! two nodes, images without a registry, and the demo that walks through all of it.
//!
//! Nothing is installed on the machine. Programs and images lie in the cache folder, what runs lies
//! in the run folder (see [`settings`]), and `down` ends and removes everything that `up` made.

pub mod cargo;
pub mod cgroups;
pub mod cluster;
pub mod command;
pub mod control_plane;
pub mod demo;
pub mod dist;
pub mod fault;
pub mod files;
pub mod images;
pub mod interrupt;
pub mod keeper;
pub mod kubeconfig;
pub mod kubernetes;
pub mod lock;
pub mod log_tail;
pub mod network;
pub mod node;
pub mod operator;
pub mod pki;
pub mod platform;
pub mod post_mortem;
pub mod process;
pub mod progress;
pub mod release;
pub mod session;
pub mod settings;
pub mod tools;
