//! One IPUPartition as a state machine. Pure: the object and what was observed in, the next step
//! out.
//!
//! The [`executor`] carries a step out, adds what it observed, and asks again, until nothing is
//! left to do. Its effects are a trait: the operator and the simulation each have their own.
//!
//! Guarantees after any crash, delay or lost message (the simulation tests them):
//! - Only the reconcile that has recorded an id requests its partition.
//! - A slot never has two usable partitions.
//! - A partition in use is never removed.
//! - The operator never touches an id that it has neither generated nor adopted for this object.
//! - The finalizer goes last.
//!
//! Entry points:
//! - [`reconcile`] returns the next [`step`] from the [`observations`] of the reconcile, and
//!   [`requeue`] the delay after it.
//! - [`desired`] decides on desired partitions, [`deleted`] on deleted ones. A lost reply leaves an
//!   attempt with an unknown outcome, which [`unsettled_attempts`] settles.
//! - [`status`] has every change of the status, and [`state_unknown`] the condition of that name.
//! - [`sweep`] orders the removal of partitions without an owner, which [`sweep::orphans`] finds.
//!
//! It must not know the API server, the V-IPU's protocol, or which controller a partition should
//! have: `ipu-placement` decides that.
#![forbid(unsafe_code)]

pub mod deleted;
pub mod desired;
pub mod executor;
pub mod observations;
pub mod reconcile;
pub mod requeue;
pub mod state_unknown;
pub mod status;
pub mod step;
pub mod sweep;
pub mod unsettled_attempts;
