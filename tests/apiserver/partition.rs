//! The vipu-proxy on a real API server and simulated V-IPU controllers: what becomes of IPUPartitions.

mod edited;
mod faults;
pub(crate) mod install;
mod leftovers;
mod list;
mod placement;
mod reset;
pub(crate) mod scene;
