//! Which waiting IPUPartition may use which V-IPU controller. Pure: values in, decisions out.
//!
//! Entry points, in the order of one scheduling cycle:
//! - [`queue`] has the waiting requests in their order, and [`requests`] those that are undecided.
//! - [`cycle`] decides on them one at a time, within [`namespace_budgets`]. [`allocations`]
//!   subtracts what the ledger holds from what a controller reports, [`refusals`] and
//!   [`known_sizes`] what it has refused or never had, [`unsuited`] the controllers whose nodes can
//!   run none of the Pods ([`node_match`]).
//! - [`backfill`] leaves to each request what earlier ones do not need.
//! - [`guest_call`] makes the request to the placement guest. [`decision_check`] checks the answer,
//!   [`serial_walk()`] is the built-in policy, and [`decision`] the result.
//! - [`drain`] decides which partitions leave a drained controller, and when a gang gives up its
//!   partitions.
//!
//! It must not know Kubernetes' API server, the V-IPU's protocol, or how a guest is loaded and
//! called.
#![forbid(unsafe_code)]

pub mod allocations;
pub mod backfill;
pub mod cycle;
pub mod decision;
pub mod decision_check;
pub mod drain;
pub mod guest_call;
pub mod hashed;
pub mod known_sizes;
pub mod namespace_budgets;
pub mod node_match;
pub mod queue;
pub mod refusals;
pub mod requests;
#[cfg(any(test, feature = "fixtures"))]
pub mod samples;
pub mod serial_walk;
pub mod unsuited;
