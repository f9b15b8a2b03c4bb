//! Pure: what becomes of a policy, from what all replicas say of it.

use ipu_api::condition;
use ipu_api::ipupolicy::{
    CallCounts, Hook, IPUPolicy, IPUPolicySpec, IPUPolicyStatus, Mode, PolicyPhase, ReplicaStatus,
    Revision, RolledBack, ShadowCounts,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt;
use serde_json::Value;

use super::lineup::{Aside, Lineup};
use super::report::{Counts, Report, Said, spec_of};

/// Differences between two answers that are shown.
pub const SAMPLES: usize = 3;

/// Condition that says whether what `spec` asks for is what every replica asks.
pub const READY: &str = "Ready";

/// What the status of a policy is to be, where `reports` are those of all replicas that live.
pub fn status(policy: &IPUPolicy, reports: &[Report], now: Timestamp) -> IPUPolicyStatus {
    let asking = Asking::of(policy, reports);
    let old = policy.status.clone().unwrap_or_default();
    let mut next = IPUPolicyStatus {
        observed_generation: asking.desired,
        desired_digest: policy.spec.module.digest.clone().or(asking.digest()),
        ..old
    };
    roll_back(&mut next, &asking, now);
    activate(&mut next, policy, &asking, now);
    promote(&mut next, &asking, now);
    let active = next.active.as_ref();
    next.active_digest = active.map(|revision| revision.digest.clone());
    next.since = active.map(|revision| revision.since.clone());
    let counts = asking.counts(active.map(|revision| revision.generation));
    next.calls = counts.calls;
    next.shadow = active
        .and_then(spec_of)
        .filter(|spec| spec.mode == Mode::Shadow)
        .map(|_| counts.shadow);
    next.replicas = asking.replicas();
    next
}

/// Completes a status by the phase, which depends on the other policies of the hook as well.
pub fn with_phase(
    mut status: IPUPolicyStatus,
    policy: &IPUPolicy,
    reports: &[Report],
    lineup: &Lineup,
    now: Timestamp,
) -> IPUPolicyStatus {
    let asking = Asking::of(policy, reports);
    let (phase, message) = phase(&status, policy, &asking, lineup);
    let is_asked = status.active.as_ref().is_some_and(|revision| {
        revision.generation == asking.desired && asking.all_ask(revision.generation)
    });
    let is_ready = is_asked
        && matches!(
            phase,
            PolicyPhase::Active | PolicyPhase::Shadow | PolicyPhase::Replaced
        );
    let said = (&*format!("{phase:?}"), message.clone());
    let condition = condition::renewed(&status.conditions, READY, is_ready, said, now);
    status.conditions = vec![Condition {
        observed_generation: Some(status.observed_generation),
        ..condition
    }];
    (status.phase, status.message) = (phase, message);
    status
}

/// The replicas that ask guests at a policy's hook, and what they say of it.
struct Asking<'a> {
    desired: i64,
    said: Vec<(&'a str, Option<&'a Said>)>,
}

impl<'a> Asking<'a> {
    fn of(policy: &IPUPolicy, reports: &'a [Report]) -> Self {
        let uid = policy.uid().unwrap_or_default();
        let of_hook = reports
            .iter()
            .filter(|report| report.hooks.contains(&policy.spec.hook));
        Self {
            desired: policy.metadata.generation.unwrap_or_default(),
            said: of_hook
                .map(|report| (report.replica.as_str(), report.policies.get(&uid)))
                .collect(),
        }
    }

    /// The digest of the desired version, as the replicas found it, once all have it ready.
    fn prepared(&self) -> Option<String> {
        let digests = self.said.iter();
        let mut digests =
            digests.map(|(_, said)| said.and_then(|said| said.prepared.get(&self.desired)));
        let first = digests.next()??;
        digests
            .all(|other| other == Some(first))
            .then(|| first.clone())
    }

    /// The digest of the desired version, as some replica found it.
    fn digest(&self) -> Option<String> {
        let mut said = self.said.iter().filter_map(|(_, said)| *said);
        said.find_map(|said| said.prepared.get(&self.desired).cloned())
    }

    fn counts(&self, generation: Option<i64>) -> Counts {
        let mut sum = Counts::default();
        let said = self.said.iter().filter_map(|(_, said)| *said);
        let asked = said.filter(|said| {
            let asks = said.asks.as_ref().map(|asked| asked.generation);
            asks.is_some() && asks == generation
        });
        for Counts {
            calls,
            recent,
            shadow,
        } in asked.map(|said| &said.counts)
        {
            add(&mut sum.calls, *calls);
            add(&mut sum.recent, *recent);
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

    fn all_ask(&self, generation: i64) -> bool {
        let asks = |said: &Said| said.asks.as_ref().map(|asked| asked.generation);
        let mut said = self.said.iter();
        !self.said.is_empty() && said.all(|(_, said)| said.and_then(asks) == Some(generation))
    }

    /// The first problem of a generation, and at which replica.
    fn problem(&self, generation: i64, is_final: bool) -> Option<(&'a str, &'a str)> {
        self.said.iter().find_map(|(replica, said)| {
            let problem = said.as_ref()?.problems.get(&generation)?;
            (problem.is_final == is_final).then_some((*replica, problem.reason.as_str()))
        })
    }

    fn replicas(&self) -> Vec<ReplicaStatus> {
        let of_one = |(replica, said): &(&str, Option<&Said>)| {
            let asks = said.and_then(|said| said.asks.as_ref());
            let problems = said.iter().flat_map(|said| said.problems.values());
            ReplicaStatus {
                name: (*replica).to_owned(),
                digest: asks.map(|asked| asked.digest.clone()),
                since: asks.map(|asked| Time(asked.since)),
                problem: problems.last().map(|problem| problem.reason.clone()),
            }
        };
        let mut replicas: Vec<_> = self.said.iter().map(of_one).collect();
        replicas.sort_by(|one, other| one.name.cmp(&other.name));
        replicas
    }
}

/// Takes back a version that fails too often, where there is something to go back to.
fn roll_back(status: &mut IPUPolicyStatus, asking: &Asking<'_>, now: Timestamp) {
    let Some(bad) = status.active.clone() else {
        return;
    };
    let Some(spec) = spec_of(&bad) else {
        return;
    };
    let recent = asking.counts(Some(bad.generation)).recent;
    if (!bad.promoted && status.previous.is_none()) || !fails_too_often(&spec, recent) {
        return;
    }
    let calls = recent.answered + recent.failed;
    status.rolled_back = Some(RolledBack {
        generation: bad.generation,
        digest: bad.digest.clone(),
        reason: format!(
            "{} of its last {calls} calls gave no usable answer",
            recent.failed
        ),
        at: Time(now),
    });
    status.active = if bad.promoted {
        Some(Revision {
            promoted: false,
            since: Time(now),
            ..bad
        })
    } else {
        status.previous.take().map(|good| Revision {
            since: Time(now),
            ..good
        })
    };
}

fn fails_too_often(spec: &IPUPolicySpec, recent: CallCounts) -> bool {
    let limit = spec.rollback.unwrap_or_default();
    let calls = recent.answered + recent.failed;
    calls >= i64::from(limit.minimum_calls)
        && recent.failed > 0
        && recent.failed * 100 >= calls * i64::from(limit.failures_percent)
}

/// Activates the desired version once every replica has it ready.
fn activate(status: &mut IPUPolicyStatus, policy: &IPUPolicy, asking: &Asking<'_>, now: Timestamp) {
    let is_active = |revision: &Revision| revision.generation == asking.desired;
    if status.active.as_ref().is_some_and(is_active) || is_taken_back(status, asking.desired) {
        return;
    }
    let Some(digest) = asking.prepared() else {
        return;
    };
    let Ok(Value::Object(spec)) = serde_json::to_value(&policy.spec) else {
        return;
    };
    let new = Revision {
        generation: asking.desired,
        digest,
        since: Time(now),
        promoted: false,
        spec,
    };
    status.previous = status.active.replace(new);
}

fn is_taken_back(status: &IPUPolicyStatus, generation: i64) -> bool {
    let taken_back = status.rolled_back.as_ref();
    taken_back.is_some_and(|taken_back| taken_back.generation == generation)
}

/// Lets the answers of a tried guest count once enough of them were equal and none was not.
fn promote(status: &mut IPUPolicyStatus, asking: &Asking<'_>, now: Timestamp) {
    let generation = status.active.as_ref().map(|revision| revision.generation);
    if generation.is_none_or(|generation| is_taken_back(status, generation)) {
        return;
    }
    let Some(revision) = status.active.as_mut().filter(|revision| !revision.promoted) else {
        return;
    };
    let spec = spec_of(revision).filter(|spec| spec.mode == Mode::Shadow);
    let Some(after) = spec.and_then(|spec| spec.shadow?.promote_after) else {
        return;
    };
    let ShadowCounts {
        equal,
        different,
        failed,
        ..
    } = asking.counts(generation).shadow;
    if equal >= after.equal && different == 0 && failed == 0 {
        revision.promoted = true;
        revision.since = Time(now);
    }
}

fn phase(
    status: &IPUPolicyStatus,
    policy: &IPUPolicy,
    asking: &Asking<'_>,
    lineup: &Lineup,
) -> (PolicyPhase, String) {
    if let Some(back) = status
        .rolled_back
        .as_ref()
        .filter(|back| back.generation == asking.desired)
    {
        let reason = &back.reason;
        let message =
            format!("{reason}; the previous version decides again. Change spec to try again");
        return (PolicyPhase::RolledBack, message);
    }
    let before = if status.active.is_some() {
        "the previous version stays active"
    } else {
        "no version is active"
    };
    if let Some((replica, reason)) = asking.problem(asking.desired, true) {
        let message = format!("{replica} refuses it, and {before}: {reason}");
        return (PolicyPhase::Refused, message);
    }
    let active = status
        .active
        .as_ref()
        .filter(|revision| revision.generation == asking.desired);
    let Some(revision) = active else {
        return (PolicyPhase::Loading, why_not_yet(policy, asking, before));
    };
    match lineup.aside.get(&policy.name_any()) {
        Some(Aside::Refused(why)) => return (PolicyPhase::Refused, why.clone()),
        Some(Aside::Replaced(by)) => {
            let message = format!("the IPUPolicy {by} decides in its place");
            return (PolicyPhase::Replaced, message);
        }
        None => {}
    }
    let message = match asking.problem(asking.desired, false) {
        Some((replica, reason)) => format!("{replica} does not have it: {reason}"),
        None if revision.promoted => {
            "its answers were equal often enough, and count now".to_owned()
        }
        None => String::new(),
    };
    if policy.spec.mode == Mode::Shadow && !revision.promoted {
        return (PolicyPhase::Shadow, message);
    }
    (PolicyPhase::Active, message)
}

fn why_not_yet(policy: &IPUPolicy, asking: &Asking<'_>, before: &str) -> String {
    if asking.said.is_empty() {
        let process = match policy.spec.hook {
            Hook::Defaulting | Hook::Validation => "controller",
            Hook::Placement => "vipu-proxy",
        };
        return format!("no replica of the {process} is there to ask it");
    }
    if let Some((replica, reason)) = asking.problem(asking.desired, false) {
        return format!("{replica} does not have it yet, and {before}: {reason}");
    }
    let is_ready = |said: &Said| said.prepared.contains_key(&asking.desired);
    let slow = asking
        .said
        .iter()
        .filter(|(_, said)| !said.is_some_and(is_ready));
    let names: Vec<&str> = slow.map(|(replica, _)| *replica).collect();
    if names.is_empty() {
        return "the replicas found different modules; module.digest says which one is meant"
            .to_owned();
    }
    format!("being made ready by {}; {before}", names.join(", "))
}

fn add(sum: &mut CallCounts, more: CallCounts) {
    sum.answered += more.answered;
    sum.failed += more.failed;
}

#[cfg(test)]
mod tests;
