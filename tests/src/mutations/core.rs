//! Mistakes in the partition core.

use super::{FoundBy, Mutation, Tests};

/// The tests of the sweep around a fake API server.
const SWEEP_TESTS: FoundBy = FoundBy::Tests(Tests {
    package: "ipu-partitions",
    named: "sweep::tests::",
    bound: None,
});

/// The tests of the accounts of IPU-seconds.
const ACCOUNTING_TESTS: FoundBy = FoundBy::Tests(Tests {
    package: "ipu-partitions",
    named: "accounting::",
    bound: None,
});

/// The tables of the share of reserved controllers.
const SHARE_TESTS: FoundBy = FoundBy::Tests(Tests {
    package: "ipu-partitions",
    named: "queue::tests::share::",
    bound: None,
});

const UNSETTLED_ATTEMPTS: &str = "host/partitions/src/unsettled_attempts.rs";
const QUEUE: &str = "host/partitions/src/queue.rs";
const RESERVATIONS: &str = "host/partitions/src/queue/reservations.rs";
const QUEUE_ENTRY: &str = "host/partitions/src/queue/entry.rs";
const LIFECYCLE: &str = "host/partitions/src/lifecycle.rs";
const RESET: &str = "host/partitions/src/lifecycle/reset.rs";
const STEP: &str = "host/partitions/src/step.rs";
const OBSERVATIONS: &str = "host/partitions/src/observations.rs";
const ORPHANS: &str = "host/partitions/src/orphans.rs";
const FINALIZE: &str = "host/partitions/src/finalize.rs";
const NAMING: &str = "host/api/src/naming.rs";

/// Every mistake in the core that is tried.
pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "the fence is dropped: whoever finds an intent acts on it",
        file: UNSETTLED_ATTEMPTS,
        text: "if is_wanted && observations.may(&Intent::Create(id.to_owned())) {",
        instead: "if is_wanted && observations.created(id).is_none() {",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "the intent is written down after the deed",
        file: LIFECYCLE,
        text: "Step::Record(Box::new(begun), Intent::Create(id))",
        instead: "match (observations.created(&id), begun.attempts.last()) {
                (None, Some(attempt)) => Step::Create(attempt.clone()),
                _ => write(begun),
            }",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "the sweep knows no grace",
        file: ORPHANS,
        text: "if suspects.contains_key(&partition) && now.saturating_sub(since) >= grace {",
        instead: "if now >= since {",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "another controller is asked after an unknown outcome, without asking the first",
        file: UNSETTLED_ATTEMPTS,
        text: "None => Ok(Step::ReadState(attempt.clone())),",
        instead: "None => Err(unknown(attempt, &RemoteState::Absent, \"it was not asked\")),",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "an attempt whose truth cannot be asked is forgotten",
        file: UNSETTLED_ATTEMPTS,
        text: ") => Err(unknown(attempt, remote_state, reason)),",
        instead: ") => Ok(write(not_made(status, attempt, observations))),",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "the id does not hold the generation",
        file: NAMING,
        text: "                &generation.to_string(),",
        instead: "                &(generation - generation).to_string(),",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "the id does not hold the object's UID",
        file: NAMING,
        text: "                request,\n                &generation.to_string(),",
        instead: "                &request[..0],\n                &generation.to_string(),",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "the id holds nothing that a restore does not take back",
        file: NAMING,
        text: "                &nonce.to_string(),",
        instead: "                &(nonce - nonce).to_string(),",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "a release does not recognise what another one left",
        file: NAMING,
        text: "tag: hash(&[cluster], TAG),",
        instead: "tag: hash(&[cluster, namespace], TAG),",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "what another cluster or release has made is let go",
        file: STEP,
        text: "if is_ours && let Some(status) = unsettled_attempts::disowned(partition, now) {",
        instead: "let before = partition.status.clone().unwrap_or_default();
    let mut marked = before.clone();
    for one in before.attempts.iter().filter(|one| super::status_update::is_held(one)) {
        if !settings.identity.marks(&one.id) {
            marked = super::status_update::disowned(&marked, &one.id, now);
        }
    }
    let others = (marked != before).then_some(marked);
    if is_ours && let Some(status) = unsettled_attempts::disowned(partition, now).or(others) {",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "a partition is removed without counting its users",
        file: UNSETTLED_ATTEMPTS,
        text: "        None => return Ok(Step::CountUsers(id.to_owned())),
        Some([]) => {}",
        instead: "        None | Some([]) => {}",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "users are not counted again after the intent was written down",
        file: OBSERVATIONS,
        text: "            Observation::Recorded(intent) => {
                self.users.clear();",
        instead: "            Observation::Recorded(intent) => {",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "users are not counted again after a status was written",
        file: OBSERVATIONS,
        text: "Observation::Written => self.users.clear(),",
        instead: "Observation::Written => {}",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "a partition is reset although the last count has found Pods",
        file: RESET,
        text: "Some(pods) => write(status_update::reset_put_off(status, waits(id, pods))),",
        instead: "Some(_) => Step::Reset(attempt.clone()),",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "the object goes while attempts are held",
        file: FINALIZE,
        text: "if blockers.is_empty() || is_forced(partition) {",
        instead: "if blockers.len() < 9 || is_forced(partition) {",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "an attempt is adopted although the slot has a partition",
        file: UNSETTLED_ATTEMPTS,
        text: "is_vacant(status) && is_there",
        instead: "is_there",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "a partition whose reset was not answered is used again",
        file: RESET,
        text: "if status.observed_reset_generation < partition.spec.reset_generation {",
        instead: "if id.is_empty() {",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "controllers that refused are not remembered",
        file: UNSETTLED_ATTEMPTS,
        text: "(AttemptOutcome::Refused, error.clone())",
        instead: "(AttemptOutcome::Removed, error.clone())",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "another partition is made while Pods may use the old one",
        file: UNSETTLED_ATTEMPTS,
        text: "Blocker::InUse { .. } => false,",
        instead: "Blocker::InUse { .. } => true,",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "a controller that removes nothing holds up those who need another one",
        file: UNSETTLED_ATTEMPTS,
        text: "            | Blocker::Refusing { .. }
            | Blocker::Busy { .. } => true,",
        instead: "            => true,
            Blocker::Refusing { .. } | Blocker::Busy { .. } => false,",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "what a controller has lost is given to others while Pods use it",
        file: UNSETTLED_ATTEMPTS,
        text: "                missing_on: (*remote_state == RemoteState::Absent).then(|| controller.clone()),
            });",
        instead: "                missing_on: (*remote_state == RemoteState::Absent).then(|| controller.clone()),
            })
            .or_else(|blocker| match remote_state {
                RemoteState::Absent => Ok(write(gone(status, attempt))),
                _ => Err(blocker),
            });",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "what the operator may not see is taken for gone",
        file: UNSETTLED_ATTEMPTS,
        text: "RemoteState::Absent => return Ok(write(gone(status, attempt))),",
        instead: "RemoteState::Absent | RemoteState::Denied(_) => return Ok(write(gone(status, attempt))),",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "only the controller's own word counts for what it has free",
        file: "host/partitions/src/capacity.rs",
        text: "let ipus = unlisted.lost.saturating_add(unlisted.hidden).min(free);",
        instead: "let ipus = (unlisted.lost / 1_000).saturating_add(unlisted.hidden).min(free);",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "a controller that has lost something gives away as many IPUs as nobody holds",
        file: "host/partitions/src/capacity.rs",
        text: "let besides = if unlisted.is_lost() { free - ipus } else { 0 };",
        instead: "let besides = if unlisted.is_lost() && ipus > free { free - ipus } else { 0 };",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "a partition that is missing while it is reset is given up at once",
        file: LIFECYCLE,
        text: "            if is_missing_for_long(status, settings, now) =>",
        instead: "            if is_missing_for_long(status, settings, now)
                || status.phase == PartitionPhase::Resetting =>",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "time in which a controller cannot be asked counts as time in which a partition is missing",
        file: LIFECYCLE,
        text: "status_update::with_message(&status_update::without_missing(status), message)",
        instead: "status_update::with_message(status, message)",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "a partition that never forms is waited for",
        file: LIFECYCLE,
        text: "HealthState::Busy if is_late =>",
        instead: "HealthState::Busy if is_late && attempt.id.is_empty() =>",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "a reset that never ends is waited for",
        file: RESET,
        text: "        HealthState::Busy if is_busy_for_long(status, now) => {
            let message",
        instead: "        HealthState::Busy if is_busy_for_long(status, now) && id.is_empty() => {
            let message",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "a partition that stays busy under its users is waited for",
        file: LIFECYCLE,
        text: "        HealthState::Busy if is_busy_for_long(status, now) => {
            let (id, on)",
        instead: "        HealthState::Busy if is_busy_for_long(status, now) && settings.forming.is_zero() => {
            let (id, on)",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "nothing is kept for whoever has waited its limit",
        file: QUEUE,
        text: "} else if limits > 0 && lacks_capacity(earlier, views) {",
        instead: "} else if limits > 1_000 && lacks_capacity(earlier, views) {",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "nothing is reserved for a request that controllers refuse",
        file: QUEUE,
        text: "is_refused_for_long && suited.all(|view| view.used_ipus > 0)",
        instead: "is_refused_for_long && suited.all(|view| view.used_ipus > view.total_ipus)",
        found_by: SHARE_TESTS,
    },
    Mutation {
        name: "each large request drains a controller of its own",
        file: RESERVATIONS,
        text: "share(limits, suited.len()).saturating_sub(taken.unwrap_or(0))",
        instead: "share(limits, suited.len()).saturating_sub(taken.unwrap_or(0).min(0))",
        found_by: SHARE_TESTS,
    },
    Mutation {
        name: "a job that never ends makes a large request wait for weeks",
        file: RESERVATIONS,
        text: "(suited / SHARE).max(1) + limits / GROWTH;",
        instead: "(suited / SHARE).max(1) + limits / GROWTH / 168;",
        found_by: SHARE_TESTS,
    },
    Mutation {
        name: "what fitted before a reservation is not considered again",
        file: QUEUE,
        text: "considered.clear();",
        instead: "considered.retain(|_, _| true);",
        found_by: SHARE_TESTS,
    },
    Mutation {
        name: "a gang gets fewer controllers than it needs",
        file: RESERVATIONS,
        text: "let is_enough = taken.is_some() || partitions >= earlier.gang;",
        instead: "let is_enough = taken.is_some() || partitions >= 1;",
        found_by: SHARE_TESTS,
    },
    Mutation {
        name: "whoever came last is served first",
        file: QUEUE_ENTRY,
        text: "(&one.position, &one.name).cmp(&(&other.position, &other.name))",
        instead: "(&other.position, &other.name).cmp(&(&one.position, &one.name))",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "a gang holds what it has however long the rest is missing",
        file: LIFECYCLE,
        text: "if is_partial && has_waited => Some(format!(",
        instead: "if is_partial && has_waited && gang == 1 => Some(format!(",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "a partition in error is never removed by force",
        file: UNSETTLED_ATTEMPTS,
        text: "force: state == HealthState::Failed,",
        instead: "force: state == HealthState::Removing,",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "an id that somebody wrote by hand is taken for ours",
        file: UNSETTLED_ATTEMPTS,
        text: "is_claimed(attempt) && !is_ours",
        instead: "is_claimed(attempt) && !is_ours && attempt.id.is_empty()",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "the sweep takes what is not ours",
        file: ORPHANS,
        text: "if is_held(id) || !identity.marks(id) {",
        instead: "if is_held(id) || identity.tag().is_empty() {",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "an attempt that is not settled does not count as held",
        file: "host/api/src/ipupartition.rs",
        text: "AttemptOutcome::Unknown | AttemptOutcome::Created => true,",
        instead: "AttemptOutcome::Created => true,\n        AttemptOutcome::Unknown => false,",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "what stands in a status already is written again at each look",
        file: STEP,
        text: "if partition.status.as_ref() == Some(&desired) {",
        instead: "if partition.status.as_ref() == Some(&desired) && !matches!(requeue, Requeue::Steady) {",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "who has another name goes on under the old one",
        file: "host/partitions/src/steps.rs",
        text: "if let Some(updated) = updated {",
        instead: "if let Some(updated) = updated.filter(|_| self.taken > STEPS_MAX) {",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "what is on a controller that has left the list is taken for gone",
        file: UNSETTLED_ATTEMPTS,
        text: "        RemoteState::Absent => return Ok(write(gone(status, attempt))),
        RemoteState::Unreachable(reason)
        | RemoteState::Denied(reason)
        | RemoteState::NotListed(reason) => {",
        instead: "        RemoteState::Absent | RemoteState::NotListed(_) => return Ok(write(gone(status, attempt))),
        RemoteState::Unreachable(reason) | RemoteState::Denied(reason) => {",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "what a sweep cannot remove keeps it from the rest",
        file: "host/partitions/src/sweep/course.rs",
        text: "        self.errors.push(error);",
        instead: "        self.tasks.clear();
        self.errors.push(error);",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "a list whose token has expired is given up",
        file: "host/partitions/src/sweep/lists.rs",
        text: "if status.code == 410 && beginnings < BEGINNINGS => {",
        instead: "if status.code == 410 && beginnings > BEGINNINGS => {",
        found_by: SWEEP_TESTS,
    },
    Mutation {
        name: "a refusal of the future is fresh for as long as the clock was set back",
        file: "host/partitions/src/status_update/waiting.rs",
        text: "now.duration_since(started.0).abs() < REFUSAL_LIFETIME",
        instead: "now.duration_since(started.0) < REFUSAL_LIFETIME",
        found_by: FoundBy::Simulation,
    },
    Mutation {
        name: "a time that nobody has seen counts as if somebody had seen it",
        file: "host/partitions/src/accounting/account.rs",
        text: "let is_seen = now - from <= UNSEEN_AFTER;",
        instead: "let is_seen = now - from <= 1_000 * UNSEEN_AFTER;",
        found_by: ACCOUNTING_TESTS,
    },
    Mutation {
        name: "a part of a second is reported, and counted again by the next leader",
        file: "host/partitions/src/accounting/account.rs",
        text: "            self.open.push((from, now, states));",
        instead: "            self.count(from, now, &states);",
        found_by: ACCOUNTING_TESTS,
    },
];
