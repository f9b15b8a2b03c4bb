//! The module versions of one replica: being prepared, ready, or failed.

mod awaited;
mod failed;
mod retry;
mod signed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipu_api::ipupolicy::{BUILT_IN, Hook, Match, OnError};
use ipu_guest_host::Guest;
use jiff::Timestamp;
use kube::ResourceExt;
use tokio::time::Instant;

use self::failed::Failed;
use self::retry::Retry;
pub use self::signed::Signed;
use super::active_policies::{BoundShadow, HookChain};
use super::active_set::{ActiveSet, ActiveVersion, Version};
use super::bound_policy::BoundPolicy;
use super::call_stats::CallStats;
use super::matcher::Matcher;
use super::observed_policy::ObservedPolicy;
use super::report::{DesiredVersion, Readiness, Report, Serving};
use super::source::SignatureFault;

/// The versions of all policies at one replica.
#[derive(Debug, Default)]
pub struct ModuleStore {
    versions: BTreeMap<Version, VersionState>,
    /// The parsed `spec.match` of each version.
    matchers: BTreeMap<Version, ParsedMatch>,
    /// The admin's request for another attempt that the last attempt of each version has answered.
    retry_requests: BTreeMap<Version, Option<String>>,
    /// The versions that [`ModuleStore::take_unsigned`] has returned.
    unsigned: BTreeSet<Version>,
}

/// The parsed `spec.match` of a version, or why it is invalid.
pub type ParsedMatch = Result<Arc<Matcher>, String>;

#[derive(Debug)]
enum VersionState {
    Preparing,
    Ready(Ready),
    Failed(Failed),
}

/// A version that is ready to serve.
#[derive(Clone, Debug)]
pub struct Ready {
    /// The guest.
    pub guest: Guest,
    /// Digest of its module.
    pub digest: String,
    /// Its `spec.match`.
    pub matcher: Arc<Matcher>,
    /// Reaction to a missing answer.
    pub on_error: OnError,
    /// Results of its calls.
    pub stats: Arc<CallStats>,
    /// Time of its first use. `None` while it is not active.
    pub serving_since: Option<Timestamp>,
    /// The keys that signed its module. `None` if it needs no signature.
    pub signed: Option<Signed>,
}

/// Failure to prepare a version.
#[derive(Debug)]
pub struct Failure {
    /// The reason, as a sentence.
    pub reason: String,
    /// Whether the replica refuses the version.
    pub is_final: bool,
    /// Whether the replica tries again, because the cause can change without a new version.
    pub is_retryable: bool,
    /// The fault of the module's signature, if that is the cause.
    pub signature: Option<SignatureFault>,
}

impl ModuleStore {
    /// Returns the versions with an unparsed `spec.match`, and drops the parsed ones of all other
    /// versions.
    pub fn unparsed(
        &mut self,
        desired: &[DesiredVersion],
        active: &[ActiveVersion],
    ) -> Vec<(Version, Hook, Option<Match>)> {
        let desired = desired
            .iter()
            .map(|version| (&version.uid, version.generation, &version.spec));
        let active = active
            .iter()
            .map(|version| (&version.uid, version.generation, &version.spec));
        let mut all: BTreeMap<Version, _> = desired
            .chain(active)
            .map(|(uid, generation, spec)| ((uid.clone(), generation), spec))
            .collect();
        self.matchers.retain(|version, _| all.contains_key(version));
        all.retain(|version, _| !self.matchers.contains_key(version));
        all.into_iter()
            .map(|(version, spec)| (version, spec.hook, spec.match_.clone()))
            .collect()
    }

    /// Stores the parsed `spec.match` of a version.
    pub fn insert_matcher(&mut self, version: Version, matcher: ParsedMatch) {
        self.matchers.insert(version, matcher);
    }

    /// Returns the parsed `spec.match` of a version.
    pub fn matcher(&self, version: &Version) -> ParsedMatch {
        let parsed = self.matchers.get(version).cloned();
        parsed.unwrap_or_else(|| Err("spec.match was not read yet".to_owned()))
    }

    /// Drops all other versions, marks those that are due as being prepared, and returns them.
    pub fn start_due(&mut self, desired: Vec<DesiredVersion>, now: Instant) -> Vec<DesiredVersion> {
        let key = |desired: &DesiredVersion| (desired.uid.clone(), desired.generation);
        let is_desired = |version: &Version| desired.iter().any(|desired| key(desired) == *version);
        self.versions.retain(|version, _| is_desired(version));
        self.retry_requests.retain(|version, _| is_desired(version));
        self.unsigned.retain(is_desired);
        let mut due = desired;
        due.retain(|desired| self.is_due(&key(desired), desired.retry_request.as_ref(), now));
        for desired in &due {
            let state = self
                .versions
                .entry(key(desired))
                .or_insert(VersionState::Preparing);
            // A failed version stays failed until it is ready.
            if let VersionState::Failed(failed) = state {
                failed.retry = Retry::UnderWay;
            }
            self.retry_requests
                .insert(key(desired), desired.retry_request.clone());
        }
        due
    }

    /// Whether an attempt to prepare a version must begin.
    fn is_due(&self, version: &Version, request: Option<&String>, now: Instant) -> bool {
        let answered = self.retry_requests.get(version).and_then(Option::as_ref);
        let is_requested = answered != request;
        match self.versions.get(version) {
            None => true,
            Some(VersionState::Preparing | VersionState::Ready(_)) => false,
            Some(VersionState::Failed(failed)) => failed.retry.is_due(is_requested, now),
        }
    }

    /// Stores the result of preparing a version, unless the version is no longer desired.
    pub fn finish(&mut self, version: &Version, outcome: Result<Ready, Failure>, now: Instant) {
        let Some(state) = self.versions.get_mut(version) else {
            return;
        };
        *state = match outcome {
            Ok(ready) => {
                self.unsigned.remove(version);
                VersionState::Ready(ready)
            }
            Err(failure) => {
                let previous = match state {
                    VersionState::Failed(previous) => Some(&*previous),
                    VersionState::Preparing | VersionState::Ready(_) => None,
                };
                VersionState::Failed(Failed::after(&failure, previous, now))
            }
        };
    }

    /// Returns the reason why a version is refused if no signature of its module counts: once, and
    /// not after each retry.
    pub fn take_unsigned(&mut self, version: &Version) -> Option<&str> {
        let Some(VersionState::Failed(failed)) = self.versions.get(version) else {
            return None;
        };
        let is_refused = failed.is_unsigned && failed.problem.is_final;
        let is_new = is_refused && self.unsigned.insert(version.clone());
        is_new.then_some(&*failed.problem.reason)
    }

    /// Whether the first attempt to prepare an enforced version is not over.
    pub fn is_loading(&self, active: &[ActiveVersion]) -> bool {
        let mut enforced = active.iter().filter(|version| version.is_enforced);
        enforced.any(|version| {
            let state = self
                .versions
                .get(&(version.uid.clone(), version.generation));
            matches!(state, Some(VersionState::Preparing))
        })
    }

    /// Returns the time of the next retry or check of signers.
    pub fn next_due(&self) -> Option<Instant> {
        let times = self.versions.values().filter_map(|state| match state {
            VersionState::Failed(failed) => failed.retry.time(),
            VersionState::Ready(ready) => ready.signed.as_ref()?.check_at(),
            VersionState::Preparing => None,
        });
        times.min()
    }

    /// Builds the chain of a hook, and sets `now` as the time of the first use of each new version.
    pub fn hook_chain(
        &mut self,
        active_set: &ActiveSet,
        active: &[ActiveVersion],
        hook: Hook,
        now: Timestamp,
    ) -> HookChain {
        let mut bind = |name: &String| -> Option<BoundPolicy> {
            if name == BUILT_IN {
                return Some(BoundPolicy::built_in(hook));
            }
            let version = active.iter().find(|version| version.name == *name)?;
            Some(self.bind(version, now))
        };
        let stages: Vec<Vec<BoundPolicy>> = active_set
            .stages
            .iter()
            .map(|stage| stage.guests.iter().filter_map(&mut bind).collect())
            .collect();
        let shadows = active_set.shadows.iter().filter_map(|shadow| {
            let version = active
                .iter()
                .find(|version| version.name == shadow.policy)?;
            let is_replaced_in = |stage: &Vec<String>| {
                shadow
                    .replaces
                    .as_ref()
                    .is_some_and(|replaces| stage.contains(replaces))
            };
            let stage = active_set
                .stages
                .iter()
                .position(|stage| is_replaced_in(&stage.guests));
            let after = active_set
                .stages
                .partition_point(|stage| stage.order <= shadow.order);
            Some(BoundShadow {
                policy: bind(&shadow.policy)?,
                version: (version.uid.clone(), version.generation),
                stage: stage.ok_or(after),
                share_percent: version
                    .spec
                    .shadow
                    .and_then(|shadow| shadow.share_percent)
                    .unwrap_or(100),
            })
        });
        let shadows = shadows.collect();
        HookChain {
            stages,
            shadows,
            awaited: Vec::new(),
        }
    }

    fn bind(&mut self, version: &ActiveVersion, now: Timestamp) -> BoundPolicy {
        let key = (version.uid.clone(), version.generation);
        let matcher = self.matcher(&key);
        match self.versions.get_mut(&key) {
            Some(VersionState::Ready(ready)) => {
                ready.serving_since.get_or_insert(now);
                BoundPolicy {
                    name: version.name.as_str().into(),
                    guest: ready.guest.clone(),
                    matcher: ready.matcher.clone(),
                    on_error: ready.on_error,
                    stats: ready.stats.clone(),
                }
            }
            state => {
                let reason = match (&version.unreadable, state) {
                    (Some(reason), _) => reason.clone(),
                    (None, Some(VersionState::Failed(failed))) => failed.problem.reason.clone(),
                    (None, _) => "its module is being loaded".to_owned(),
                };
                BoundPolicy {
                    name: version.name.as_str().into(),
                    guest: Guest::missing(&reason),
                    // The operator knows `spec.match` before the module is loaded, so other
                    // requests go on.
                    matcher: matcher.unwrap_or_else(|_| {
                        Arc::new(Matcher::of_selectors(version.spec.match_.as_ref()))
                    }),
                    on_error: version.spec.on_error(),
                    stats: Arc::default(),
                }
            }
        }
    }

    /// Resets the time of the first use and the results of all versions that are not active.
    pub fn reset_inactive(&mut self, active: &[ActiveVersion]) {
        for ((uid, generation), state) in &mut self.versions {
            let is_active = active
                .iter()
                .any(|version| (&version.uid, &version.generation) == (uid, generation));
            if let (VersionState::Ready(ready), false) = (state, is_active) {
                // If the version becomes active again, counting starts from 0.
                ready.serving_since = None;
                ready.stats = Arc::default();
            }
        }
    }

    /// Builds the report of this replica on all policies.
    pub fn report(&self, replica: &str, hooks: &[Hook], policies: &[ObservedPolicy]) -> Report {
        let of = |observed: &ObservedPolicy| {
            let uid = observed.policy.uid()?;
            let mut readiness = Readiness::default();
            let range = (uid.clone(), i64::MIN)..=(uid.clone(), i64::MAX);
            for ((_, generation), state) in self.versions.range(range) {
                match state {
                    VersionState::Preparing => {}
                    VersionState::Failed(failed) => {
                        let problem = failed.problem.clone();
                        readiness.problems.insert(*generation, problem);
                    }
                    VersionState::Ready(ready) => {
                        readiness.prepared.insert(*generation, ready.digest.clone());
                        if let Some(since) = ready.serving_since {
                            readiness.counts = ready.stats.counts();
                            readiness.serving = Some(Serving {
                                generation: *generation,
                                digest: ready.digest.clone(),
                                since,
                            });
                        }
                    }
                }
            }
            Some((uid, readiness))
        };
        let mine = policies
            .iter()
            .filter(|observed| hooks.contains(&observed.policy.spec.hook));
        Report {
            replica: replica.to_owned(),
            hooks: hooks.to_vec(),
            policies: mine.filter_map(of).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
