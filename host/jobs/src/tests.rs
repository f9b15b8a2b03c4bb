//! Tests of the pure part of the job reconciler: no cluster, no clock.

mod accounting;
mod broken;
mod build;
mod cluster;
mod deletion;
mod disruptions;
mod ends;
mod examples;
mod failed_workers;
mod faults;
mod fixtures;
mod interactive;
mod kubelet;
mod limits;
mod rejections;
mod restarts;
mod rollouts;
mod scale;
mod starts;
mod status;
mod steps;
mod validate;
pub(crate) mod world;
