//! Who waits for a controller now, and who of them was not asked yet since room was made.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipu_api::ipupartition::IPUPartition;
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};

use super::cache::Brief;
use super::line::{ASKS, Waiter};
use super::recent::Recent;
use super::watched::Watched;

/// How old the line may be, and what is on a controller that is drained: to read that for each of
/// thousands would take too long.
const AGE: Duration = Duration::from_millis(250);

/// How long after it was told somebody may still be about to ask for what it was told to take.
const TAKING: Duration = Duration::from_secs(15);

/// The line of those who wait.
#[derive(Debug)]
pub(super) struct Turns {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    room_made: Instant,
    /// Who was asked lately where it fits.
    asked: Recent<()>,
    line: Option<(Instant, Arc<[Waiter]>)>,
    /// All on one controller that is drained, and when they were read.
    drained: Option<(Instant, Arc<str>, Arc<[IPUPartition]>)>,
    /// What each was told to take and is not made yet, and when it was told, by its UID.
    taking: HashMap<String, (Instant, String, u32)>,
}

impl Turns {
    /// A line in which nobody was asked yet.
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                room_made: Instant::now(),
                asked: Recent::new(ASKS),
                line: None,
                drained: None,
                taking: HashMap::new(),
            }),
        }
    }

    /// IPUs were given back, or the list of controllers changed.
    pub(super) fn room_was_made(&self) {
        let mut state = self.state();
        state.room_made = Instant::now();
        state.line = None;
    }

    /// It was asked where the one of this UID fits.
    pub(super) fn was_asked(&self, uid: &str) {
        let mut state = self.state();
        state.asked.note(uid, (), Instant::now());
        // What it takes shows in the controllers' room before the watch tells that it waits no more:
        // to set it aside once more would leave nothing to the others.
        let Some((_, line)) = &mut state.line else {
            return;
        };
        let is_it = |waiter: &Waiter| waiter.is_next && waiter.uid == uid;
        if let Some(index) = line.iter().position(is_it) {
            Arc::make_mut(line)[index].is_next = false;
        }
    }

    /// The one of this UID was told to take so many IPUs of this controller: nobody else finds them
    /// until they were asked for there.
    pub(super) fn takes(&self, uid: &str, controller: &str, ipus: u32) {
        let told = (Instant::now(), controller.to_owned(), ipus);
        self.state().taking.insert(uid.to_owned(), told);
    }

    /// What the one of this UID was told to take was asked for: the controller tells what is left.
    pub(super) fn has_asked(&self, uid: &str) {
        self.state().taking.remove(uid);
    }

    /// What all but the one of this UID were told to take, and have not asked for yet.
    pub(super) fn taken(&self, uid: &str) -> Vec<(String, u32)> {
        let mut state = self.state();
        // Whoever could not write it down begins anew, and may be told something else.
        state.taking.retain(|_, (told, ..)| told.elapsed() < TAKING);
        let others = state.taking.iter().filter(|(other, _)| *other != uid);
        others
            .map(|(_, (_, name, ipus))| (name.clone(), *ipus))
            .collect()
    }

    /// The one of this UID is gone.
    pub(super) fn forget(&self, uid: &str) {
        let mut state = self.state();
        state.asked.forget(uid);
        state.taking.remove(uid);
    }

    /// Those who wait, in order.
    pub(super) fn line(&self, watched: &Watched, now: Timestamp) -> Arc<[Waiter]> {
        let mut state = self.state();
        if let Some((read, line)) = &state.line
            && read.elapsed() < AGE
        {
            return line.clone();
        }
        let mut line = watched.read(|cache| cache.line(now));
        let room_made = state.room_made.elapsed();
        for waiter in &mut line {
            let asked = state.asked.of(&waiter.uid);
            let asked = asked.map(|((), at)| at.elapsed());
            waiter.stand(asked, room_made);
        }
        let line: Arc<[Waiter]> = line.into();
        state.line = Some((Instant::now(), line.clone()));
        line
    }

    /// All that a controller has which is drained. Each of them looks at all others again and again.
    pub(super) fn on_drained(&self, watched: &Watched, controller: &str) -> Arc<[IPUPartition]> {
        let mut state = self.state();
        if let Some((read, name, found)) = &state.drained
            && read.elapsed() < AGE
            && **name == *controller
        {
            return found.clone();
        }
        let is_there = |one: &Brief| one.controller.as_deref() == Some(controller);
        let found: Arc<[_]> = watched.read(|cache| cache.some(is_there)).into();
        state.drained = Some((Instant::now(), controller.into(), found.clone()));
        found
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of it is whole before the next one begins.
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;
    use crate::Guarded;
    use crate::watched::watched;
    use ipu_policies::namespace_usage::namespaces;
    use ipu_runtime::scope::Scope;

    /// An IPUPartition as the API server holds it.
    fn object(name: &str, status: &Value) -> Event<Guarded> {
        let object = json!({
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
            "metadata": {"name": name, "uid": name},
            "spec": {
                "owner": {
                    "apiVersion": "v1", "kind": "K", "namespace": "default",
                    "name": name, "uid": name,
                },
                "slot": 0, "ipus": 4, "gcds": 1,
            },
            "status": status,
        });
        Event::Apply(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn whoever_was_asked_is_not_given_precedence_by_a_line_that_was_read_before() {
        let (watched, watch) = watched(namespaces().0, Scope::default());
        for name in ["elder", "younger"] {
            watch.hear(object(name, &Value::Null));
        }
        let turns = Turns::new();
        let next = || -> Vec<(String, bool)> {
            let line = turns.line(&watched, Timestamp::UNIX_EPOCH);
            let one = |waiter: &Waiter| (waiter.name.clone(), waiter.is_next);
            line.iter().map(one).collect()
        };
        let both =
            |elder, younger| vec![("elder".to_owned(), elder), ("younger".to_owned(), younger)];
        assert_eq!(next(), both(true, true));
        turns.was_asked("elder");
        assert_eq!(next(), both(false, true), "whatever age the line may have");
        turns.room_was_made();
        assert_eq!(next(), both(true, true));
    }

    #[test]
    fn all_on_the_controller_that_is_asked_for_are_found() {
        let (watched, watch) = watched(namespaces().0, Scope::default());
        for (name, controller) in [("a", "pod1"), ("b", "pod2"), ("c", "pod1")] {
            let status = json!({"phase": "Ready", "partitionId": name, "controller": {
                "name": controller, "host": controller, "port": 1,
                "labelKey": "ipunode", "labelValue": controller,
            }});
            watch.hear(object(name, &status));
        }
        let turns = Turns::new();
        for (controller, expected) in [
            ("pod1", vec!["a", "c"]),
            ("pod2", vec!["b"]),
            ("pod3", vec![]),
        ] {
            let found = turns.on_drained(&watched, controller);
            let names: Vec<_> = found
                .iter()
                .filter_map(|one| one.metadata.name.as_deref())
                .collect();
            assert_eq!(names, expected, "{controller}");
        }
    }
}
