//! The vipu-proxy on a real API server and simulated V-IPU controllers: the life of IPUPartitions.

mod accounting;
mod adopted;
mod calls;
mod cleanup;
mod controller_objects;
mod departed;
mod drain;
mod edited;
mod faults;
pub(crate) mod fixture;
mod handover;
pub(crate) mod install;
mod killed;
mod knocking;
mod list;
#[cfg(feature = "long")]
mod measured;
mod momentary;
mod nodes;
mod placement;
mod places;
mod policy;
mod queue;
mod quota;
mod refused;
mod relayed;
mod replicas;
mod reset;
mod scale;
mod scope;
mod stuck;
mod two_names;
