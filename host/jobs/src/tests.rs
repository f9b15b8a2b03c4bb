//! Tests of the pure part of the job reconciler: no cluster, no clock.

mod accounting;
mod broken;
mod build;
mod cluster;
mod deletion;
mod disruptions;
mod ends;
mod examples;
mod faults;
mod fixtures;
mod interactive;
mod kubelet;
mod limits;
mod restarts;
mod rollouts;
mod scale;
mod status;
mod steps;
mod trial;
mod validate;
pub(crate) mod world;
