//! The inventory of one controller: its last reading, the read in progress, and the changes since.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use ipu_api::uid::Uid;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use crate::error::VipuError;
use crate::model::{Inventory, ListedPartition};

/// Time without calls to a controller that did not answer.
const FAILURE_AGE: Duration = Duration::from_secs(10);

/// Time from the beginning of a read after which `soon` waits for it no longer.
const SHORT_WAIT: Duration = Duration::from_millis(500);

/// Age up to which `soon` returns the last reading of a controller that has not answered yet.
const LAST_AGE: Duration = Duration::from_secs(30);

/// Age up to which the version of an answering controller is valid.
const VERSION_AGE: Duration = Duration::from_mins(10);

/// Time for which the agreement of a controller to remove a partition is kept. The controller lists
/// the partition for a while, and then the IPUPartition takes a moment to reflect the removal.
const REMOVED_AGE: Duration = Duration::from_mins(10);

/// An inventory with the changes since its read, or the error of the read.
pub(super) type Answer = Result<Inventory, Arc<VipuError>>;

/// A read of the inventory.
pub(super) type ReadFuture = BoxFuture<'static, Result<Inventory, VipuError>>;

/// The cached state of one controller.
#[derive(Debug, Default)]
pub(super) struct ControllerCache {
    state: Mutex<State>,
    version: Mutex<Version>,
    late_answers: Arc<Notify>,
}

/// The readings, and the changes on a controller. They have one lock, so that a reading is never
/// combined with the changes of another one.
#[derive(Debug, Default)]
pub(super) struct State {
    last: Option<Reading>,
    /// The last read, which may have ended.
    read: Option<Read>,
    /// Whether a caller has returned before the end of the read.
    is_late: bool,
    /// Time of the last change with an unknown effect.
    unknown: Option<Instant>,
    /// Partitions that are being requested, each with its number of IPUs. The controller may list
    /// them or not.
    requested: Vec<(Uid, u32)>,
    /// Created partitions, each with its time and its number of IPUs.
    taken: Vec<(Instant, Uid, u32)>,
    /// Partitions that the controller has agreed to remove, each with its time.
    removed: Vec<(Instant, Uid)>,
}

#[derive(Clone, Debug)]
struct Reading {
    began: Instant,
    ended: Instant,
    inventory: Result<Inventory, Arc<VipuError>>,
}

impl Reading {
    fn inventory(&self) -> Option<&Inventory> {
        self.inventory.as_ref().ok()
    }
}

/// A read of a controller, which its callers share.
#[derive(Clone, Debug)]
struct Read {
    began: Instant,
    /// Closed at the end of the read.
    ended: watch::Receiver<()>,
}

/// The answer to a caller, or the read that it has to wait for.
enum Next {
    Fresh(Answer),
    Wait(Read),
}

/// The version of a server, and the time of its last read.
#[derive(Debug, Default)]
pub(super) struct Version {
    read_at: Option<Instant>,
    reported: Option<String>,
}

impl ControllerCache {
    /// An empty cache. It notifies `late_answers` of each answer that a caller of `soon` did not
    /// wait for.
    pub(super) fn new(late_answers: Arc<Notify>) -> Self {
        Self {
            late_answers,
            ..Self::default()
        }
    }

    /// The inventory, at most `max_age` old. It waits until the controller answers: at most for the
    /// end of a read in progress, and for one of its own.
    pub(super) async fn fresh(
        self: &Arc<Self>,
        max_age: Duration,
        read: impl Fn() -> ReadFuture,
    ) -> Answer {
        let called = Instant::now();
        loop {
            match self.next(called, max_age, &read) {
                Next::Fresh(answer) => return answer,
                Next::Wait(running) => running.end().await,
            }
        }
    }

    /// The same, if the controller answers within `SHORT_WAIT`. Otherwise it returns the last
    /// reading, and the read goes on.
    pub(super) async fn soon(
        self: &Arc<Self>,
        max_age: Duration,
        read: impl Fn() -> ReadFuture,
    ) -> Answer {
        let called = Instant::now();
        loop {
            match self.next(called, max_age, &read) {
                Next::Fresh(answer) => return answer,
                Next::Wait(running) => {
                    // Nobody waits for a read that has already kept another caller waiting.
                    let until = running.began.min(called) + SHORT_WAIT;
                    if timeout_at(until, running.end()).await.is_err() {
                        return self.state().late();
                    }
                }
            }
        }
    }

    /// The same, but a reading that is at most `usable` old is returned as it is. If it is older
    /// than `max_age`, the controller is read meanwhile.
    pub(super) async fn usable(
        self: &Arc<Self>,
        max_age: Duration,
        usable: Duration,
        read: impl Fn() -> ReadFuture,
    ) -> Answer {
        match self.usable_now(max_age, usable, &read) {
            Some(answer) => answer,
            None => self.soon(max_age, read).await,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn version(&self) -> MutexGuard<'_, Version> {
        self.version.lock()
    }

    /// The last reading, if it is fresh enough. Otherwise the read in progress, or a new one.
    fn next(
        self: &Arc<Self>,
        called: Instant,
        max_age: Duration,
        read: &impl Fn() -> ReadFuture,
    ) -> Next {
        let mut state = self.state();
        match state.fresh(called, max_age) {
            Some(answer) => Next::Fresh(answer),
            None => Next::Wait(self.running(&mut state, read)),
        }
    }

    /// The last reading, if it is usable. One that is older than `max_age` is read again.
    fn usable_now(
        self: &Arc<Self>,
        max_age: Duration,
        usable: Duration,
        read: &impl Fn() -> ReadFuture,
    ) -> Option<Answer> {
        let mut state = self.state();
        let now = Instant::now();
        let answer = state.fresh(now, usable)?;
        if state.fresh(now, max_age).is_none() {
            self.running(&mut state, read);
            state.is_late = true;
        }
        Some(answer)
    }

    /// The read in progress, or a new one.
    fn running(self: &Arc<Self>, state: &mut State, read: &impl Fn() -> ReadFuture) -> Read {
        let running = state.read.clone().filter(Read::is_running);
        let running = running.unwrap_or_else(|| self.start(read()));
        state.read = Some(running.clone());
        running
    }

    /// Starts a read in a task of its own, so that it ends even if no caller waits for it any more.
    fn start(self: &Arc<Self>, read: ReadFuture) -> Read {
        let (cache, began) = (Arc::clone(self), Instant::now());
        let (running, ended) = watch::channel(());
        tokio::spawn(async move {
            let inventory = read.await;
            let is_late = cache.state().end_read(began, inventory);
            if is_late {
                cache.late_answers.notify_one();
            }
            drop(running);
        });
        Read { began, ended }
    }
}

impl Read {
    fn is_running(&self) -> bool {
        self.ended.has_changed().is_ok()
    }

    /// Waits until the reading is stored.
    async fn end(mut self) {
        // It never changes: the error says that the channel is closed.
        let _ = self.ended.changed().await;
    }
}

impl State {
    /// Counts a partition that was just created.
    pub(super) fn add_taken(&mut self, id: Uid, ipus: u32) {
        self.taken.push((Instant::now(), id, ipus));
    }

    /// Counts a partition that is being requested.
    pub(super) fn begin_request(&mut self, id: Uid, ipus: u32) {
        self.requested.push((id, ipus));
    }

    /// Counts a requested partition until the next read: whatever the controller answered, it may
    /// have created it.
    pub(super) fn end_request(&mut self, id: Uid) {
        let index = self.requested.iter().position(|(other, _)| *other == id);
        if let Some(index) = index {
            let (id, ipus) = self.requested.swap_remove(index);
            self.add_taken(id, ipus);
        }
    }

    /// Notes that the controller has agreed to remove a partition.
    pub(super) fn add_removed(&mut self, id: Uid) {
        self.removed
            .retain(|(when, _)| when.elapsed() < REMOVED_AGE);
        self.removed.push((Instant::now(), id));
        self.forget();
    }

    /// Notes a change with an unknown effect.
    pub(super) fn forget(&mut self) {
        self.unknown = Some(Instant::now());
    }

    /// Stores a reading. Returns whether a caller did not wait for it, and it differs from the last
    /// one.
    fn end_read(&mut self, began: Instant, inventory: Result<Inventory, VipuError>) -> bool {
        let is_late = std::mem::take(&mut self.is_late) && inventory.is_ok();
        let last = self.last.replace(Reading {
            began,
            ended: Instant::now(),
            inventory: inventory.map_err(Arc::new),
        });
        // The caller did not get one that was too old.
        let last = last.filter(|last| last.ended.elapsed() < LAST_AGE);
        let (last, now) = (last.as_ref(), self.last.as_ref());
        is_late && last.and_then(Reading::inventory) != now.and_then(Reading::inventory)
    }

    /// The last reading, if it is fresh enough for a caller with `max_age`.
    fn fresh(&mut self, called: Instant, max_age: Duration) -> Option<Answer> {
        let last = self.last.clone()?;
        let is_fresh = self.is_fresh(&last, called, max_age);
        is_fresh.then(|| self.with_changes(last))
    }

    /// A read that began after the caller's request is always fresh enough: otherwise every caller
    /// of a slow controller would read it again, one after the other. For the same reason the age
    /// counts from the end of the read.
    fn is_fresh(&self, last: &Reading, called: Instant, max_age: Duration) -> bool {
        if last.inventory.is_err() {
            return last.ended.elapsed() < FAILURE_AGE;
        }
        let is_recent = last.ended.elapsed() < max_age;
        let is_unchanged = self.unknown.is_none_or(|changed| last.began > changed);
        last.began >= called || (is_recent && is_unchanged)
    }

    /// The last reading, for a caller that waits no longer.
    fn late(&mut self) -> Answer {
        self.is_late = true;
        self.last_known()
    }

    /// The partitions of the last reading.
    pub(super) fn last_list(&self) -> Arc<[ListedPartition]> {
        let reading = self.last.as_ref();
        let inventory = reading.and_then(Reading::inventory);
        inventory.map_or_else(|| Arc::from([]), |inventory| inventory.partitions.clone())
    }

    /// The last reading. A change with an unknown effect does not count: it only releases IPUs,
    /// because a requested partition counts until the next read.
    pub(super) fn last_known(&mut self) -> Answer {
        let last = self.last.clone();
        // After an error, the controller is unreachable until it answers.
        let is_usable = |last: &Reading| last.inventory.is_err() || last.ended.elapsed() < LAST_AGE;
        match last.filter(is_usable) {
            Some(last) => self.with_changes(last),
            None => Err(Arc::new(VipuError::NotAnswered)),
        }
    }

    /// The last reading, with the changes since its read. Changes before the read are dropped,
    /// because no earlier read is used again.
    fn with_changes(&mut self, last: Reading) -> Answer {
        let read = last.inventory?;
        self.taken.retain(|(when, ..)| *when >= last.began);
        let taken = self.taken.iter().map(|(_, id, ipus)| (id, ipus));
        let requested = self.requested.iter().map(|(id, ipus)| (id, ipus));
        let taken = taken.chain(requested);
        let read = taken.fold(read, |read, (id, ipus)| read.with(*id, *ipus));
        let removed = self.removed.iter();
        Ok(removed.fold(read, |read, (_, id)| read.without(*id)))
    }
}

impl Version {
    /// The last version that the server has reported.
    pub(super) fn reported(&self) -> Option<String> {
        self.reported.clone()
    }

    /// Whether the version has to be read.
    pub(super) fn is_due(&self) -> bool {
        self.read_at
            .is_none_or(|read_at| read_at.elapsed() >= VERSION_AGE)
    }

    /// Notes that the controller did not answer. It may have another version afterwards.
    pub(super) fn expire(&mut self) {
        self.read_at = None;
    }

    /// Stores the version that a server reported, and logs a new one. A server that reports none
    /// keeps its last version.
    pub(super) fn learn(&mut self, controller: &str, reported: Option<String>) {
        self.read_at = Some(Instant::now());
        if reported.is_some() && reported != self.reported {
            tracing::info!(controller, version = ?reported, before = ?self.reported, "V-IPU server");
            self.reported = reported;
        }
    }
}

#[cfg(test)]
mod tests;
