//! IPUPolicies: guests that admins put in the place of the built-in ones, or beside them, while the
//! operator runs.
//!
//! Every replica has ready what it is to ask and says so (`replica`, `shelf`, `board`); one of them sees
//! that all are ready and activates the new version in the policy's status (`coordinator`,
//! `commit`); every replica follows that status (`lineup`, `guests`), so that all change at nearly the
//! same moment. `admission` and `placement` ask the guests, and `callers` knows whose questions count.

pub mod admission;
pub mod board;
pub mod callers;
pub mod commit;
pub mod compare;
pub mod coordinator;
pub mod guests;
mod judging;
mod large_stack;
pub mod lineup;
pub mod matching;
pub mod meter;
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
use kube::Client;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::source::folder::{FOLDER_LIMIT, Folder};
use crate::lease::{Elector, Leading, TTL};
use crate::release::ReleaseOptions;
use crate::scope::Conflicts;

/// One of the two processes of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// Asks at admission, and activates versions.
    Controller,
    /// Asks where a partition is made.
    VipuProxy,
}

impl Process {
    /// The name of its subcommand.
    pub fn name(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::VipuProxy => "vipu-proxy",
        }
    }

    fn hooks(self) -> &'static [Hook] {
        match self {
            Self::Controller => &[Hook::Defaulting, Hook::Validation],
            Self::VipuProxy => &[Hook::Placement],
        }
    }
}

/// Follows the IPUPolicies for one process until `stop`. Where their definition is missing the
/// built-in guests go on. `leading` is told whether this replica activates versions.
pub async fn follow(
    client: Client,
    release: &ReleaseOptions,
    process: Process,
    (guests, leading, conflicts): (guests::Guests, Leading, Conflicts),
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
    let (policies, callers) = (guests.policies().clone(), guests.callers().clone());
    let recording = async {
        if let Some(folder) = &release.compile_cache_dir {
            recording::serve(&policies, folder, stop.clone()).await;
        }
    };
    let following = replica::run(
        client.clone(),
        replica,
        process.hooks(),
        guests,
        sources,
        store.clone(),
        stop.clone(),
    );
    let coordinating = async {
        if process == Process::Controller {
            let lease = format!("{}-policies", release.fullname);
            let namespace = &release.namespace;
            let elector = Elector::new(client.clone(), namespace, &lease, &name, TTL);
            let elector = elector.telling(leading).unless(conflicts);
            let run = coordinator::run(client.clone(), elector, namespace, store, stop.clone());
            Box::pin(run).await;
        }
    };
    futures::join!(
        watch.follow(client.clone(), release, stop.clone()),
        following,
        coordinating,
        recording,
        callers.follow(client.clone(), stop.clone())
    );
}
