//! The vipu-proxy on a real API server and simulated V-IPU controllers: what becomes of IPUPartitions.

mod adopted;
mod calls;
mod crowd;
mod departed;
mod drain;
mod edited;
mod faults;
mod handover;
pub(crate) mod install;
mod killed;
mod leftovers;
mod line;
mod list;
mod placement;
mod policy;
mod quota;
mod refused;
mod replicas;
mod reset;
pub(crate) mod scene;
mod scope;
