//! The runtime of the operator's processes: leader election, work queue, watches, events, ports with TLS, certificates,
//! telemetry and metrics.
//!
//! It knows the Kubernetes API of the operator (`ipu-api`), and neither jobs nor partitions nor policies.
#![forbid(unsafe_code)]

pub mod api_client;
pub mod bounded_json;
pub mod certificates;
pub mod clock;
pub mod compressed;
pub mod config_map_watch;
pub mod events;
pub mod fair_semaphore;
pub mod json_difference;
pub mod label_watch;
pub mod lease;
pub mod metrics;
pub mod panics;
pub mod port;
pub mod release;
pub mod requests;
pub mod scope;
pub mod served_group;
pub mod telemetry;
pub mod trimmed;
pub mod watch_store;
pub mod work_queue;
