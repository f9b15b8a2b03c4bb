//! Follows the IPUPolicies in one replica: prepares the desired versions, serves with the active
//! ones, and reports both.

mod load_permits;
mod preparation;
mod signer_check;

use std::sync::Arc;
use std::time::Duration;

use ipu_api::ipupolicy::{Hook, ModuleSource};
use ipu_runtime::clock;
use ipu_runtime::panics;
use kube::{Client, ResourceExt};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at, sleep};
use tokio_util::sync::CancellationToken;

use self::load_permits::LoadPermits;
pub use self::load_permits::PREFETCHED;
use self::preparation::{catch_panic, parse, prepare};
use self::signer_check::{CheckBatch, SearchPermits};
use super::active_policies::ActivePolicies;
use super::active_set::{Version, active_set, active_versions};
use super::module_store::{Failure, ModuleStore, Ready, Signed};
use super::observed_policy::ObservedPolicy;
use super::replica_readiness::{self, Replica};
use super::report::{DesiredVersion, Report, desired_versions};
use super::source::Sources;
use super::watch::PolicyStore;

/// Period at which unused modules are removed. On the volume it also renews the age of those that
/// IPUPolicies name, so it is a small part of the age from which a module is removed.
const PRUNE_PERIOD: Duration = Duration::from_mins(15);

/// Period at which the counts are reported.
const COUNTS_PERIOD: Duration = Duration::from_secs(1);

/// Follows the policies until `stop`.
pub async fn run(
    client: Client,
    replica: Replica,
    hooks: &[Hook],
    active: ActivePolicies,
    sources: Sources,
    policies: PolicyStore,
    stop: CancellationToken,
) {
    let (reports, published) = watch::channel(Report {
        replica: replica.name.clone(),
        hooks: hooks.to_vec(),
        ..Report::default()
    });
    let follower = Follower {
        name: replica.name.clone(),
        hooks,
        active,
        sources,
        policies,
        permits: LoadPermits::default(),
        searches: SearchPermits::default(),
        reports,
    };
    let publishing = replica_readiness::publish(client, replica, published, stop.clone());
    futures::join!(follower.follow(&stop), publishing);
}

/// Versions that are being prepared or checked.
type Preparing = JoinSet<(Version, Outcome)>;

/// The end of a task about a version.
enum Outcome {
    Prepared(Result<Ready, Failure>),
    Checked(Result<Signed, Failure>),
}

impl Outcome {
    fn store(self, version: &Version, store: &mut ModuleStore) {
        match self {
            Self::Prepared(prepared) => store.finish(version, prepared, Instant::now()),
            Self::Checked(checked) => store.finish_check(version, checked, Instant::now()),
        }
    }
}

struct Follower<'a> {
    name: String,
    hooks: &'a [Hook],
    active: ActivePolicies,
    sources: Sources,
    policies: PolicyStore,
    permits: LoadPermits,
    searches: SearchPermits,
    reports: watch::Sender<Report>,
}

impl Follower<'_> {
    async fn follow(&self, stop: &CancellationToken) {
        if stop
            .run_until_cancelled(self.policies.wait_listed())
            .await
            .is_none()
        {
            return;
        }
        self.active.set_listed();
        let mut store = ModuleStore::default();
        let mut preparing = Preparing::new();
        let mut changes = self.policies.changes();
        changes.mark_changed();
        let mut policies = Vec::new();
        let mut pruning = interval_at(Instant::now() + PRUNE_PERIOD, PRUNE_PERIOD);
        while !stop.is_cancelled() {
            let due_in = store
                .next_due()
                .map(|due_at| due_at.saturating_duration_since(Instant::now()));
            let is_due = tokio::select! {
                () = stop.cancelled() => false,
                changed = changes.changed() => changed.is_ok(),
                Some(ended) = preparing.join_next() => {
                    let (version, outcome) = ended.expect("it is not aborted, and its panics are caught");
                    outcome.store(&version, &mut store);
                    if let Some(reason) = store.take_unsigned(&version) {
                        warn_unsigned(&policies, &version, reason);
                    }
                    true
                },
                () = sleep(due_in.unwrap_or(Duration::MAX)), if due_in.is_some() => true,
                _ = pruning.tick() => {
                    self.prune(&policies);
                    false
                },
                () = sleep(COUNTS_PERIOD) => false,
            };
            if is_due {
                policies = self.policies.all();
                let reconciling = self.reconcile(&policies, &mut store, &mut preparing);
                if let Err(panicked) = panics::caught(reconciling).await {
                    tracing::error!(
                        "failed to follow the IPUPolicies; the active ones stay active: {panicked}"
                    );
                }
            }
            self.publish(store.report(&self.name, self.hooks, &policies));
        }
    }

    /// Starts preparing the versions that are due, and serves with the active versions.
    async fn reconcile(
        &self,
        policies: &[ObservedPolicy],
        store: &mut ModuleStore,
        preparing: &mut Preparing,
    ) {
        let desired = desired_versions(policies.iter(), self.hooks);
        let active = active_versions(policies.iter());
        for (version, hook, spec) in store.unparsed(&desired, &active) {
            store.insert_matcher(version, parse(hook, spec).await);
        }
        self.start_checks(&desired, store, preparing);
        let due = store.start_due(desired, Instant::now());
        if !due.is_empty() {
            self.prune(policies);
        }
        for desired in due {
            let (policies, sources) = (self.active.clone(), self.sources.clone());
            let permits = self.permits.clone();
            let version = (desired.uid.clone(), desired.generation);
            let matcher = store.matcher(&version);
            preparing.spawn(async move {
                let prepared = prepare((&policies, &sources), &permits, matcher, desired);
                let prepared = Box::pin(catch_panic(prepared)).await;
                (version, Outcome::Prepared(prepared))
            });
        }
        store.reset_inactive(&active);
        for hook in self.hooks {
            let active_set = active_set(&active, *hook);
            let mut chain = store.hook_chain(&active_set, &active, *hook, clock::now());
            chain.awaited = store.awaited(policies, *hook);
            self.active.set_chain(*hook, chain);
        }
        if !store.is_loading(&active) {
            self.active.set_loaded();
        }
        let of_hooks = policies
            .iter()
            .filter(|observed| self.hooks.contains(&observed.policy.spec.hook));
        let unreadable = of_hooks.filter(|observed| observed.is_unreadable()).count();
        let unknown = self.policies.of_unknown_hooks().len();
        self.active.set_unreadable(unreadable + unknown);
    }

    /// Starts checking the signers of all signed versions once one is due.
    fn start_checks(
        &self,
        desired: &[DesiredVersion],
        store: &mut ModuleStore,
        preparing: &mut Preparing,
    ) {
        let batch = Arc::new(CheckBatch::new(self.searches.clone()));
        for (desired, signed) in store.start_checks(desired, Instant::now()) {
            let (sources, batch) = (self.sources.clone(), batch.clone());
            preparing.spawn(async move {
                let checked = batch.check(&sources, &desired.spec.module, signed);
                let checked = Box::pin(catch_panic(checked)).await;
                ((desired.uid, desired.generation), Outcome::Checked(checked))
            });
        }
    }

    /// Starts removing the modules that no policy names, from both folders. Without a list of the
    /// policies, all modules would seem to be unused.
    fn prune(&self, policies: &[ObservedPolicy]) {
        if !self.policies.is_listed() {
            return;
        }
        let desired = desired_versions(policies.iter(), self.hooks).into_iter();
        let desired: Vec<_> = desired.map(|version| version.spec.module).collect();
        let active = active_versions(policies.iter()).into_iter();
        let active: Vec<_> = active.map(|version| version.spec.module).collect();
        let (sources, named) = (self.sources.clone(), self.named_modules(policies));
        tokio::spawn(async move {
            sources.prune(&desired, &active).await;
            sources.prune_shared(named).await;
        });
    }

    /// Returns the modules of all policies, also of hooks of the other process. `None` if this
    /// version cannot read some.
    fn named_modules(&self, policies: &[ObservedPolicy]) -> Option<Vec<ModuleSource>> {
        let is_unreadable = policies.iter().any(ObservedPolicy::is_unreadable);
        if is_unreadable || !self.policies.of_unknown_hooks().is_empty() {
            return None;
        }
        let versions = desired_versions(policies.iter(), &Hook::ALL).into_iter();
        let modules = versions.map(|version| version.spec.module);
        Some(modules.collect())
    }

    fn publish(&self, report: Report) {
        self.reports.send_if_modified(|published| {
            let is_changed = *published != report;
            *published = report;
            is_changed
        });
    }
}

fn warn_unsigned(policies: &[ObservedPolicy], (uid, generation): &Version, reason: &str) {
    let is_of = |observed: &&ObservedPolicy| observed.policy.uid().as_ref() == Some(uid);
    let policy = policies.iter().find(is_of);
    let policy = policy.map(|observed| observed.policy.name_any());
    tracing::warn!(
        policy,
        generation,
        reason,
        "the module of an IPUPolicy is refused, because no signature of it counts"
    );
}

#[cfg(test)]
mod tests;
