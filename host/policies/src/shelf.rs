//! The versions that one replica has ready, and what keeps it from others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ipu_api::ipupolicy::{BUILT_IN, Hook, IPUPolicy, Match, OnError};
use ipu_guest_host::Guest;
use ipu_text::sanitize;
use jiff::Timestamp;
use kube::ResourceExt;
use tokio::time::Instant;

use super::guests::{Entry, Roster, Tried};
use super::lineup::{Lineup, Member};
use super::matching::Matching;
use super::meter::Meter;
use super::report::{Asked, Problem, Report, Said, Wanted};

/// How long until a source that failed is asked again; twice as long after each failure.
const AGAIN: Duration = Duration::from_secs(2);

/// The longest of these pauses.
const AGAIN_MOST: Duration = Duration::from_mins(1);

/// A version of a policy: its UID and the generation of its spec.
pub type Version = (String, i64);

/// What one replica has ready.
#[derive(Debug, Default)]
pub struct Shelf {
    versions: BTreeMap<Version, Slot>,
    /// What `spec.match` of each version means, or why it means nothing.
    matchings: BTreeMap<Version, Read>,
}

/// What `spec.match` of a version means, or why it means nothing.
pub type Read = Result<Arc<Matching>, String>;

#[derive(Debug)]
enum Slot {
    Preparing,
    Ready(Ready),
    Failed {
        problem: Problem,
        tries: u32,
        again: Option<Instant>,
    },
}

/// A version that can be asked.
#[derive(Clone, Debug)]
pub struct Ready {
    /// The guest.
    pub guest: Guest,
    /// Digest of its module.
    pub digest: String,
    /// Which requests concern it.
    pub matching: Arc<Matching>,
    /// What happens where it gives no answer.
    pub on_error: OnError,
    /// Counts what becomes of its calls.
    pub meter: Arc<Meter>,
    /// Since when it is asked; none where it is not.
    pub asked_since: Option<Timestamp>,
}

/// Why a version cannot be made ready.
#[derive(Debug)]
pub struct Failure {
    /// In a sentence.
    pub reason: String,
    /// Whether it is refused; otherwise it is waited for.
    pub is_final: bool,
    /// Whether it is tried again, because something else than the version itself may change.
    pub mends: bool,
}

/// Most bytes of a reason. It may hold the words of a registry, and a replica whose Lease has more than
/// Kubernetes takes would seem to be gone.
const REASON: usize = 1_024;

impl Shelf {
    /// The versions whose `spec.match` was not read yet. Forgets what was read of all others.
    pub fn unread(
        &mut self,
        wanted: &[Wanted],
        members: &[Member],
    ) -> Vec<(Version, Option<Match>)> {
        let wanted = wanted
            .iter()
            .map(|one| (&one.uid, one.generation, &one.spec));
        let members = members
            .iter()
            .map(|one| (&one.uid, one.generation, &one.spec));
        let mut all: BTreeMap<Version, _> = wanted
            .chain(members)
            .map(|(uid, generation, spec)| ((uid.clone(), generation), spec.match_.clone()))
            .collect();
        self.matchings
            .retain(|version, _| all.contains_key(version));
        all.retain(|version, _| !self.matchings.contains_key(version));
        all.into_iter().collect()
    }

    /// Takes in what `spec.match` of a version means.
    pub fn read(&mut self, version: Version, read: Read) {
        self.matchings.insert(version, read);
    }

    /// What `spec.match` of a version means.
    pub fn matching(&self, version: &Version) -> Read {
        let read = self.matchings.get(version).cloned();
        read.unwrap_or_else(|| Err("spec.match was not read yet".to_owned()))
    }

    /// Forgets all but these, and answers those that are to be made ready now; from then on they are
    /// being made ready.
    pub fn begin(&mut self, wanted: Vec<Wanted>, now: Instant) -> Vec<Wanted> {
        let key = |wanted: &Wanted| (wanted.uid.clone(), wanted.generation);
        self.versions
            .retain(|version, _| wanted.iter().any(|wanted| key(wanted) == *version));
        let is_due = |slot: &Slot| match slot {
            Slot::Preparing | Slot::Ready(_) => false,
            Slot::Failed { again, .. } => again.is_some_and(|again| again <= now),
        };
        let mut due = wanted;
        due.retain(|wanted| self.versions.get(&key(wanted)).is_none_or(is_due));
        for wanted in &due {
            let slot = self.versions.entry(key(wanted)).or_insert(Slot::Preparing);
            // What failed before keeps saying so until it is ready.
            if let Slot::Failed { again, .. } = slot {
                *again = None;
            }
        }
        due
    }

    /// Takes in how making a version ready ended. What is no longer wanted is forgotten.
    pub fn end(&mut self, version: &Version, outcome: Result<Ready, Failure>, now: Instant) {
        let Some(slot) = self.versions.get_mut(version) else {
            return;
        };
        *slot = match outcome {
            Ok(ready) => Slot::Ready(ready),
            Err(failure) => {
                let before = match slot {
                    Slot::Failed { tries, .. } => *tries,
                    Slot::Preparing | Slot::Ready(_) => 0,
                };
                let pause = AGAIN.saturating_mul(1 << before.min(6)).min(AGAIN_MOST);
                Slot::Failed {
                    tries: before + 1,
                    again: failure.mends.then(|| now + pause),
                    problem: Problem {
                        reason: sanitize(&failure.reason, REASON),
                        is_final: failure.is_final,
                    },
                }
            }
        };
    }

    /// Whether one of these versions that decides is being made ready for the first time.
    pub fn is_loading(&self, members: &[Member]) -> bool {
        let mut members = members.iter().filter(|member| member.counts);
        members.any(|member| {
            let slot = self.versions.get(&(member.uid.clone(), member.generation));
            matches!(slot, Some(Slot::Preparing))
        })
    }

    /// When the next source is to be asked again.
    pub fn next(&self) -> Option<Instant> {
        let again = self.versions.values().filter_map(|slot| match slot {
            Slot::Failed { again, .. } => *again,
            Slot::Preparing | Slot::Ready(_) => None,
        });
        again.min()
    }

    /// Who is asked at a hook, and marks them as asked since `now` where they were not.
    pub fn roster(
        &mut self,
        lineup: &Lineup,
        members: &[Member],
        hook: Hook,
        now: Timestamp,
    ) -> Roster {
        let mut entry = |name: &String| -> Option<Entry> {
            if name == BUILT_IN {
                return Some(Entry::built_in(hook));
            }
            let member = members.iter().find(|member| member.name == *name)?;
            Some(self.entry(member, now))
        };
        let seats: Vec<Vec<Entry>> = lineup
            .seats
            .iter()
            .map(|seat| seat.guests.iter().filter_map(&mut entry).collect())
            .collect();
        let trials = lineup.trials.iter().filter_map(|trial| {
            let member = members.iter().find(|member| member.name == trial.guest)?;
            let is_against = |seat: &Vec<String>| {
                trial
                    .against
                    .as_ref()
                    .is_some_and(|against| seat.contains(against))
            };
            let seat = lineup
                .seats
                .iter()
                .position(|seat| is_against(&seat.guests));
            let after = lineup
                .seats
                .partition_point(|seat| seat.order <= trial.order);
            Some(Tried {
                entry: entry(&trial.guest)?,
                seat: seat.ok_or(after),
                share: member
                    .spec
                    .shadow
                    .and_then(|shadow| shadow.share_percent)
                    .unwrap_or(100),
            })
        });
        let trials = trials.collect();
        Roster { seats, trials }
    }

    fn entry(&mut self, member: &Member, now: Timestamp) -> Entry {
        let version = (member.uid.clone(), member.generation);
        let matching = self.matching(&version);
        match self.versions.get_mut(&version) {
            Some(Slot::Ready(ready)) => {
                ready.asked_since.get_or_insert(now);
                Entry {
                    name: member.name.as_str().into(),
                    guest: ready.guest.clone(),
                    matching: ready.matching.clone(),
                    on_error: ready.on_error,
                    meter: ready.meter.clone(),
                }
            }
            slot => {
                let reason = match slot {
                    Some(Slot::Failed { problem, .. }) => problem.reason.clone(),
                    _ => "its module is being loaded".to_owned(),
                };
                Entry {
                    name: member.name.as_str().into(),
                    guest: Guest::missing(&reason),
                    // What it concerns is known before its module is: nobody else is held up.
                    matching: matching.unwrap_or_default(),
                    on_error: member.spec.on_error(),
                    meter: Arc::default(),
                }
            }
        }
    }

    /// Ends being asked for all versions except the active ones.
    pub fn asked_are(&mut self, members: &[Member]) {
        for (version, slot) in &mut self.versions {
            let is_member = members
                .iter()
                .any(|member| (&member.uid, member.generation) == (&version.0, version.1));
            if let (Slot::Ready(ready), false) = (slot, is_member) {
                // A version that comes back begins to count anew.
                ready.asked_since = None;
                ready.meter = Arc::default();
            }
        }
    }

    /// What this replica says of all policies.
    pub fn report(&self, replica: &str, hooks: &[Hook], policies: &[IPUPolicy]) -> Report {
        let of = |policy: &IPUPolicy| {
            let uid = policy.uid()?;
            let mut said = Said::default();
            let range = (uid.clone(), i64::MIN)..=(uid.clone(), i64::MAX);
            for ((_, generation), slot) in self.versions.range(range) {
                match slot {
                    Slot::Preparing => {}
                    Slot::Failed { problem, .. } => {
                        said.problems.insert(*generation, problem.clone());
                    }
                    Slot::Ready(ready) => {
                        said.prepared.insert(*generation, ready.digest.clone());
                        if let Some(since) = ready.asked_since {
                            said.counts = ready.meter.counts();
                            said.asks = Some(Asked {
                                generation: *generation,
                                digest: ready.digest.clone(),
                                since,
                            });
                        }
                    }
                }
            }
            Some((uid, said))
        };
        let mine = policies
            .iter()
            .filter(|policy| hooks.contains(&policy.spec.hook));
        Report {
            replica: replica.to_owned(),
            hooks: hooks.to_vec(),
            policies: mine.filter_map(of).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version() -> Wanted {
        let spec = serde_json::json!({
            "hook": "Validation", "module": {"image": {"file": "validation.wasm"}},
        });
        Wanted {
            uid: "uid".to_owned(),
            generation: 1,
            spec: serde_json::from_value(spec).unwrap(),
        }
    }

    fn failure(reason: &str) -> Failure {
        Failure {
            reason: reason.to_owned(),
            is_final: false,
            mends: true,
        }
    }

    #[test]
    fn a_reason_is_cut_to_what_a_lease_holds() {
        let (mut shelf, now) = (Shelf::default(), Instant::now());
        assert_eq!(shelf.begin(vec![version()], now).len(), 1);
        let key = ("uid".to_owned(), 1);
        shelf.end(&key, Err(failure(&"é".repeat(1 << 20))), now);
        let Some(Slot::Failed { problem, .. }) = shelf.versions.get(&key) else {
            panic!("it has failed");
        };
        assert!(problem.reason.len() <= REASON && problem.reason.ends_with('…'));
    }

    #[test]
    fn an_active_version_is_waited_for_until_it_is_ready_or_has_failed() {
        let (mut shelf, now) = (Shelf::default(), Instant::now());
        let Wanted {
            uid,
            generation,
            spec,
        } = version();
        let member = Member {
            name: "policy".to_owned(),
            uid,
            generation,
            spec,
            created: None,
            counts: true,
        };
        let tried = Member {
            counts: false,
            ..member.clone()
        };
        let active = [member];
        assert!(!shelf.is_loading(&[]), "nothing is active");
        shelf.begin(vec![version()], now);
        assert!(shelf.is_loading(&active));
        assert!(!shelf.is_loading(&[tried]), "it decides nothing");
        let key = ("uid".to_owned(), 1);
        shelf.end(&key, Err(failure("down")), now);
        assert!(!shelf.is_loading(&active));
    }

    #[test]
    fn a_source_that_fails_is_asked_again_later_each_time() {
        let (mut shelf, mut now) = (Shelf::default(), Instant::now());
        let key = ("uid".to_owned(), 1);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            assert_eq!(shelf.begin(vec![version()], now).len(), 1);
            assert_eq!(
                shelf.begin(vec![version()], now).len(),
                0,
                "it is under way"
            );
            shelf.end(&key, Err(failure("down")), now);
            let again = shelf.next().unwrap();
            pauses.push(again.duration_since(now).as_secs());
            now = again;
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60, 60]);
    }
}
