//! The vipu-proxy on a real API server and simulated V-IPU controllers: what becomes of IPUPartitions.

mod calls;
mod crowd;
mod drain;
mod edited;
mod faults;
mod inherited;
pub(crate) mod install;
mod killed;
mod leftovers;
mod line;
mod list;
mod placement;
mod policy;
mod quota;
mod replicas;
mod reset;
pub(crate) mod scene;
mod scope;
