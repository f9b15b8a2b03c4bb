//! Maintains a VIPUController for each V-IPU controller of the admin's list, and applies the
//! cordons in them.
//!
//! `watch` caches the objects in each replica, and passes cordons to the registry. The leader runs
//! [`run`]: `plan` (pure) compares the objects with the state of the controllers (`status`, pure),
//! and `run` applies its changes. If several releases list one controller, one release manages its
//! object, and a label of the object names it. The others do not write the object while that
//! release exists, but all of them apply its cordon. `accounts` writes the accounts of IPU-seconds
//! beside them, for the controllers whose objects this release manages.

mod accounts;
mod fit;
mod observe;
mod plan;
mod status;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ipu_api::vipu_controller::{VIPUController, VIPUControllerStatus};
use ipu_api::{API_VERSION, labels};
use ipu_runtime::scope::Conflicts;
use ipu_runtime::{clock, panics, requests};
use ipu_text::explain;
use jiff::Timestamp;
use kube::api::{Api, Patch};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use vipu_client::controllers::KEY;
use vipu_client::registry::Source;

use self::accounts::{PASS_MAX, Written};
use self::observe::observe;
use self::plan::{Action, Facts, Object};
use crate::leader::Context;

pub use self::watch::{ControllerObjectWatch, ControllerObjects, controller_objects};

/// Longest time from the end of [`BATCH_DELAY`] to the next pass.
const IDLE: Duration = Duration::from_secs(9);

/// Shortest time between two passes, so that changes of one moment are handled together.
const BATCH_DELAY: Duration = Duration::from_secs(1);

/// Time for the last accounts of a replica that stops.
const LAST_ACCOUNTS: Duration = Duration::from_secs(5);

/// Failures that end a pass, and are logged: mostly the next requests would fail for the same
/// reason.
const FAILURES_MAX: usize = 3;

/// The release that manages the objects.
#[derive(Clone, Debug)]
pub struct ManagingRelease {
    /// Its namespace.
    pub namespace: String,
    /// The other releases that are there.
    pub conflicts: Conflicts,
}

/// Failure to update an object. The next pass tries again.
#[derive(Debug, thiserror::Error)]
#[error("failed to {action} VIPUController {name}")]
struct WriteError {
    action: &'static str,
    name: String,
    source: kube::Error,
}

/// Data of one pass for the next one.
#[derive(Debug, Default)]
struct Memory {
    /// Time of the last write of the status of each object.
    written: BTreeMap<String, Timestamp>,
    /// This leader's last write of each account.
    accounts: BTreeMap<String, Written>,
    /// Objects that another release manages, each logged once.
    of_others: BTreeMap<String, String>,
}

impl Memory {
    /// Drops the times of objects that are gone. The leader before has written the others.
    fn limit_to(&mut self, objects: &BTreeMap<String, Object>) {
        self.written.retain(|name, _| objects.contains_key(name));
        self.accounts.retain(|name, _| objects.contains_key(name));
        for name in objects.keys() {
            let written = self.written.entry(name.clone());
            written.or_insert_with(clock::now);
        }
    }
}

/// Keeps the objects until `stop`: after each change that matters at once, and periodically.
pub async fn run(
    context: Arc<Context>,
    objects: ControllerObjects,
    manager: ManagingRelease,
    stop: CancellationToken,
) {
    let mut memory = Memory::default();
    let mut changes = objects.changes();
    let mut known = context.pool.registry().subscribe();
    if stop
        .run_until_cancelled(context.watched.once_listed())
        .await
        .is_none()
    {
        return;
    }
    while !stop.is_cancelled() {
        changes.mark_unchanged();
        known.mark_unchanged();
        let passing = pass(&context, &objects, &manager, &mut memory);
        if let Err(error) = panics::caught(passing).await {
            tracing::error!(
                error = explain(&error),
                "the VIPUControllers are not up to date"
            );
        }
        let occasion = async {
            tokio::time::sleep(BATCH_DELAY).await;
            tokio::select! {
                () = tokio::time::sleep(IDLE) => {}
                Ok(()) = changes.changed() => {}
                Ok(()) = known.changed() => {}
            }
        };
        let _ = stop.run_until_cancelled(occasion).await;
    }
    // The next leader does not know figures that are not written now.
    context.accounts.accounts().count_until(clock::now());
    let all = objects.all().unwrap_or_default();
    let addresses = plan::addresses(&all, &manager.namespace).cloned().collect();
    let saving = accounts::write(
        &context,
        &manager,
        addresses,
        usize::MAX,
        &mut memory.accounts,
    );
    let _ = tokio::time::timeout(LAST_ACCOUNTS, saving).await;
}

/// Brings all objects up to date, as far as that is due.
async fn pass(
    context: &Context,
    objects: &ControllerObjects,
    manager: &ManagingRelease,
    memory: &mut Memory,
) {
    let Some(objects) = objects.all() else { return };
    let registry = context.pool.registry();
    let known = registry.known();
    let controllers = observe(context, &objects, &manager.namespace).await;
    // The observation may be of another list than the known one.
    let is_same_list = Arc::ptr_eq(&known, &registry.known());
    let other_releases = manager.conflicts.other_releases();
    let plan = plan::plan(&Facts {
        release: &manager.namespace,
        other_releases: other_releases.as_ref(),
        controllers: &controllers,
        is_list_current: is_same_list && known.source == Source::Current,
        has_bad_entries: known.problems.iter().any(|one| one.key == KEY),
        objects: &objects,
        written: &memory.written,
        now: clock::now(),
    });
    memory.limit_to(&objects);
    report_others(plan.of_others, memory);
    let mut failures = Vec::new();
    for (name, action) in plan.actions {
        if failures.len() >= FAILURES_MAX || !context.leadership.is_valid() {
            break;
        }
        if matches!(action, Action::Create(_) | Action::Write { .. }) {
            memory.written.insert(name.clone(), clock::now());
        }
        if let Err(error) = execute(context, manager, name, action).await {
            failures.push(error);
        }
    }
    if !failures.is_empty() {
        let failures: Vec<String> = failures.iter().map(|error| explain(error)).collect();
        tracing::warn!(?failures, "the VIPUControllers are not up to date");
    }
    let addresses = plan::addresses(&objects, &manager.namespace).cloned();
    let due = accounts::due(addresses, &memory.accounts, clock::now());
    accounts::write(context, manager, due, PASS_MAX, &mut memory.accounts).await;
}

/// Logs objects that another release manages, each once.
fn report_others(of_others: BTreeMap<String, String>, memory: &mut Memory) {
    for (name, release) in &of_others {
        if memory.of_others.get(name) != Some(release) {
            tracing::warn!(
                name,
                release,
                "a VIPUController is left to another release, which lists the same V-IPU controller"
            );
        }
    }
    memory.of_others = of_others;
}

/// Carries out one change. An object that was changed meanwhile, or is gone, is left to the next
/// pass.
async fn execute(
    context: &Context,
    manager: &ManagingRelease,
    name: String,
    action: Action,
) -> Result<(), WriteError> {
    let api = Api::<VIPUController>::all(context.client.clone());
    match action {
        Action::Create(status) => create(&api, manager, name, &status).await,
        Action::Adopt {
            uid,
            resource_version,
        } => {
            let patch = json!({"metadata": {
                "uid": uid, "resourceVersion": resource_version, "labels": marks(manager),
            }});
            let params = requests::patch();
            let patched = api.patch(&name, &params, &Patch::Merge(&patch)).await;
            if patched.is_ok() {
                tracing::info!(name, "this release manages a VIPUController from now on");
            }
            unless_stale(patched, "adopt", name)
        }
        Action::Write { uid, status } => {
            write_status(&api, name, &status::patch(&uid, &status)).await
        }
        Action::Delete {
            uid,
            resource_version,
        } => {
            let exactly = requests::delete(Some(uid), Some(resource_version));
            let deleted = api.delete(&name, &exactly).await;
            if deleted.is_ok() {
                tracing::info!(name, "deleted a VIPUController, which is not in the list");
            }
            unless_stale(deleted, "delete", name)
        }
    }
}

async fn create(
    api: &Api<VIPUController>,
    manager: &ManagingRelease,
    name: String,
    status: &VIPUControllerStatus,
) -> Result<(), WriteError> {
    // Without fields in its spec: they belong to admins, whose server-side apply must not conflict.
    let object = json!({
        "apiVersion": API_VERSION,
        "kind": "VIPUController",
        "metadata": {"name": name, "labels": marks(manager)},
        "spec": {},
    });
    let params = requests::patch();
    let created = match api.patch(&name, &params, &Patch::Apply(&object)).await {
        Ok(created) => created,
        failed => return unless_stale(failed, "create", name),
    };
    tracing::info!(name, "created a VIPUController");
    let uid = created.metadata.uid.unwrap_or_default();
    write_status(api, name, &status::patch(&uid, status)).await
}

async fn write_status(
    api: &Api<VIPUController>,
    name: String,
    patch: &Value,
) -> Result<(), WriteError> {
    let patched = api
        .patch_status(&name, &requests::patch(), &Patch::Merge(patch))
        .await;
    unless_stale(patched, "write the status of", name)
}

/// The labels of an object that this release manages.
fn marks(manager: &ManagingRelease) -> BTreeMap<String, String> {
    labels::managed(labels::OPERATOR_NAMESPACE, &manager.namespace)
}

/// It is no error if the object exists already, was changed meanwhile, or is gone.
fn unless_stale<T>(
    result: Result<T, kube::Error>,
    action: &'static str,
    name: String,
) -> Result<(), WriteError> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        Err(source) => Err(WriteError {
            action,
            name,
            source,
        }),
    }
}
