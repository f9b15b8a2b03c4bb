//! Suites on a real etcd and kube-apiserver, started for the run and ended with it.
#![allow(
    clippy::unwrap_used,
    reason = "what a test's helper cannot do fails the test"
)]

#[cfg(test)]
mod again;
mod agent;
mod chart;
#[cfg(test)]
mod clock;
mod control_plane;
mod definitions;
#[cfg(test)]
mod job;
mod late_watch;
#[cfg(test)]
mod leader;
#[cfg(test)]
mod lost_node;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod no_room;
mod partition;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod processes;
mod rest;
#[cfg(test)]
mod stage;
#[cfg(test)]
mod support;
mod twins;
#[cfg(test)]
mod verify;
mod webhook;
