//! Mistakes that somebody could make in the partition core, each of which its simulation has to find.

/// One mistake: a text of a file, and what is written instead.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// What it breaks, in a few words.
    pub name: &'static str,
    /// The file, from the top of the repository.
    pub file: &'static str,
    /// What stands there, exactly once.
    pub text: &'static str,
    /// What stands there instead.
    pub instead: &'static str,
}

const LEFTOVERS: &str = "host/src/partition/leftovers.rs";
const LINE: &str = "host/src/partition/line.rs";
const WAITER: &str = "host/src/partition/line/waiter.rs";
const WANTED: &str = "host/src/partition/wanted.rs";
const RESET: &str = "host/src/partition/wanted/reset.rs";
const STEP: &str = "host/src/partition/step.rs";
const KNOWLEDGE: &str = "host/src/partition/knowledge.rs";
const ORPHANS: &str = "host/src/partition/orphans.rs";
const RELEASE: &str = "host/src/partition/release.rs";
const NAMES: &str = "host/src/names.rs";

/// Every mistake that is tried.
pub const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "the fence is dropped: whoever finds an intent acts on it",
        file: LEFTOVERS,
        text: "if is_wanted && knowledge.may(&Intent::Create(id.to_owned())) {",
        instead: "if is_wanted && knowledge.created(id).is_none() {",
    },
    Mutation {
        name: "the intent is written down after the deed",
        file: WANTED,
        text: "Step::Record(Box::new(begun), Intent::Create(id))",
        instead: "match (knowledge.created(&id), begun.attempts.last()) {
                (None, Some(attempt)) => Step::Create(attempt.clone()),
                _ => write(begun),
            }",
    },
    Mutation {
        name: "the sweep knows no grace",
        file: ORPHANS,
        text: "if suspects.contains_key(&place) && now.duration_since(since) >= grace {",
        instead: "if now.duration_since(since) >= grace - grace {",
    },
    Mutation {
        name: "another controller is asked after an unknown outcome, without asking the first",
        file: LEFTOVERS,
        text: "None => Ok(Step::AskTruth(attempt.clone())),",
        instead: "None => Err(unreachable(attempt, \"it was not asked\")),",
    },
    Mutation {
        name: "an attempt whose truth cannot be asked is forgotten",
        file: LEFTOVERS,
        text: "Some(Truth::Unreachable(reason)) => Err(unreachable(attempt, reason)),",
        instead: "Some(Truth::Unreachable(_)) => Ok(write(not_made(status, attempt, knowledge))),",
    },
    Mutation {
        name: "the id does not hold the generation",
        file: NAMES,
        text: "            &generation.to_string(),",
        instead: "            &(generation - generation).to_string(),",
    },
    Mutation {
        name: "the id does not hold the object's UID",
        file: NAMES,
        text: "            request,\n            &generation.to_string(),",
        instead: "            &request[..0],\n            &generation.to_string(),",
    },
    Mutation {
        name: "a partition is removed without counting its users",
        file: LEFTOVERS,
        text: "        None => return Ok(Step::CountUsers(id.to_owned())),
        Some([]) => {}",
        instead: "        None | Some([]) => {}",
    },
    Mutation {
        name: "users are not counted again after the intent was written down",
        file: KNOWLEDGE,
        text: "            Fact::Recorded(intent) => {
                self.users.clear();",
        instead: "            Fact::Recorded(intent) => {",
    },
    Mutation {
        name: "users are not counted again after a status was written",
        file: KNOWLEDGE,
        text: "Fact::Written => self.users.clear(),",
        instead: "Fact::Written => {}",
    },
    Mutation {
        name: "a partition is reset although the last count has found Pods",
        file: RESET,
        text: "Some(pods) => write(record::reset_put_off(status, waits(id, pods))),",
        instead: "Some(_) => Step::Reset(attempt.clone()),",
    },
    Mutation {
        name: "the object goes while attempts are held",
        file: RELEASE,
        text: "if obstacles.is_empty() || is_forced(partition) {",
        instead: "if obstacles.len() < 9 || is_forced(partition) {",
    },
    Mutation {
        name: "an attempt is adopted although the slot has a partition",
        file: LEFTOVERS,
        text: "is_vacant(status) && is_there",
        instead: "is_there",
    },
    Mutation {
        name: "a partition whose reset was not answered is used again",
        file: RESET,
        text: "if status.observed_reset_generation < partition.spec.reset_generation {",
        instead: "if id.is_empty() {",
    },
    Mutation {
        name: "controllers that refused are not remembered",
        file: LEFTOVERS,
        text: "(AttemptOutcome::Refused, error.clone())",
        instead: "(AttemptOutcome::Removed, error.clone())",
    },
    Mutation {
        name: "another partition is made while Pods may use the old one",
        file: LEFTOVERS,
        text: "Obstacle::InUse { .. } | Obstacle::Refusing { .. } | Obstacle::Busy { .. } => false,",
        instead: "Obstacle::InUse { .. } | Obstacle::Refusing { .. } | Obstacle::Busy { .. } => true,",
    },
    Mutation {
        name: "a partition that never forms is waited for",
        file: WANTED,
        text: "SeenState::Busy if is_late =>",
        instead: "SeenState::Busy if is_late && attempt.id.is_empty() =>",
    },
    Mutation {
        name: "a reset that never ends is waited for",
        file: RESET,
        text: "        SeenState::Busy if is_busy_for_long(status, now) => {
            let message",
        instead: "        SeenState::Busy if is_busy_for_long(status, now) && id.is_empty() => {
            let message",
    },
    Mutation {
        name: "a partition that stays busy under its users is waited for",
        file: WANTED,
        text: "        SeenState::Busy if is_busy_for_long(status, now) => {
            let (id, on)",
        instead: "        SeenState::Busy if is_busy_for_long(status, now) && settings.forming.is_zero() => {
            let (id, on)",
    },
    Mutation {
        name: "nothing is kept for whoever has waited its limit",
        file: LINE,
        text: "} else if limits > 0 && lacks_room(elder, &views) {",
        instead: "} else if limits > 1_000 && lacks_room(elder, &views) {",
    },
    Mutation {
        name: "whoever came last is served first",
        file: WAITER,
        text: "(&one.place, &one.name).cmp(&(&other.place, &other.name))",
        instead: "(&other.place, &other.name).cmp(&(&one.place, &one.name))",
    },
    Mutation {
        name: "a gang holds what it has however long the rest is missing",
        file: WANTED,
        text: "if surroundings.held < gang && has_waited => Some(format!(",
        instead: "if surroundings.held < gang && has_waited && gang == 1 => Some(format!(",
    },
    Mutation {
        name: "a partition in error is never removed by force",
        file: LEFTOVERS,
        text: "force: state == SeenState::Failed,",
        instead: "force: state == SeenState::Removing,",
    },
    Mutation {
        name: "an id that somebody wrote by hand is taken for ours",
        file: LEFTOVERS,
        text: "is_claimed(attempt) && !is_ours",
        instead: "is_claimed(attempt) && !is_ours && attempt.id.is_empty()",
    },
    Mutation {
        name: "the sweep takes what is not ours",
        file: ORPHANS,
        text: "if is_held(id) || !names::is_of_installation(id, installation) {",
        instead: "if is_held(id) || installation.is_empty() {",
    },
    Mutation {
        name: "an attempt that is not settled does not count as held",
        file: "host/src/partition/record.rs",
        text: "AttemptOutcome::Unknown | AttemptOutcome::Created => true,",
        instead: "AttemptOutcome::Created => true,\n        AttemptOutcome::Unknown => false,",
    },
    Mutation {
        name: "what stands in a status already is written again at each look",
        file: STEP,
        text: "if partition.status.as_ref() == Some(&wished) {",
        instead: "if partition.status.as_ref() == Some(&wished) && !matches!(pace, Pace::Steady) {",
    },
];
