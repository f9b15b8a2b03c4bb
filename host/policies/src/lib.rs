//! IPUPolicies: guests of admins that replace the built-in guests, or run beside them.
//!
//! Entry points:
//! - [`follow`] runs the policies in one process.
//! - Every replica loads the desired modules ([`source`]) and reports its readiness ([`follower`],
//!   [`module_store`], [`replica_readiness`]).
//! - The leader waits for all replicas, then activates the new version in the status of the policy
//!   ([`rollout_leader`], [`rollout`]). Every replica follows that status ([`active_set`],
//!   [`active_policies`]), so that all replicas change at nearly the same time.
//! - [`existing_reviews`] has what policies in mode Shadow would refuse of the objects that exist.
//! - [`matcher`] and [`match_evaluator`] decide which requests a policy matches, and
//!   [`namespace_usage`] counts the IPUs of namespaces for placement policies.
//!
//! It must not know how a registry is spoken to (`ipu-oci`), webhooks, V-IPU controllers, or how
//! partitions and jobs are reconciled.
#![forbid(unsafe_code)]

pub mod active_policies;
pub mod active_set;
pub mod bound_policy;
pub mod call_recording;
pub mod call_stats;
pub mod comparison;
mod controller_choice;
pub mod existing_reviews;
pub mod follower;
mod large_stack;
pub mod match_evaluator;
pub mod match_input;
pub mod match_samples;
pub mod matcher;
pub mod metrics;
pub mod module_config;
pub mod module_store;
pub mod namespace_usage;
pub mod observed_policy;
pub mod replica_readiness;
pub mod report;
pub mod rollout;
pub mod rollout_leader;
mod shadow_comparison;
pub mod source;
pub mod watch;

pub use match_evaluator::CONCURRENT as CONCURRENT_EVALUATIONS;

use std::sync::Arc;

use ipu_api::ipupolicy::Hook;
use ipu_guest_host::{GuestHostOptions, Limits};
use ipu_runtime::lease::{Elector, LEASE_DURATION, LeadershipStatus};
use ipu_runtime::release::{Process, ReleaseOptions};
use ipu_runtime::scope::Conflicts;
use kube::Client;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::source::cache_dir::{CACHE_LIMIT, CacheDir};
use self::source::shared_dir::{SHARED_LIMIT, SharedDir};

/// Returns the options of the guest host of a process, with its hooks and the settings of the
/// built-in guests.
pub fn host_options(release: &ReleaseOptions, hooks: &[Hook], settings: Value) -> GuestHostOptions {
    GuestHostOptions {
        guests_dir: release.guests_dir.clone(),
        compile_cache_dir: release.compile_cache_dir.clone(),
        compiler: std::env::current_exe().ok(),
        settings,
        hooks: hooks.to_vec(),
        limits: Limits::default(),
    }
}

/// Returns the hooks at which a process calls guests.
fn hooks(process: Process) -> &'static [Hook] {
    match process {
        Process::Controller => &[Hook::Defaulting, Hook::Validation],
        Process::VipuProxy => &[Hook::Placement],
    }
}

/// Runs the IPUPolicies in one process until `stop`. Without their CRD only the built-in guests
/// run. `leading` receives whether this replica leads the rollout.
pub async fn follow(
    client: Client,
    release: &ReleaseOptions,
    process: Process,
    (active, leading, conflicts): (active_policies::ActivePolicies, LeadershipStatus, Conflicts),
    stop: CancellationToken,
) {
    let name = release.replica_name();
    let (store, watch) = watch::policies();
    let replica = replica_readiness::Replica {
        namespace: release.namespace.clone(),
        fullname: release.fullname.clone(),
        process: process.name(),
        name: name.clone(),
    };
    let cache = release.compile_cache_dir.clone();
    let cache = cache.map(|root| Arc::new(CacheDir::new(root, CACHE_LIMIT)));
    let shared = release.module_dir.clone();
    let shared = shared.map(|root| Arc::new(SharedDir::new(root, SHARED_LIMIT)));
    let sources = source::Sources {
        client: client.clone(),
        namespace: release.namespace.clone(),
        guests_dir: release.guests_dir.clone(),
        cache,
        shared,
        required_keys: release.required_keys.0.clone(),
        registries: Arc::new(Semaphore::new(source::REGISTRIES)),
    };
    let host = active.host().clone();
    let recording = async {
        if let Some(folder) = &release.compile_cache_dir {
            call_recording::serve(&host, folder, stop.clone()).await;
        }
    };
    let reviews = active.existing_reviews().clone();
    let following = follower::run(
        client.clone(),
        replica,
        hooks(process),
        active,
        sources,
        store.clone(),
        stop.clone(),
    );
    let leading_rollout = async {
        if process == Process::Controller {
            let lease = format!("{}-policies", release.fullname);
            let namespace = &release.namespace;
            let elector = Elector::new(client.clone(), namespace, &lease, &name, LEASE_DURATION);
            let elector = elector.with_status(leading).with_conflicts(conflicts);
            let known = (store, reviews);
            let run = rollout_leader::run(client.clone(), elector, namespace, known, stop.clone());
            Box::pin(run).await;
        }
    };
    futures::join!(
        watch.follow(client.clone(), release, stop.clone()),
        following,
        leading_rollout,
        recording
    );
}
