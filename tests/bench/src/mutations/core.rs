//! Mistakes in the partition core.

use super::{FoundBy, Mutation, SAME_LIST, Tests};

/// The tables of the share of reserved controllers.
const SHARE_TESTS: FoundBy = FoundBy::Tests(Tests {
    package: "ipu-placement",
    named: "backfill::tests::share::",
    bound: None,
});

// Large bounds of the model check.
const PAIRED: &str = "one owner, two of six faults";
const CARELESS: &str = "a careless owner, a second use";
const CONTROLLER_FAULTS: &str = "one owner, two faults of controllers, and the grace passes";

const UNSETTLED_ATTEMPTS: &str = "host/ledger/src/unsettled_attempts.rs";
const BACKFILL: &str = "host/placement/src/backfill.rs";
const RESERVATIONS: &str = "host/placement/src/backfill/reservations.rs";
const QUEUE: &str = "host/placement/src/queue.rs";
const DESIRED: &str = "host/ledger/src/desired.rs";
const RESET: &str = "host/ledger/src/desired/reset.rs";
const NEXT_STEP: &str = "host/ledger/src/reconcile/next_step.rs";
const STEP: &str = "host/ledger/src/step.rs";
const OBSERVATIONS: &str = "host/ledger/src/observations.rs";
const DELETED: &str = "host/ledger/src/deleted.rs";
const NAMING: &str = "host/api/src/naming.rs";

/// Every mistake in the core that is tried.
pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "the fence is dropped: every replica that finds an intent acts on it",
        file: UNSETTLED_ATTEMPTS,
        text: "if is_wanted && observations.may(&Intent::Create(id.to_owned())) {",
        instead: "if is_wanted && observations.created(id).is_none() {",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "the intent is written after the call",
        file: DESIRED,
        text: "Step::Record(Box::new(begun), Intent::Create(id))",
        instead: "match (observations.created(&id), begun.attempts.last()) {
                (None, Some(attempt)) => Step::Create(attempt.clone()),
                _ => write(begun),
            }",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "another controller is tried after an unknown outcome, without a check of the first",
        file: UNSETTLED_ATTEMPTS,
        text: "None => Ok(Step::ReadState(attempt.clone())),",
        instead: "None => Err(unknown(attempt, &RemoteState::Absent, \"it was not asked\")),",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "an attempt whose outcome cannot be read is forgotten",
        file: UNSETTLED_ATTEMPTS,
        text: ") => Err(unknown(attempt, remote_state, reason)),",
        instead: ") => Ok(write(not_made(status, attempt, observations))),",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "the id does not contain the generation",
        file: NAMING,
        text: "                &generation.to_string(),",
        instead: "                &(generation - generation).to_string(),",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "the id does not contain the object's UID",
        file: NAMING,
        text: "                request,\n                &generation.to_string(),",
        instead: "                &request[..0],\n                &generation.to_string(),",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "the id contains nothing that survives a restore",
        file: NAMING,
        text: "                &nonce.to_string(),",
        instead: "                &(nonce - nonce).to_string(),",
        found_by: FoundBy::Simulation("the model restores nothing from a backup"),
    },
    Mutation {
        name: "a release does not recognise partitions that another release left",
        file: NAMING,
        text: "tag: hash(&[cluster], TAG),",
        instead: "tag: hash(&[cluster, namespace], TAG),",
        found_by: FoundBy::Bound(PAIRED),
    },
    Mutation {
        name: "a partition of another cluster or release is released",
        file: NEXT_STEP,
        text: "if is_ours && let Some(status) = unsettled_attempts::disowned(partition, now) {",
        instead: "let before = partition.status.clone().unwrap_or_default();
    let mut marked = before.clone();
    for one in before.attempts.iter().filter(|one| one.is_held()) {
        if !settings.identity.marks(&one.id) {
            marked = crate::status::disowned(&marked, &one.id, now);
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
        name: "users are not counted again after the write of the intent",
        file: OBSERVATIONS,
        text: "            Observation::Recorded(intent) => {
                self.users.clear();",
        instead: "            Observation::Recorded(intent) => {",
        found_by: FoundBy::Bound(CARELESS),
    },
    Mutation {
        name: "users are not counted again after the write of a status",
        file: OBSERVATIONS,
        text: "Observation::Written => self.users.clear(),",
        instead: "Observation::Written => {}",
        found_by: FoundBy::Simulation("the model has neither drains nor gangs"),
    },
    Mutation {
        name: "a partition is reset although the last count has found Pods",
        file: RESET,
        text: "Some(pods) => write(status::reset_put_off(status, waits(id, pods))),",
        instead: "Some(_) => Step::Reset(attempt.clone()),",
        found_by: FoundBy::Bound(CARELESS),
    },
    Mutation {
        name: "the object is deleted while attempts are unsettled",
        file: DELETED,
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
        found_by: FoundBy::Bound(PAIRED),
    },
    Mutation {
        name: "refusals of controllers are not recorded",
        file: UNSETTLED_ATTEMPTS,
        text: "status::refused(status, id, Some(error), is_exhausted)",
        instead: "match is_exhausted {
                _ => status::with_outcome(status, id, AttemptOutcome::Removed, Some(error)),
            }",
        found_by: FoundBy::Simulation("a controller of the model refuses a request once only"),
    },
    Mutation {
        name: "another partition is created while Pods may use the old one",
        file: UNSETTLED_ATTEMPTS,
        text: "Blocker::InUse { .. } => false,",
        instead: "Blocker::InUse { .. } => true,",
        found_by: FoundBy::Bound("a careless owner, any fault, and a second use"),
    },
    Mutation {
        name: "a controller that removes nothing delays requests for others",
        file: UNSETTLED_ATTEMPTS,
        text: "            | Blocker::Refusing { .. }
            | Blocker::Busy { .. } => true,",
        instead: "            => true,
            Blocker::Refusing { .. } | Blocker::Busy { .. } => false,",
        found_by: FoundBy::Simulation("no controller of the model refuses all removals"),
    },
    Mutation {
        name: "IPUs of a partition that a controller has lost are allocated again while Pods use them",
        file: UNSETTLED_ATTEMPTS,
        text: "                missing_on: (*remote_state == RemoteState::Absent).then(|| controller.clone()),
            });",
        instead: "                missing_on: (*remote_state == RemoteState::Absent).then(|| controller.clone()),
            })
            .or_else(|blocker| match remote_state {
                RemoteState::Absent => Ok(write(removed(status, attempt))),
                _ => Err(blocker),
            });",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "a hidden partition counts as gone",
        file: UNSETTLED_ATTEMPTS,
        text: "RemoteState::Absent => return Ok(write(removed(status, attempt))),",
        instead: "RemoteState::Absent | RemoteState::Denied(_) => return Ok(write(removed(status, attempt))),",
        found_by: FoundBy::Bound(PAIRED),
    },
    Mutation {
        name: "only the controller's own figure counts as its free capacity",
        file: "host/placement/src/allocations.rs",
        text: "let ipus = unlisted.lost.saturating_add(unlisted.hidden).min(free);",
        instead: "let ipus = (unlisted.lost / 1_000).saturating_add(unlisted.hidden).min(free);",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "a controller that has lost partitions offers all IPUs without an allocation",
        file: "host/placement/src/allocations.rs",
        text: "let besides = if unlisted.is_lost() { free - ipus } else { 0 };",
        instead: "let besides = if unlisted.is_lost() && ipus > free { free - ipus } else { 0 };",
        found_by: FoundBy::Simulation("the model check adds up IPUs and does not number them"),
    },
    Mutation {
        name: "a partition that is missing during a reset is abandoned at once",
        file: DESIRED,
        text: "            if is_missing_for_long(status, settings, now) =>",
        instead: "            if is_missing_for_long(status, settings, now)
                || status.phase == PartitionPhase::Resetting =>",
        found_by: FoundBy::Bound(CONTROLLER_FAULTS),
    },
    Mutation {
        name: "time in which a controller is unreachable counts as time in which a partition is missing",
        file: DESIRED,
        text: "status::with_message(&status::without_missing(status), message)",
        instead: "status::with_message(status, message)",
        found_by: FoundBy::Bound(CONTROLLER_FAULTS),
    },
    Mutation {
        name: "a partition that never forms is waited for",
        file: DESIRED,
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
        found_by: FoundBy::Bound(CONTROLLER_FAULTS),
    },
    Mutation {
        name: "a partition that stays busy under its users is waited for",
        file: DESIRED,
        text: "        HealthState::Busy if is_busy_for_long(status, now) => {
            let (id, on)",
        instead: "        HealthState::Busy if is_busy_for_long(status, now) && settings.forming.is_zero() => {
            let (id, on)",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "nothing is reserved for a request that has waited for the limit",
        file: BACKFILL,
        text: "} else if wait.limits() > 0 && lacks_capacity(earlier, views) {",
        instead: "} else if wait.limits() > 1_000 && lacks_capacity(earlier, views) {",
        found_by: FoundBy::Simulation("the queue of the model has no clock"),
    },
    Mutation {
        name: "nothing is reserved for a request that controllers refuse",
        file: BACKFILL,
        text: "&& suited().all(|view| view.used_ipus > 0)",
        instead: "&& suited().all(|view| view.used_ipus > view.total_ipus)",
        found_by: SHARE_TESTS,
    },
    Mutation {
        name: "each large request drains a controller of its own",
        file: RESERVATIONS,
        text: "share(wait, suited.len()).saturating_sub(taken.unwrap_or(0))",
        instead: "share(wait, suited.len()).saturating_sub(taken.unwrap_or(0).min(0))",
        found_by: SHARE_TESTS,
    },
    Mutation {
        name: "one request for each controller reserves the whole cluster",
        file: RESERVATIONS,
        text: "most = most.min(left);",
        instead: "most = most.min(left.max(1));",
        found_by: SHARE_TESTS,
    },
    Mutation {
        name: "a job that never ends makes a large request wait for weeks",
        file: RESERVATIONS,
        text: "(suited / SHARE).max(1) + wait.weeks();",
        instead: "(suited / SHARE).max(1) + wait.weeks() / 168;",
        found_by: SHARE_TESTS,
    },
    Mutation {
        name: "a request that only one controller suits keeps all others from it",
        file: RESERVATIONS,
        text: "chosen.len() == suited.len() && !wait.may_have_all();",
        instead: "chosen.len() > suited.len() && !wait.may_have_all();",
        found_by: SHARE_TESTS,
    },
    Mutation {
        name: "capacity from before a reservation is not considered again",
        file: BACKFILL,
        text: "considered.clear();",
        instead: "considered.retain(|_, _| true);",
        found_by: SHARE_TESTS,
    },
    Mutation {
        name: "a gang gets fewer controllers than it needs",
        file: RESERVATIONS,
        text: "let is_enough = !is_earliest || partitions >= earlier.gang;",
        instead: "let is_enough = !is_earliest || partitions >= 1;",
        found_by: SHARE_TESTS,
    },
    Mutation {
        name: "the latest request is served first",
        file: QUEUE,
        text: "(&one.position, &one.name).cmp(&(&other.position, &other.name))",
        instead: "(&other.position, &other.name).cmp(&(&one.position, &one.name))",
        found_by: FoundBy::Simulation("the model check has no rule for the order of requests"),
    },
    Mutation {
        name: "a gang never releases its partitions, no matter how long the others are missing",
        file: DESIRED,
        text: "if is_partial && has_waited => Some(format!(",
        instead: "if is_partial && has_waited && gang == 1 => Some(format!(",
        found_by: FoundBy::Simulation("an owner of the model has one partition"),
    },
    Mutation {
        name: "a partition in error is never removed by force",
        file: UNSETTLED_ATTEMPTS,
        text: "force: state == HealthState::Failed,",
        instead: "force: state == HealthState::Removing,",
        found_by: FoundBy::Bound(CONTROLLER_FAULTS),
    },
    Mutation {
        name: "an id that a user has chosen counts as the operator's",
        file: UNSETTLED_ATTEMPTS,
        text: "is_claimed(attempt) && !is_ours",
        instead: "is_claimed(attempt) && !is_ours && attempt.id.is_empty()",
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
        name: "an unchanged status is written again at each reconcile",
        file: STEP,
        text: "if partition.status.as_ref() == Some(&desired) {",
        instead: "if partition.status.as_ref() == Some(&desired) && !matches!(requeue, Requeue::Steady) {",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "a partition keeps the old name of its controller",
        file: "host/ledger/src/reconcile.rs",
        text: "if let Some(updated) = updated {",
        instead: "if let Some(updated) = updated.filter(|_| self.taken > STEPS_MAX) {",
        found_by: FoundBy::Simulation(SAME_LIST),
    },
    Mutation {
        name: "a partition on a controller that has left the list counts as gone",
        file: UNSETTLED_ATTEMPTS,
        text: "        RemoteState::Absent => return Ok(write(removed(status, attempt))),
        RemoteState::Unreachable(reason)
        | RemoteState::Denied(reason)
        | RemoteState::NotListed(reason) => {",
        instead: "        RemoteState::Absent | RemoteState::NotListed(_) => return Ok(write(removed(status, attempt))),
        RemoteState::Unreachable(reason) | RemoteState::Denied(reason) => {",
        found_by: FoundBy::Simulation(SAME_LIST),
    },
    Mutation {
        name: "a refusal from the future stays fresh after the clock is set back",
        file: "host/ledger/src/status/waiting.rs",
        text: "now.duration_since(started.0).abs() < REFUSAL_LIFETIME",
        instead: "now.duration_since(started.0) < REFUSAL_LIFETIME",
        found_by: FoundBy::Simulation("the clock of the model is never set back"),
    },
];
