//! Tests of the pure part of the job reconciler: no cluster, no clock.

mod broken;
mod build;
mod deletion;
mod ends;
mod examples;
mod fixtures;
mod restarts;
mod rollouts;
mod scale;
mod sessions;
mod status;
mod validate;
pub(crate) mod world;
