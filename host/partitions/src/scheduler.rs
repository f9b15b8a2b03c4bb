//! Decides on the partitions that need a V-IPU controller: one pass after the other, each in the
//! order of the queue.

mod decide;
mod moves;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::channel::mpsc::UnboundedSender;
use ipu_placement::cycle::{Pass, Places};
use ipu_placement::decision::PlacementDecision;
use ipu_placement::guest_call;
use ipu_placement::guest_call::values::shortened;
use ipu_placement::namespace_budgets::NamespaceBudgets;
use ipu_placement::requests::Turn;
use ipu_runtime::{clock, panics, wait};
use kube::ResourceExt;
use tokio::time::{sleep, sleep_until, timeout};
use tracing::Instrument;

use self::decide::{decide_by_recent, partition};
use self::moves::{next_to_move, partitions_to_move};
use super::reconcile;
use crate::leader::Context;

/// Wait of a new leader until each waiting partition has asked: the first ones must not get what
/// earlier ones need.
const START: Duration = Duration::from_secs(15);

/// Period of that check.
const CHECK: Duration = Duration::from_millis(100);

/// Shortest time between two passes over the waiting requests after releases of capacity, so that
/// releases in quick succession are handled together, or after refusals: controllers may refuse one
/// request after the other.
const BATCH_DELAY: Duration = Duration::from_millis(50);

/// Period at which the requests of deleted partitions are dropped, and decisions to wait become
/// stale.
const INTERVAL: Duration = Duration::from_secs(10);

/// Stale decisions that are refreshed at a time.
const REFRESHED_AT_ONCE: usize = 64;

/// Decisions are refreshed in one of so many parts of the time.
const REFRESH_SHARE: u32 = 40;

/// Shortest time between two passes over all requests because a controller may be tried again: a
/// guest may deny it.
const RETRIES: Duration = Duration::from_secs(5);

/// The longest pass. The next one continues with the capacity at that time.
const LONGEST_PASS: Duration = Duration::from_secs(10);

/// Decides without end. Each partition with a decision that its reconcile waits for is sent to
/// `reconcile`, and after a release of IPUs those that may leave their controllers.
pub(super) async fn run(context: Arc<Context>, reconcile: UnboundedSender<Arc<str>>) {
    let mut list = context.pool.registry().subscribe();
    let mut held = context.watched.released();
    let mut nodes = context.pool.nodes().changes();
    once_requested(&context, &reconcile).await;
    let mut placing = PlacementLoop {
        context: &context,
        reconcile,
        places: Places::new(),
        decided_again: None,
        retried: None,
        budgets: NamespaceBudgets::default(),
        expired: Instant::now(),
        next_refresh: Instant::now(),
    };
    placing.pass(Cause::Requests).await;
    loop {
        let next_refresh = placing.next_refresh();
        // Capacity comes first: a reconcile that releases a partition and asks for another one
        // comes after earlier requests.
        let to_move = tokio::select! {
            biased;
            () = context.released.notified() => next_to_move(&context),
            () = wait::changed(&mut held) => next_to_move(&context),
            () = wait::changed(&mut list) => partitions_to_move(&context),
            () = wait::changed(&mut nodes) => partitions_to_move(&context),
            () = context.queue_state.pass_requested() => {
                placing.pass(Cause::Requests).await;
                continue;
            }
            () = context.pool.late_answer() => {
                if !placing.has_grown() {
                    continue;
                }
                next_to_move(&context)
            }
            () = sleep_until(next_refresh.into()) => {
                placing.refresh().await;
                continue;
            }
        };
        if !to_move.is_empty() || context.queue_state.requests().has_waiting() {
            placing.batch().await;
        }
        for name in to_move {
            placing.trigger(name);
        }
        placing.pass(Cause::Capacity).await;
    }
}

/// Why a pass takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// Requests are undecided.
    Requests,
    /// Capacity may have grown.
    Capacity,
}

/// Waits until the waiting partitions have asked. They are reconciled before the others are.
async fn once_requested(context: &Context, reconcile: &UnboundedSender<Arc<str>>) {
    context.watched.once_listed().await;
    for entry in context.watched.read(|cache| cache.queue(clock::now())) {
        let _ = reconcile.unbounded_send(Arc::clone(&entry.name));
    }
    // If it takes longer, those that have not asked wait for something else.
    let _ = timeout(START, once_all_have_asked(context)).await;
}

async fn once_all_have_asked(context: &Context) {
    while !context.queue_state.have_all_asked(&context.watched) {
        // The check reads thousands of requests.
        sleep(CHECK).await;
    }
}

struct PlacementLoop<'a> {
    context: &'a Context,
    reconcile: UnboundedSender<Arc<str>>,
    /// What fitted on each controller at the end of the last pass.
    places: Places,
    /// Time at which the waiting requests were last decided again because more might have become
    /// free.
    decided_again: Option<Instant>,
    /// Time at which all requests were last decided again because a controller might be tried
    /// again.
    retried: Option<Instant>,
    budgets: NamespaceBudgets,
    /// Time at which all decisions to wait last became stale.
    expired: Instant,
    /// Time before which no decision is refreshed.
    next_refresh: Instant,
}

impl PlacementLoop<'_> {
    /// The time of the next refresh. Once in a period, requests of deleted partitions are dropped,
    /// and all decisions to wait become stale.
    fn next_refresh(&mut self) -> Instant {
        let context = self.context;
        if self.expired.elapsed() > INTERVAL {
            self.expired = Instant::now();
            if context.drop_gone() {
                context.released.notify_one();
            }
            context.queue_state.requests().expire();
        }
        if context.queue_state.requests().has_stale() {
            self.next_refresh
        } else {
            self.expired + INTERVAL
        }
    }

    /// Asks the guest again about some requests whose decisions are stale.
    async fn refresh(&mut self) {
        let begun = Instant::now();
        let requests = &self.context.queue_state;
        requests.requests().refresh(REFRESHED_AT_ONCE);
        self.pass(Cause::Requests).await;
        // A guest that answers late is asked again as often as one that answers.
        let pause = begun.elapsed() * (REFRESH_SHARE - 1);
        self.next_refresh = Instant::now() + pause.min(INTERVAL);
    }

    /// Decides on the undecided requests of one round, in order, and on those that may fit.
    async fn pass(&mut self, cause: Cause) {
        let context = self.context;
        if !self.is_needed(cause) {
            return;
        }
        let mut pass = self.begin(cause).await;
        let begun = Instant::now();
        let mut round = None;
        loop {
            let turn = context.queue_state.requests().next_turn();
            let Some(turn) = turn else { break };
            if round.is_some_and(|round| round != turn.round) || begun.elapsed() > LONGEST_PASS {
                // The next pass begins with the capacity at that time.
                context.queue_state.request_pass();
                break;
            }
            if round.is_none() {
                self.budgets.begin_pass(turn.round);
            }
            round = Some(turn.round);
            let may_fit = |entry: &_| pass.may_fit(entry, clock::now());
            if context.queue_state.requests().keep(&turn, may_fit) {
                continue;
            }
            self.decide(&mut pass, turn).await;
            // Thousands of decisions may follow one another without a wait.
            tokio::task::yield_now().await;
        }
        self.places = pass.places();
    }

    /// Waits for the rest of the delay after the last pass over the waiting requests: of several
    /// releases, the first is handled at once, and the others together.
    async fn batch(&mut self) {
        let since = self.decided_again.map_or(BATCH_DELAY, |at| at.elapsed());
        sleep(BATCH_DELAY.saturating_sub(since)).await;
        self.decided_again = Some(Instant::now());
    }

    fn is_needed(&self, cause: Cause) -> bool {
        let requests = self.context.queue_state.requests();
        requests.has_undecided() || cause == Cause::Capacity && requests.has_waiting()
    }

    /// A pass with the capacity and the queue now. All requests that may fit are decided if IPUs
    /// became free, perhaps without a notification, because a controller has refused a partition or
    /// another client has released some: earlier ones come first.
    async fn begin(&mut self, cause: Cause) -> Pass {
        let mut pass = self.read().await;
        let requests = &self.context.queue_state;
        let has_grown = pass.has_grown(&self.places);
        if has_grown && cause == Cause::Requests && requests.requests().has_waiting() {
            self.batch().await;
            pass = self.read().await;
        }
        let may_have_grown = has_grown || cause == Cause::Capacity || self.is_retry_due(&pass);
        let now = clock::now();
        let mut requests = requests.requests();
        if requests.decide_again(may_have_grown, |entry| pass.may_fit(entry, now)) {
            pass.complete(&requests, now);
        }
        pass
    }

    /// Whether all requests are decided again because a controller may be tried again.
    fn is_retry_due(&mut self, pass: &Pass) -> bool {
        let is_recent = |at: Instant| at.elapsed() < RETRIES;
        if self.retried.is_some_and(is_recent) || !pass.has_due_attempt() {
            return false;
        }
        self.retried = Some(Instant::now());
        true
    }

    /// Whether requests wait, and more IPUs are known to be free than at the end of the last pass.
    fn has_grown(&self) -> bool {
        let context = self.context;
        if !context.queue_state.requests().has_waiting() {
            return false;
        }
        let assignments = context.queue_state.requests().assignments().collect();
        let found = context.pool.candidates_known();
        // The free IPUs do not depend on the queue.
        let pass = Pass::new(found, Vec::new(), assignments, Duration::ZERO);
        pass.has_grown(&self.places)
    }

    async fn read(&self) -> Pass {
        let context = self.context;
        // A partition that is requested meanwhile counts twice, rather than not at all.
        let assignments = context.queue_state.requests().assignments().collect();
        let found = context.pool.candidates_for_pass().await;
        let now = clock::now();
        let mut entries = context.queue_state.entries(&context.watched, now).to_vec();
        context.queue_state.requests().complete(&mut entries, now);
        Pass::new(found, entries, assignments, context.settings.backfill_limit)
    }

    /// Decides on one request.
    async fn decide(&mut self, pass: &mut Pass, turn: Turn) {
        let context = self.context;
        let Some(partition) = partition(context, &turn) else {
            context.queue_state.requests().withdraw(turn.uid);
            return;
        };
        let namespace = &partition.spec.owner.namespace;
        if !self.budgets.is_due(namespace, &turn.order) {
            context.queue_state.requests().postpone(&turn);
            if turn.is_expected {
                pass.expect(&partition);
            }
            return;
        }
        let begun = Instant::now();
        let span = reconcile::span(turn.name(), Some(&partition.spec.owner));
        let deciding = panics::caught(decide_by_recent(context, pass, &partition));
        let deciding = deciding.instrument(span);
        let (answer, is_denied) = deciding.await.unwrap_or_else(|panicked| {
            let why = shortened(&panicked.to_string());
            (
                PlacementDecision::Wait(vec![guest_call::for_all(&why)]),
                false,
            )
        });
        self.budgets.spend(namespace, begun.elapsed());
        let stored = context
            .queue_state
            .requests()
            .decided(&turn, answer.clone(), is_denied);
        match stored {
            Some(is_new) => {
                pass.note(&partition, &answer);
                if let PlacementDecision::Try(controller, _) = &answer {
                    context.pool.tried(controller, &partition.spec);
                }
                if is_new {
                    self.trigger(turn.name().into());
                }
            }
            None => context
                .namespaces
                .release(&partition.uid().unwrap_or_default()),
        }
    }

    fn trigger(&self, name: Arc<str>) {
        // The queue of reconciles has ended if this replica does not lead any more.
        let _ = self.reconcile.unbounded_send(name);
    }
}
