//! The vipu-proxy on a real API server and simulated V-IPU controllers: what becomes of IPUPartitions.

mod faults;
mod install;
mod leftovers;
mod placement;
mod scene;
