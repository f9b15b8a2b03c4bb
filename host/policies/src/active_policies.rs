//! The active policies of this process: one chain for each hook. A chain is replaced as a whole, so
//! that one version of all policies serves a request.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ipu_api::guest::digest::ModuleDigest;
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::GuestHost;
use parking_lot::RwLock;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::active_set::Version;
use super::bound_policy::{AwaitedPolicy, BoundPolicy};
use super::existing_reviews::ExistingReviews;
use super::match_evaluator::MatchEvaluator;

/// Most concurrent calls of shadow policies, which must not delay enforced policies.
pub const CONCURRENT_COMPARISONS: usize = 2;

/// Longest time that a process waits for the active policies at its start.
const LOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The active policies of this process. Cheap to clone; all clones share one state.
#[derive(Clone)]
pub struct ActivePolicies {
    host: GuestHost,
    chains: Arc<RwLock<HashMap<Hook, Arc<HookChain>>>>,
    load_state: Arc<watch::Sender<LoadState>>,
    unreadable: Arc<AtomicUsize>,
    comparison_permits: Arc<Semaphore>,
    evaluator: MatchEvaluator,
    existing_reviews: ExistingReviews,
}

/// Progress of a process at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LoadState {
    /// The policies are not known.
    Unlisted,
    /// The policies are known, and modules are missing.
    Listed,
    /// Every active policy is loaded or has failed.
    Loaded,
}

/// The chain of one hook.
#[derive(Debug, Default)]
pub struct HookChain {
    /// The stages, in order. Each calls the first policy that matches the request.
    pub stages: Vec<Vec<BoundPolicy>>,
    /// The policies in shadow mode.
    pub shadows: Vec<BoundShadow>,
    /// The policies whose matching requests wait until they are active.
    pub awaited: Vec<AwaitedPolicy>,
}

/// A policy in shadow mode: the operator compares its answers with the enforced ones.
#[derive(Clone, Debug)]
pub struct BoundShadow {
    /// The policy.
    pub policy: BoundPolicy,
    /// Its version.
    pub version: Version,
    /// `Ok`: the stage whose answer it is compared with. `Err`: it would get a stage of its own, at
    /// this index.
    pub stage: Result<usize, usize>,
    /// Share of the requests, in percent.
    pub share_percent: u32,
}

impl ActivePolicies {
    /// Starts with the built-in guests alone.
    pub fn new(host: GuestHost) -> Self {
        Self {
            host,
            chains: Arc::default(),
            load_state: Arc::new(watch::Sender::new(LoadState::Unlisted)),
            unreadable: Arc::default(),
            comparison_permits: Arc::new(Semaphore::new(CONCURRENT_COMPARISONS)),
            evaluator: MatchEvaluator::default(),
            existing_reviews: ExistingReviews::default(),
        }
    }

    /// Replaces the chain of a hook. Requests under way keep the previous chain.
    pub fn set_chain(&self, hook: Hook, chain: HookChain) {
        let digests = chain.digests();
        let previous = {
            let mut chains = self.chains.write();
            chains.insert(hook, Arc::new(chain))
        };
        let previous = previous.map_or_else(|| vec![None], |chain| chain.digests());
        if previous != digests {
            self.host.metrics().count_swap(hook);
        }
    }

    /// Returns the chain of a hook.
    pub fn chain(&self, hook: Hook) -> Arc<HookChain> {
        let chains = self.chains.read();
        let found = chains.get(&hook).cloned();
        found.unwrap_or_else(|| {
            Arc::new(HookChain {
                stages: vec![vec![BoundPolicy::built_in(hook)]],
                ..HookChain::default()
            })
        })
    }

    /// Waits until the policies are listed, and until every active policy is loaded or has failed,
    /// so that a process does not serve its first requests without them. Only the wait for modules
    /// has a timeout: a process that knows no policy would decide as if there were none.
    pub async fn wait_loaded(&self) {
        while !self.reach(LoadState::Listed).await {
            tracing::warn!(
                "the IPUPolicies cannot be listed, so this process is not ready; an earlier message has the reason"
            );
        }
        if !self.reach(LoadState::Loaded).await {
            tracing::warn!(
                "not every active IPUPolicy is loaded; continuing without the missing ones"
            );
        }
    }

    /// Waits until the process has made this progress. Returns false after a timeout.
    async fn reach(&self, least: LoadState) -> bool {
        let mut state = self.load_state.subscribe();
        let reached = state.wait_for(|state| *state >= least);
        timeout(LOAD_TIMEOUT, reached).await.is_ok()
    }

    /// Records that the policies are listed, or that their definition does not exist.
    pub(super) fn set_listed(&self) {
        self.load_state.send_if_modified(|state| {
            let is_first = *state < LoadState::Listed;
            *state = (*state).max(LoadState::Listed);
            is_first
        });
    }

    /// Records that every active policy is loaded or has failed.
    pub(super) fn set_loaded(&self) {
        self.load_state.send_replace(LoadState::Loaded);
    }

    /// Records the number of policies that this version cannot read.
    pub(super) fn set_unreadable(&self, policies: usize) {
        self.unreadable.store(policies, Ordering::Relaxed);
    }

    /// Returns the number of policies that this version cannot read.
    pub(super) fn unreadable(&self) -> usize {
        self.unreadable.load(Ordering::Relaxed)
    }

    /// Returns the guest host, which loads and calls modules.
    pub fn host(&self) -> &GuestHost {
        &self.host
    }

    /// Returns the evaluator of match conditions.
    pub fn evaluator(&self) -> &MatchEvaluator {
        &self.evaluator
    }

    /// Returns the reviews of the existing objects by shadow policies.
    pub fn existing_reviews(&self) -> &ExistingReviews {
        &self.existing_reviews
    }

    /// Returns the permits for calls of shadow policies.
    pub fn comparison_permits(&self) -> &Arc<Semaphore> {
        &self.comparison_permits
    }
}

impl HookChain {
    /// Returns the enforced modules in call order. `None` stands for a built-in module.
    fn digests(&self) -> Vec<Option<ModuleDigest>> {
        let policies = self.stages.iter().flatten();
        policies
            .map(|policy| policy.guest.digest().cloned())
            .collect()
    }
}

/// Whether a request is in the sampled share. The hash of its name decides, so that all replicas
/// agree.
pub fn is_sampled(share_percent: u32, request: &str) -> bool {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(request);
    let number = u32::from(digest[0]) << 8 | u32::from(digest[1]);
    number % 100 < share_percent
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, poll};
    use ipu_guest_host::GuestHostOptions;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_process_waits_for_the_list_of_policies_without_a_timeout() {
        let host = GuestHost::open(GuestHostOptions::default());
        let active = ActivePolicies::new(host.await.unwrap());
        let mut waiting = Box::pin(active.wait_loaded());
        let hour = Duration::from_hours(1);
        assert!(timeout(hour, &mut waiting).await.is_err());
        active.set_listed();
        assert!(
            timeout(hour, waiting).await.is_ok(),
            "modules have a timeout"
        );
    }

    #[tokio::test]
    async fn a_process_waits_until_its_active_policies_are_loaded() {
        let host = GuestHost::open(GuestHostOptions::default());
        let active = ActivePolicies::new(host.await.unwrap());
        active.set_listed();
        let mut waiting = Box::pin(active.wait_loaded());
        assert!(poll!(&mut waiting).is_pending());
        active.set_loaded();
        assert!(poll!(&mut waiting).is_ready());
        assert!(active.wait_loaded().now_or_never().is_some());
    }

    #[test]
    fn the_sampled_share_is_about_as_large_as_configured() {
        let chosen = |share| {
            let requests = 0..10_000;
            let chosen = requests.filter(|number| is_sampled(share, &format!("uid-{number}")));
            chosen.count()
        };
        assert_eq!((chosen(100), chosen(0)), (10_000, 0));
        let tenth = chosen(10);
        assert!((800..1_200).contains(&tenth), "{tenth}");
    }
}
