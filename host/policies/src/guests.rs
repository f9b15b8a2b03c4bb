//! The guests that this process asks now: for each hook one line-up, exchanged as a whole, so that one
//! request is served wholly by one version of all of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ipu_api::ipupolicy::{BUILT_IN, Hook, OnError};
use ipu_guest_host::model::ModuleDigest;
use ipu_guest_host::{Guest, Policies};
use parking_lot::RwLock;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::judging::Judges;
use super::matching::Matching;
use super::meter::Meter;

/// Comparisons that are under way at once: they must not take the turns of answers that count.
pub const COMPARED_AT_ONCE: usize = 2;

/// Longest time that a process waits for the active policies before it decides without those that are
/// missing.
const PATIENCE: Duration = Duration::from_secs(30);

/// The guests that this process asks now. Cheap to clone; all clones ask the same.
#[derive(Clone)]
pub struct Guests {
    policies: Policies,
    rosters: Arc<RwLock<HashMap<Hook, Arc<Roster>>>>,
    loaded: Arc<watch::Sender<bool>>,
    comparing: Arc<Semaphore>,
    judges: Judges,
}

/// Who is asked at one hook.
#[derive(Debug, Default)]
pub struct Roster {
    /// In this order: the first of each seat that the request concerns.
    pub seats: Vec<Vec<Entry>>,
    /// Whose answers are compared.
    pub trials: Vec<Tried>,
}

/// A guest with what its policy says of when it is asked.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Name of the IPUPolicy, or [`BUILT_IN`].
    pub name: Arc<str>,
    /// The guest.
    pub guest: Guest,
    /// Which requests concern it.
    pub matching: Arc<Matching>,
    /// What happens where it gives no answer.
    pub on_error: OnError,
    /// Counts what becomes of its calls.
    pub meter: Arc<Meter>,
}

/// A guest whose answers are compared.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The guest.
    pub entry: Entry,
    /// The seat in which the answer comes about that it is compared with; none where it would have a
    /// seat of its own, after so many others.
    pub seat: Result<usize, usize>,
    /// Share of the requests, in percent.
    pub share: u32,
}

impl Guests {
    /// The built-in guests alone.
    pub fn new(policies: Policies) -> Self {
        Self {
            policies,
            rosters: Arc::default(),
            loaded: Arc::new(watch::Sender::new(false)),
            comparing: Arc::new(Semaphore::new(COMPARED_AT_ONCE)),
            judges: Judges::default(),
        }
    }

    /// Puts another line-up in the place of the one before; requests under way keep theirs.
    pub fn put(&self, hook: Hook, roster: Roster) {
        let asked = roster.digests();
        let before = {
            let mut rosters = self.rosters.write();
            rosters.insert(hook, Arc::new(roster))
        };
        let before = before.map_or_else(|| vec![None], |before| before.digests());
        if before != asked {
            self.policies.calls().swapped(hook.into());
        }
    }

    /// Who is asked at a hook.
    pub fn roster(&self, hook: Hook) -> Arc<Roster> {
        let rosters = self.rosters.read();
        let found = rosters.get(&hook).cloned();
        found.unwrap_or_else(|| {
            Arc::new(Roster {
                seats: vec![vec![Entry::built_in(hook)]],
                trials: Vec::new(),
            })
        })
    }

    /// Waits until each active policy is loaded, or cannot be, so that a process that has just been
    /// started does not pass them by. Ends after a while in any case.
    pub async fn loaded(&self) {
        let mut loaded = self.loaded.subscribe();
        let loaded = loaded.wait_for(|is_loaded| *is_loaded);
        if timeout(PATIENCE, loaded).await.is_err() {
            tracing::warn!(
                "not every active IPUPolicy is loaded; continuing without the missing ones"
            );
        }
    }

    /// Each active policy is loaded, or cannot be.
    pub(super) fn set_loaded(&self) {
        self.loaded.send_replace(true);
    }

    /// Where modules are loaded and called.
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// Who judges which requests concern a policy.
    pub fn judges(&self) -> &Judges {
        &self.judges
    }

    /// Room for comparisons.
    pub fn comparing(&self) -> &Arc<Semaphore> {
        &self.comparing
    }
}

impl Roster {
    /// The modules whose answers count, in the order in which they are asked; none stands for a
    /// built-in one.
    fn digests(&self) -> Vec<Option<ModuleDigest>> {
        let entries = self.seats.iter().flatten();
        entries.map(|entry| entry.guest.digest().cloned()).collect()
    }
}

impl Entry {
    /// The built-in guest of a hook.
    pub fn built_in(hook: Hook) -> Self {
        Self {
            name: BUILT_IN.into(),
            guest: ipu_guest_host::BUILT_IN.clone(),
            matching: Arc::default(),
            on_error: match hook {
                Hook::Defaulting | Hook::Validation => OnError::Fail,
                Hook::Placement => OnError::Fallback,
            },
            meter: Arc::default(),
        }
    }
}

/// Whether a request is in the share that is compared: chosen by what it is called, so that it is the
/// same in every replica.
pub fn is_in_share(share: u32, request: &str) -> bool {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(request);
    let number = u32::from(digest[0]) << 8 | u32::from(digest[1]);
    number % 100 < share
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, poll};

    use super::*;
    use ipu_guest_host::PolicyOptions;

    #[tokio::test]
    async fn a_process_waits_until_what_is_active_is_loaded() {
        let policies = Policies::open(PolicyOptions::default());
        let guests = Guests::new(policies.await.unwrap());
        let mut waiting = Box::pin(guests.loaded());
        assert!(poll!(&mut waiting).is_pending());
        guests.set_loaded();
        assert!(poll!(&mut waiting).is_ready());
        assert!(guests.loaded().now_or_never().is_some());
    }

    #[test]
    fn a_share_is_about_as_large_as_it_says() {
        let chosen = |share| {
            let requests = 0..10_000;
            let chosen = requests.filter(|number| is_in_share(share, &format!("uid-{number}")));
            chosen.count()
        };
        assert_eq!((chosen(100), chosen(0)), (10_000, 0));
        let tenth = chosen(10);
        assert!((800..1_200).contains(&tenth), "{tenth}");
    }
}
