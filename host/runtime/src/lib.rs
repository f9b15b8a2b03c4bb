//! The runtime of the operator's processes: everything that a controller needs before it decides
//! anything.
//!
//! Entry points:
//! - [`lease`] elects a leader, and hands out proofs of leadership that expire. [`work_queue`]
//!   calls a reconciler for keys, with back-off and limits.
//! - [`api_client`] connects to the API server and limits the time of requests, and [`requests`]
//!   has the parameters of its writes. [`events`] publishes events. [`dry_run`] tries to create
//!   objects, and [`image_volume`] notices that the API server drops a volume.
//! - [`scope`] has the namespaces that a release serves, finds other releases for them, and watches
//!   objects in them. [`watch_store`] caches objects, [`trimmed`] drops unused fields of them, and
//!   [`label_watch`] and [`config_map_watch`] watch single objects.
//! - [`telemetry`] is the log, [`metrics`] the registry of metrics, [`clock`] the time,
//!   [`cluster_domain`] the DNS domain, [`lost_node`] the time for which a node is unreachable,
//!   [`pod_start`] the reason for which a Pod has not started, [`wait`] waits for a value, and
//!   [`panics`] turns a panic into an error.
//!
//! It must not know jobs, partitions, policies, webhooks, ports or the V-IPU: each area decides by
//! itself, and registers its own metrics. Of the operator's packages it uses the API (`ipu-api`)
//! and the texts (`ipu-text`).
#![forbid(unsafe_code)]

pub mod api_client;
pub mod bounded_json;
pub mod clock;
pub mod cluster_domain;
pub mod config_map_watch;
pub mod dry_run;
pub mod events;
pub mod fair_semaphore;
pub mod image_volume;
pub mod json_difference;
pub mod label_watch;
pub mod lease;
pub mod lost_node;
pub mod metrics;
pub mod panics;
pub mod pod_start;
pub mod release;
pub mod requests;
pub mod scope;
pub mod served_group;
pub mod telemetry;
pub mod trimmed;
pub mod wait;
pub mod watch_store;
pub mod work_queue;
