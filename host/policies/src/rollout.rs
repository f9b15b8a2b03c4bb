//! Pure: the status of a policy, from the readiness that all replicas report: activation, rollback
//! and promotion.

mod conditions;
pub(crate) mod existing;
mod phase;
mod rollback;

use ipu_api::ipupolicy::{
    CallCounts, IPUPolicy, IPUPolicyStatus, Mode, PolicyPhase, ReplicaStatus, Revision,
    ShadowCounts,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::Value;

use super::active_set::ActiveSet;
use super::observed_policy::ObservedPolicy;
use super::report::{Counts, Readiness, Report, spec_of};
pub(crate) use conditions::of_refused;
use rollback::is_rolled_back;

/// Most differences in the status of a policy.
pub const SAMPLES: usize = 3;

/// Namespaces in which calls must fail before a version is rolled back. A tenant of one namespace
/// can make a guest fail, with objects that it cannot process.
pub const FAILING_NAMESPACES: usize = 3;

/// Users whose calls must fail before a version is rolled back. One user can have several
/// namespaces.
pub const FAILING_USERS: usize = 2;

/// Computes the status of a policy, without its phase, from the reports of all live replicas.
pub fn status(observed: &ObservedPolicy, reports: &[Report], now: Timestamp) -> IPUPolicyStatus {
    let policy = &observed.policy;
    let replicas = HookReplicas::of(policy, reports);
    let old = policy.status.clone().unwrap_or_default();
    let mut next = IPUPolicyStatus {
        observed_generation: replicas.desired,
        desired_digest: policy
            .spec
            .module
            .digest
            .clone()
            .or(replicas.first_digest()),
        ..old
    };
    rollback::roll_back(&mut next, &replicas, now);
    // A newer replica can be ready with a spec that this one cannot read.
    if observed.unreadable.is_none() {
        activate(&mut next, policy, &replicas, now);
    }
    promote(&mut next, &replicas, now);
    rollback::drop_previous(&mut next, now);
    let active = next.active.as_ref();
    next.active_digest = active.map(|revision| revision.digest.clone());
    next.since = active.map(|revision| revision.since.clone());
    let counts = replicas.counts(active.map(|revision| revision.generation));
    next.calls = counts.calls;
    next.shadow = active
        .and_then(|revision| spec_of(revision).ok())
        .filter(|spec| spec.mode == Mode::Shadow)
        .map(|_| counts.shadow);
    next.replicas = replicas.statuses();
    next
}

/// Adds the phase to a status. The phase also depends on the other policies of the hook.
pub fn with_phase(
    mut status: IPUPolicyStatus,
    observed: &ObservedPolicy,
    reports: &[Report],
    active_set: &ActiveSet,
    now: Timestamp,
) -> IPUPolicyStatus {
    let replicas = HookReplicas::of(&observed.policy, reports);
    let (phase, message) = phase::of(&status, observed, &replicas, active_set);
    let is_served = status.active.as_ref().is_some_and(|revision| {
        revision.generation == replicas.desired && replicas.all_serve(revision.generation)
    });
    let is_ready = is_served
        && matches!(
            phase,
            PolicyPhase::Active | PolicyPhase::Shadow | PolicyPhase::Replaced
        );
    (status.phase, status.message) = (phase, message);
    status.conditions = conditions::of(&status, is_ready, now);
    status
}

/// The replicas that call guests at the hook of a policy, and the readiness of the policy at each.
struct HookReplicas<'a> {
    desired: i64,
    readiness: Vec<(&'a str, Option<&'a Readiness>)>,
}

impl<'a> HookReplicas<'a> {
    fn of(policy: &IPUPolicy, reports: &'a [Report]) -> Self {
        let uid = policy.uid().unwrap_or_default();
        let of_hook = reports
            .iter()
            .filter(|report| report.hooks.contains(&policy.spec.hook));
        Self {
            desired: policy.metadata.generation.unwrap_or_default(),
            readiness: of_hook
                .map(|report| (report.replica.as_str(), report.policies.get(&uid)))
                .collect(),
        }
    }

    /// Returns the digest of the desired version once every replica is ready with the same one.
    fn common_digest(&self) -> Option<String> {
        let digests = self.readiness.iter();
        let mut digests =
            digests.map(|(_, readiness)| readiness.and_then(|one| one.prepared.get(&self.desired)));
        let first = digests.next()??;
        digests
            .all(|other| other == Some(first))
            .then(|| first.clone())
    }

    /// Returns the digest of the desired version at the first replica that is ready.
    fn first_digest(&self) -> Option<String> {
        let mut known = self.known();
        known.find_map(|readiness| readiness.prepared.get(&self.desired).cloned())
    }

    fn known(&self) -> impl Iterator<Item = &'a Readiness> {
        self.readiness
            .iter()
            .filter_map(|(_, readiness)| *readiness)
    }

    fn counts(&self, generation: Option<i64>) -> Counts {
        let mut sum = Counts::default();
        let serving = self.known().filter(|readiness| {
            let served = readiness.serving_generation();
            served.is_some() && served == generation
        });
        for Counts {
            calls,
            recent,
            failing_namespaces,
            failing_users,
            shadow,
        } in serving.map(|readiness| &readiness.counts)
        {
            add(&mut sum.calls, *calls);
            add(&mut sum.recent, *recent);
            sum.failing_namespaces
                .extend(failing_namespaces.iter().cloned());
            sum.failing_users.extend(failing_users.iter().cloned());
            sum.shadow.equal += shadow.equal;
            sum.shadow.different += shadow.different;
            sum.shadow.failed += shadow.failed;
            sum.shadow.skipped += shadow.skipped;
            let free = SAMPLES.saturating_sub(sum.shadow.samples.len());
            let samples = shadow.samples.iter().take(free).cloned();
            sum.shadow.samples.extend(samples);
        }
        sum
    }

    fn all_serve(&self, generation: i64) -> bool {
        let mut all = self.readiness.iter();
        !self.readiness.is_empty()
            && all.all(|(_, readiness)| {
                readiness.and_then(Readiness::serving_generation) == Some(generation)
            })
    }

    /// Returns the first problem of a generation, with the name of its replica.
    fn problem(&self, generation: i64, is_final: bool) -> Option<(&'a str, &'a str)> {
        self.readiness.iter().find_map(|(replica, readiness)| {
            let problem = readiness.as_ref()?.problems.get(&generation)?;
            (problem.is_final == is_final).then_some((*replica, problem.reason.as_str()))
        })
    }

    fn statuses(&self) -> Vec<ReplicaStatus> {
        let status = |(replica, readiness): &(&str, Option<&Readiness>)| {
            let serving = readiness.and_then(|readiness| readiness.serving.as_ref());
            let problems = readiness.iter().flat_map(|one| one.problems.values());
            ReplicaStatus {
                name: (*replica).to_owned(),
                digest: serving.map(|serving| serving.digest.clone()),
                since: serving.map(|serving| Time(serving.since)),
                problem: problems.last().map(|problem| problem.reason.clone()),
            }
        };
        let mut replicas: Vec<_> = self.readiness.iter().map(status).collect();
        replicas.sort_by(|one, other| one.name.cmp(&other.name));
        replicas
    }
}

/// Activates the desired version once every replica is ready with it.
fn activate(
    status: &mut IPUPolicyStatus,
    policy: &IPUPolicy,
    replicas: &HookReplicas<'_>,
    now: Timestamp,
) {
    let is_active = |revision: &Revision| revision.generation == replicas.desired;
    if status.active.as_ref().is_some_and(is_active) || is_rolled_back(status, replicas.desired) {
        return;
    }
    let Some(digest) = replicas.common_digest() else {
        return;
    };
    let Ok(Value::Object(spec)) = serde_json::to_value(&policy.spec) else {
        return;
    };
    let new = Revision {
        generation: replicas.desired,
        digest,
        since: Time(now),
        promoted: false,
        spec,
    };
    status.previous = status.active.replace(new);
}

/// Promotes a shadow policy after enough equal answers, if no answer differed or failed.
fn promote(status: &mut IPUPolicyStatus, replicas: &HookReplicas<'_>, now: Timestamp) {
    let generation = status.active.as_ref().map(|revision| revision.generation);
    if generation.is_none_or(|generation| is_rolled_back(status, generation)) {
        return;
    }
    let Some(revision) = status.active.as_mut().filter(|revision| !revision.promoted) else {
        return;
    };
    let spec = spec_of(revision).ok();
    let spec = spec.filter(|spec| spec.mode == Mode::Shadow);
    let Some(after) = spec.and_then(|spec| spec.shadow?.promote_after) else {
        return;
    };
    let ShadowCounts {
        equal,
        different,
        failed,
        ..
    } = replicas.counts(generation).shadow;
    if equal >= after.equal && different == 0 && failed == 0 {
        revision.promoted = true;
        revision.since = Time(now);
    }
}

fn add(sum: &mut CallCounts, more: CallCounts) {
    sum.answered += more.answered;
    sum.failed += more.failed;
}

#[cfg(test)]
mod tests;
