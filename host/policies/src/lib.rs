//! IPUPolicies: guests of admins that replace the built-in ones, or run beside them, while the operator runs.
//!
//! [`follow`] does it for one process. Every replica loads the desired modules (`source`, `oci`) and reports its readiness
//! (`replica`, `shelf`, `board`). One replica waits for all of them and activates the new version in the status of the
//! policy (`coordinator`, `commit`). Every replica follows that status (`lineup`, `guests`), so that all of them change at
//! nearly the same moment. `matching` evaluates which requests a policy applies to, and `namespaces` counts what guests see
//! of a namespace.
//!
//! The package knows neither webhooks nor V-IPU controllers.
#![forbid(unsafe_code)]

pub mod board;
pub mod commit;
pub mod compare;
pub mod coordinator;
pub mod guests;
pub mod judging;
mod large_stack;
pub mod lineup;
pub mod matching;
pub mod meter;
pub mod metrics;
pub mod namespaces;
pub mod oci;
mod placement;
pub mod recording;
pub mod replica;
pub mod report;
pub mod shelf;
pub mod source;
pub mod watch;

pub use judging::AT_ONCE as JUDGED_AT_ONCE;

use std::sync::Arc;

use ipu_api::ipupolicy::Hook;
use ipu_guest_host::model::Slot;
use ipu_guest_host::{Limits, PolicyOptions};
use ipu_runtime::lease::{Elector, LEASE_DURATION, LeadershipStatus};
use ipu_runtime::release::{Process, ReleaseOptions};
use ipu_runtime::scope::Conflicts;
use kube::Client;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::source::folder::{FOLDER_LIMIT, Folder};

/// The options of the guest host of a process: what its release says, its hooks, and the settings of built-in guests.
pub fn host_options(release: &ReleaseOptions, slots: &[Slot], settings: Value) -> PolicyOptions {
    PolicyOptions {
        guests_dir: release.guests_dir.clone(),
        compile_cache_dir: release.compile_cache_dir.clone(),
        compiler: std::env::current_exe().ok(),
        settings,
        slots: slots.to_vec(),
        limits: Limits::default(),
    }
}

/// The hooks at which a process calls guests.
fn hooks(process: Process) -> &'static [Hook] {
    match process {
        Process::Controller => &[Hook::Defaulting, Hook::Validation],
        Process::VipuProxy => &[Hook::Placement],
    }
}

/// Follows the IPUPolicies for one process until `stop`. Where their definition is missing the
/// built-in guests go on. `leading` is told whether this replica activates versions.
pub async fn follow(
    client: Client,
    release: &ReleaseOptions,
    process: Process,
    (guests, leading, conflicts): (guests::Guests, LeadershipStatus, Conflicts),
    stop: CancellationToken,
) {
    let name = release.replica_name();
    let (store, watch) = watch::policies();
    let replica = board::Replica {
        namespace: release.namespace.clone(),
        fullname: release.fullname.clone(),
        process: process.name(),
        name: name.clone(),
    };
    let folder = release.compile_cache_dir.clone();
    let folder = folder.map(|folder| Arc::new(Folder::new(folder, FOLDER_LIMIT)));
    let sources = source::Sources {
        client: client.clone(),
        namespace: release.namespace.clone(),
        guests_dir: release.guests_dir.clone(),
        folder,
        registries: Arc::new(Semaphore::new(source::REGISTRIES)),
    };
    let policies = guests.policies().clone();
    let recording = async {
        if let Some(folder) = &release.compile_cache_dir {
            recording::serve(&policies, folder, stop.clone()).await;
        }
    };
    let following = replica::run(
        client.clone(),
        replica,
        hooks(process),
        guests,
        sources,
        store.clone(),
        stop.clone(),
    );
    let coordinating = async {
        if process == Process::Controller {
            let lease = format!("{}-policies", release.fullname);
            let namespace = &release.namespace;
            let elector = Elector::new(client.clone(), namespace, &lease, &name, LEASE_DURATION);
            let elector = elector.with_status(leading).with_conflicts(conflicts);
            let run = coordinator::run(client.clone(), elector, namespace, store, stop.clone());
            Box::pin(run).await;
        }
    };
    futures::join!(
        watch.follow(client.clone(), release, stop.clone()),
        following,
        coordinating,
        recording
    );
}
