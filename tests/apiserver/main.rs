//! Suites on a real etcd and kube-apiserver, which start and end with the run.
#![allow(
    clippy::unwrap_used,
    reason = "an error in a test's helper fails the test"
)]

#[cfg(test)]
mod again;
mod agent;
mod agent_probes;
mod chart;
#[cfg(test)]
#[cfg(feature = "long")]
mod clock;
#[cfg(test)]
mod compiler;
mod control_plane;
#[cfg(test)]
mod cut_off;
#[cfg(test)]
mod dashboard;
mod definitions;
#[cfg(test)]
mod described;
mod differential;
#[cfg(test)]
mod explained;
#[cfg(test)]
mod extent;
#[cfg(test)]
mod front;
mod gitops;
#[cfg(test)]
mod hostile_texts;
#[cfg(test)]
mod job;
mod job_fixture;
#[cfg(test)]
mod kubectl_ipu;
#[cfg(test)]
mod kueue;
#[cfg(test)]
mod large_job;
mod late_watch;
#[cfg(test)]
mod launcher_rights;
#[cfg(test)]
mod leader;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod lost_node;
#[cfg(test)]
mod members;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod no_space;
#[cfg(test)]
mod node_checks;
mod nodes;
#[cfg(test)]
mod odd_objects;
#[cfg(test)]
mod outage;
mod partition;
mod planes;
#[cfg(test)]
mod plugin;
#[cfg(test)]
mod pods;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod printed;
#[cfg(test)]
mod processes;
#[cfg(test)]
mod published;
#[cfg(test)]
mod rejected;
mod rest;
#[cfg(test)]
mod restored;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tenants;
#[cfg(test)]
mod upgraded;
#[cfg(test)]
mod users;
#[cfg(test)]
mod verify;
mod webhook;
#[cfg(test)]
mod webhook_clients;
mod writes;
