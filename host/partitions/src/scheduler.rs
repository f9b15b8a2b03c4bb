//! Decides on the partitions that need a V-IPU controller: one pass after the other, each in the order of the queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::channel::mpsc::UnboundedSender;
use ipu_api::guest::placement::{Decision, Placed};
use ipu_api::ipupartition::IPUPartition;
use ipu_placement::cycle::{Pass, Places};
use ipu_placement::decision::PlacementDecision;
use ipu_placement::drain;
use ipu_placement::guest_call::values::{self, shortened};
use ipu_placement::guest_call::{self, Placement, Request};
use ipu_placement::namespace_budgets::NamespaceBudgets;
use ipu_placement::requests::Turn;
use ipu_policies::namespace_usage::counter::Reservation;
use ipu_runtime::{clock, events, panics, wait};
use kube::ResourceExt;
use tokio::time::{sleep, timeout};
use tracing::Instrument;

use super::reconcile;
use crate::leader::Context;
use crate::reconcile::siblings;
use crate::store::Brief;

/// Wait of a new leader until each waiting partition has asked: the first ones must not get what earlier ones
/// need.
const START: Duration = Duration::from_secs(15);

/// Period of that check.
const CHECK: Duration = Duration::from_millis(100);

/// Delay between a release of capacity and the next pass, so that releases are handled together. It is also the
/// shortest time between two passes over all requests because of a refusal: controllers may refuse one request after
/// the other.
const BATCH_DELAY: Duration = Duration::from_millis(200);

/// Period at which the requests of deleted partitions are dropped.
const INTERVAL: Duration = Duration::from_secs(10);

/// Shortest time between two passes over all requests because a controller may be tried again: a guest may deny it.
const RETRIES: Duration = Duration::from_secs(5);

/// IPUPartitions on a drained controller that are evaluated after a release of IPUs. Each reads the queue and the capacity
/// of all controllers. The others are evaluated periodically, and when their turn comes.
const NEXT_TO_MOVE: usize = 16;

/// The longest pass. The next one continues with the capacity at that time.
const LONGEST_PASS: Duration = Duration::from_secs(10);

/// Decides without end. Each partition with a decision that its reconcile waits for is sent to `reconcile`, and after a
/// release of IPUs those that may leave their controllers.
pub(super) async fn run(context: Arc<Context>, reconcile: UnboundedSender<Arc<str>>) {
    let mut list = context.pool.registry().subscribe();
    let mut held = context.watched.released();
    let mut nodes = context.pool.nodes().changes();
    context.watched.once_listed().await;
    // Those that wait are reconciled before the others are.
    for entry in context.watched.read(|cache| cache.queue(clock::now())) {
        let _ = reconcile.unbounded_send(entry.name.into());
    }
    // If it takes longer, those that have not asked wait for something else.
    let _ = timeout(START, once_all_have_asked(&context)).await;
    let mut placing = PlacementLoop {
        context: &context,
        reconcile,
        places: Places::new(),
        decided_again: None,
        retried: None,
        budgets: NamespaceBudgets::default(),
    };
    placing.pass().await;
    let mut swept = Instant::now();
    loop {
        if swept.elapsed() > INTERVAL {
            swept = Instant::now();
            if context.drop_gone() {
                context.released.notify_one();
            }
        }
        // Capacity comes first: a reconcile that releases a partition and asks for another one comes after earlier
        // requests.
        let to_move = tokio::select! {
            biased;
            () = context.released.notified() => next_to_move(&context),
            () = wait::changed(&mut held) => next_to_move(&context),
            () = wait::changed(&mut list) => partitions_to_move(&context),
            () = wait::changed(&mut nodes) => partitions_to_move(&context),
            () = context.queue_state.pass_requested() => {
                placing.pass().await;
                continue;
            }
            () = context.pool.late_answer() => {
                if !placing.has_grown() {
                    continue;
                }
                next_to_move(&context)
            }
            () = sleep(INTERVAL) => continue,
        };
        if !to_move.is_empty() || context.queue_state.requests().has_waiting() {
            sleep(BATCH_DELAY).await;
        }
        for name in to_move {
            placing.trigger(name);
        }
        context.queue_state.requests().decide_again();
        placing.pass().await;
    }
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
    /// Time at which all requests were last decided again because more had become free.
    decided_again: Option<Instant>,
    /// Time at which all requests were last decided again because a controller might be tried again.
    retried: Option<Instant>,
    budgets: NamespaceBudgets,
}

impl PlacementLoop<'_> {
    /// Decides on the undecided requests of one round, in order.
    async fn pass(&mut self) {
        let context = self.context;
        if !context.queue_state.requests().has_undecided() {
            return;
        }
        let mut pass = self.begin().await;
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
            self.decide(&mut pass, turn).await;
            // Thousands of decisions may follow one another without a wait.
            tokio::task::yield_now().await;
        }
        self.places = pass.places();
    }

    /// A pass with the capacity and the queue now. If IPUs became free without a notification, because a controller has
    /// refused a partition or another client has released some, it decides on all requests again: earlier ones come
    /// first.
    async fn begin(&mut self) -> Pass {
        let pass = self.read().await;
        let requests = &self.context.queue_state;
        let has_grown = pass.has_grown(&self.places);
        if !has_grown && !self.is_retry_due(&pass) {
            return pass;
        }
        if has_grown && requests.requests().has_waiting() {
            let since = self.decided_again.map(|at| at.elapsed());
            sleep(BATCH_DELAY.saturating_sub(since.unwrap_or(BATCH_DELAY))).await;
            self.decided_again = Some(Instant::now());
        }
        requests.requests().decide_again();
        self.read().await
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
        let found = context.pool.candidates_soon().await;
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
        let deciding = panics::caught(decide(context, pass, &partition)).instrument(span);
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

/// The partition of a turn. `None`: it is gone.
fn partition(context: &Context, turn: &Turn) -> Option<Arc<IPUPartition>> {
    context.watched.read(|cache| {
        // It may have been deleted since the reconcile read it.
        if !cache.contains(turn.name(), turn.uid) {
            return None;
        }
        let newer = turn.partition.clone();
        newer.or_else(|| cache.readable(turn.name()))
    })
}

/// Asks the guest for a controller for this partition. Returns also whether it denied the partition free capacity.
async fn decide(
    context: &Context,
    pass: &Pass,
    partition: &IPUPartition,
) -> (PlacementDecision, bool) {
    // A partition without a controller has no reservation.
    context
        .namespaces
        .release(&partition.uid().unwrap_or_default());
    let now = clock::now();
    let held = siblings::held(context, partition);
    let request = match pass.prepare(partition, held, now) {
        Placement::Decided(answer) => return (answer, false),
        Placement::Ask(request) => request,
    };
    let (placed, is_denied) = ask(context, partition, &request, held).await;
    if let Some(why) = &placed.overruled {
        report_overruled(context, partition, why);
    }
    let by = values::decided_by(&placed);
    let answer = request.conclude(placed.decision, by, &context.pool.controllers());
    if matches!(answer, PlacementDecision::Try(..)) {
        context.namespaces.reserve(Reservation::of(partition));
    }
    (answer, is_denied)
}

/// Calls the placement guest. Returns also whether it denies a controller if the serial walk chooses one.
async fn ask(
    context: &Context,
    partition: &IPUPartition,
    asked: &Request,
    held: u32,
) -> (Placed, bool) {
    let uid = partition.uid().unwrap_or_default();
    let namespace = &partition.spec.owner.namespace;
    let namespaces = &context.namespaces;
    let known = (
        namespaces.context(namespace, &uid),
        namespaces.others(namespace),
    );
    let waiting = asked.waiting.clone();
    let request = values::partition_request(partition, known, waiting, held, clock::now());
    let (views, tried) = (asked.views(), &asked.tried);
    let placed = context.guests.place(&request, views, tried).await;
    let is_denied = !is_try(&placed.decision)
        && is_try(&ipu_placement::serial_walk::serial_walk(
            &request, views, tried,
        ));
    (placed, is_denied)
}

fn is_try(decision: &Decision) -> bool {
    matches!(decision, Decision::Try(..))
}

fn report_overruled(context: &Context, partition: &IPUPartition, why: &str) {
    tracing::warn!(
        partition = %partition.name_any(),
        why,
        "the guest of the placement policy was overruled"
    );
    let uid = partition.uid().unwrap_or_default();
    if context.history.is_news(&uid, why) {
        let reason = "PolicyOverruled";
        let event = events::warning(reason, reason, shortened(why));
        context.publish(partition, event);
    }
}

/// The IPUPartitions that may be the next to leave drained controllers, after a release of IPUs.
fn next_to_move(context: &Context) -> Vec<Arc<str>> {
    let cordons = context.pool.cordons();
    let draining = cordons
        .keys()
        .filter(|name| drain::is_draining(name, &cordons));
    let next = draining.flat_map(|controller| {
        let there = context.queue_state.on_drained(&context.watched, controller);
        let names = drain::next_to_leave(&there, NEXT_TO_MOVE).into_iter();
        names.map(Arc::from).collect::<Vec<_>>()
    });
    next.collect()
}

/// The IPUPartitions with partitions on drained, gone and renamed controllers.
fn partitions_to_move(context: &Context) -> Vec<Arc<str>> {
    let known = context.pool.registry().known();
    let (cordons, departed) = (&known.cordons, &known.departed);
    let is_other = |name: &str| {
        drain::is_draining(name, cordons)
            || departed.gone.contains(name)
            || departed.renamed.contains_key(name)
    };
    let others: Vec<Arc<str>> = context.watched.read(|cache| {
        let held = cache.allocations().controllers();
        held.filter(|name| is_other(name)).map(Into::into).collect()
    });
    if others.is_empty() {
        return Vec::new();
    }
    let is_there = |one: &Brief| {
        one.held
            .iter()
            .any(|held| others.contains(&held.controller))
    };
    context.watched.read(|cache| cache.names_of(is_there))
}
