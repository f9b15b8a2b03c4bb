//! Pure: prepares the request to the placement guest for an IPUPartition, and checks the guest's
//! answer. The guest chooses the controller: the policies call the active one, or the built-in
//! serial walk. The simulation and the model check call the same functions.
//!
//! Why a partition waits, and which function says so:
//!
//! | reason | function | file |
//! | --- | --- | --- |
//! | the guest: too few free IPUs, or a rule of its own | `serial_walk`, or a policy | `serial_walk.rs` |
//! | IPUs are reserved for earlier requests | `capacity_for`, `explained` | `backfill.rs` |
//! | the controller has refused this size | `with_refusals` | `guest_call/values.rs` |
//! | the controller is cordoned or drained | `cordon_reason` | `guest_call/values.rs` |
//! | it does not list partitions of IPUPartitions | `withhold`, `explained` | `allocations.rs` |
//! | no node can run the Pods | `NodeSnapshot::unsuited` | `unsuited.rs` |
//! | it may have more IPUs soon | `Expectations::reasons` | `known_sizes.rs` |
//! | the decision before stands | `decide_again`, `keep` | `requests/standing.rs` |
//! | an earlier attempt is not settled | `settle_attempts`, `explained` | `ledger/src/unsettled_attempts.rs` |

pub mod values;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ipu_api::guest::placement::{ControllerView, Decision, PlaceAttempt, SizeCount};
use ipu_api::ipupartition::{ControllerRef, DecidedBy, IPUPartition, WaitingReason};
use ipu_api::vipu_controller::CordonStates;
use jiff::{SignedDuration, Timestamp};

use super::known_sizes::Expectations;
use super::queue::{self, QueueEntry};
use super::refusals::{self, StandingRefusals};
use crate::allocations::{self, Withheld};
use crate::backfill::{self, Assigned, Capacity};
use crate::decision::PlacementDecision;
use crate::guest_call::values::shortened;
use crate::unsuited::{NodeSnapshot, Unsuited};

/// The controller of a reason that holds for all controllers.
const EVERY: &str = "every controller";

/// The controllers of the list, in its order: those that accept new partitions, and those that the
/// admin has cordoned.
#[derive(Clone, Debug)]
pub struct Candidates {
    /// Controllers that accept new partitions.
    pub open: Vec<ControllerView>,
    /// Controllers that do not.
    pub cordoned: Vec<ControllerView>,
    cordons: CordonStates,
    withheld: HashMap<String, Withheld>,
    /// The nodes. `None`: they are not known.
    nodes: Option<Arc<NodeSnapshot>>,
    refusals: StandingRefusals,
    expectations: Expectations,
}

impl Candidates {
    /// Separates the cordoned controllers from the others.
    pub fn of(views: Vec<ControllerView>, cordons: CordonStates) -> Self {
        let is_cordoned = |view: &ControllerView| cordons.contains_key(&view.name);
        let (cordoned, open) = views.into_iter().partition(is_cordoned);
        Self {
            open,
            cordoned,
            cordons,
            withheld: HashMap::new(),
            nodes: None,
            refusals: StandingRefusals::default(),
            expectations: Expectations::default(),
        }
    }

    /// The same, with the IPUs that are withheld on controllers, by name.
    #[must_use]
    pub fn withholding(self, withheld: HashMap<String, Withheld>) -> Self {
        Self { withheld, ..self }
    }

    /// The same, with the nodes on which Pods may run, if they are known.
    #[must_use]
    pub fn on_nodes(self, nodes: Option<Arc<NodeSnapshot>>) -> Self {
        Self { nodes, ..self }
    }

    /// The same, with the sizes that controllers have refused for lack of IPUs.
    #[must_use]
    pub fn refusing(self, refusals: StandingRefusals) -> Self {
        Self { refusals, ..self }
    }

    /// The same, with the most IPUs that controllers have reported lately, and why the list may
    /// lack one.
    #[must_use]
    pub fn expecting(self, sizes: BTreeMap<String, u32>, list_problem: Option<String>) -> Self {
        let all = self.open.iter().chain(&self.cordoned);
        let expectations = Expectations::of(sizes, all, list_problem);
        Self {
            expectations,
            ..self
        }
    }

    /// Returns why this request, which can never be served now, may be served later. Empty: it
    /// never can.
    pub fn may_fit_later(&self, me: &QueueEntry) -> Vec<WaitingReason> {
        let is_reached = |name: &str| {
            let mut all = self.open.iter().chain(&self.cordoned);
            all.any(|view| view.name == name && me.reaches(view))
        };
        self.expectations.reasons(is_reached, me)
    }

    /// The open controllers of which a refused size may be tried again.
    pub(crate) fn with_due_attempts(&self) -> impl Iterator<Item = &ControllerView> {
        let open = self.open.iter();
        open.filter(|view| self.refusals.is_any_due(&view.name))
    }

    /// Whether one of these controllers, which have refused the size of this waiting request, may
    /// be tried again.
    pub(crate) fn may_retry(&self, entry: &QueueEntry, controllers: &[&ControllerView]) -> bool {
        let mut suited = controllers.iter().filter(|view| entry.suits(view));
        entry.waits_for_capacity()
            && suited.any(|view| {
                view.largest_free >= entry.ipus && self.refusals.are_due(&view.name, entry.ipus)
            })
    }

    /// The sizes that controllers have refused for lack of IPUs.
    pub(crate) fn refusals(&self) -> &StandingRefusals {
        &self.refusals
    }

    /// This partition will be requested from this controller, and no other one of a refused size
    /// before its result.
    pub fn tried(&mut self, controller: &str, partition: &IPUPartition) {
        if refusals::are_options_usual(&partition.spec.options) {
            self.refusals.tried(controller, partition.spec.ipus);
        }
    }

    /// The controllers without a node that can run the Pods of this request, while others have one
    /// or may have one again.
    pub fn unsuited(&self, entry: &QueueEntry) -> Unsuited {
        let Some(nodes) = &self.nodes else {
            return Unsuited::default();
        };
        let all = self.open.iter().chain(&self.cordoned);
        nodes.unsuited(all, &entry.requirements)
    }

    /// The reasons of a guest, with the withheld IPUs that the guest does not know.
    pub fn explained(&self, reasons: Vec<WaitingReason>) -> Vec<WaitingReason> {
        allocations::explained(reasons, &self.withheld)
    }

    /// Returns why cordoned controllers get no new partitions.
    pub fn cordon_reasons(&self) -> impl Iterator<Item = WaitingReason> {
        let cordoned = self.cordoned.iter();
        cordoned.map(|view| crate::guest_call::values::cordon_reason(view, &self.cordons))
    }
}

/// The queue as the placement of one partition sees it.
#[derive(Clone, Copy, Debug)]
pub struct QueueView<'a> {
    /// The waiting requests, in order.
    pub entries: &'a [QueueEntry],
    /// Partitions of other requests that are assigned to a controller, and not requested there yet.
    pub assigned: &'a [Assigned],
    /// Partitions that the owner has or is getting.
    pub held: u32,
    /// Waiting time after which capacity is reserved for a request.
    pub backfill_limit: Duration,
}

/// The result of the checks before the call of the guest.
#[derive(Debug)]
pub enum Placement {
    /// The decision, without a call of the guest.
    Decided(PlacementDecision),
    /// The request to the guest.
    Ask(Box<Request>),
}

/// The request to the guest, and the data to check its decision.
#[derive(Debug)]
pub struct Request {
    /// The attempts of this round.
    pub tried: Vec<PlaceAttempt>,
    /// Names of the controllers that refused because they lack free IPUs.
    exhausted: BTreeSet<String>,
    /// The other waiting partitions by size, the largest first.
    pub waiting: Vec<SizeCount>,
    ipus: u32,
    capacity: Capacity,
    /// Reasons why cordoned controllers get no new partitions.
    cordon_reasons: Vec<WaitingReason>,
    /// Whether a cordoned controller is large enough.
    fits_cordoned: bool,
    /// Reasons why it may be served later although it can never be served now.
    may_fit_later: Vec<WaitingReason>,
    withheld: HashMap<String, Withheld>,
}

/// Checks a partition before the guest is called.
pub fn prepare(
    partition: &IPUPartition,
    found: Candidates,
    queue: QueueView<'_>,
    now: Timestamp,
) -> Placement {
    let mut me = queue::own_entry(partition, queue.entries, now);
    me.unsuited = found.unsuited(&me);
    let all = found.open.iter().chain(&found.cordoned);
    let may_fit_later = found.may_fit_later(&me);
    if let Some(why) = backfill::never_fits(&me, all) {
        return Placement::Decided(if may_fit_later.is_empty() {
            PlacementDecision::Reject(shortened(&why))
        } else {
            PlacementDecision::Wait(may_fit_later)
        });
    }
    let cordon_reasons: Vec<_> = found.cordon_reasons().collect();
    if let Some(mut reasons) = all_unsuited(&me.unsuited, &found.open) {
        reasons.extend(cordon_reasons);
        return Placement::Decided(PlacementDecision::Wait(reasons));
    }
    let mut cordoned = found.cordoned.iter();
    let fits_cordoned = cordoned.any(|view| view.total_ipus >= partition.spec.ipus);
    let limit = SignedDuration::try_from(queue.backfill_limit).unwrap_or(SignedDuration::MAX);
    let QueueView {
        entries,
        assigned,
        held,
        ..
    } = queue;
    let mut capacity = backfill::capacity_for(&me, entries, assigned, held, found.open, limit, now);
    capacity.avoid(&me, &partition.spec.options.avoid_controllers);
    if let Some(why) = &capacity.too_small {
        return Placement::Decided(PlacementDecision::Wait(vec![for_all(why)]));
    }
    for view in &mut capacity.views {
        view.unschedulable = me.unsuited.get(&view.name).cloned();
    }
    let tried = values::tried(partition, &found.refusals, &capacity.views);
    Placement::Ask(Box::new(Request {
        tried: tried.attempts,
        exhausted: tried.exhausted,
        waiting: queue::sizes(entries.iter().filter(|other| other.uid != me.uid)),
        ipus: partition.spec.ipus,
        capacity,
        cordon_reasons,
        fits_cordoned,
        may_fit_later,
        withheld: found.withheld,
    }))
}

/// The reasons of a request whose Pods no node of an open controller can run now, while one may
/// again. No guest is called: it could only wait.
fn all_unsuited(unsuited: &Unsuited, open: &[ControllerView]) -> Option<Vec<WaitingReason>> {
    let reasons = open.iter().map(|view| {
        Some(WaitingReason {
            controller: view.name.clone(),
            reason: unsuited.get(&view.name)?.clone(),
        })
    });
    let reasons: Vec<_> = reasons.collect::<Option<_>>()?;
    (!reasons.is_empty()).then_some(reasons)
}

impl Request {
    /// The controllers that the guest sees.
    pub fn views(&self) -> &[ControllerView] {
        &self.capacity.views
    }

    /// The result of the decision of `by`, with the reasons that the guest does not know. A
    /// partition that fits only on a cordoned controller, on one without a schedulable node, or on
    /// one that may have more IPUs soon, waits.
    pub fn conclude(
        self,
        decision: Decision,
        by: DecidedBy,
        controllers: &[ControllerRef],
    ) -> PlacementDecision {
        match crate::guest_call::values::answer(decision, by, controllers) {
            PlacementDecision::Wait(mut reasons) => {
                let views = &self.capacity.views;
                let is_named = |name: &str| reasons.iter().any(|reason| reason.controller == name);
                let mut unnamed = self.unschedulable();
                unnamed.retain(|reason| !is_named(&reason.controller));
                reasons.extend(unnamed);
                let reasons = values::with_refusals(reasons, &self.exhausted, views, self.ipus);
                let reasons = backfill::explained(reasons, &self.capacity);
                let mut reasons = allocations::explained(reasons, &self.withheld);
                reasons.extend(self.cordon_reasons);
                PlacementDecision::Wait(reasons)
            }
            PlacementDecision::Reject(why)
                if self.fits_cordoned
                    || self.fits_unschedulable()
                    || !self.may_fit_later.is_empty() =>
            {
                let mut reasons = self.unschedulable();
                reasons.extend(self.cordon_reasons);
                if !self.may_fit_later.is_empty() {
                    reasons.push(for_all(&why));
                }
                reasons.extend(self.may_fit_later);
                PlacementDecision::Wait(reasons)
            }
            answer => answer,
        }
    }

    /// The reasons of the controllers without a schedulable node. Guests of an early version do not
    /// see them.
    fn unschedulable(&self) -> Vec<WaitingReason> {
        let reasons = self.capacity.views.iter().filter_map(|view| {
            Some(WaitingReason {
                controller: view.name.clone(),
                reason: view.unschedulable.clone()?,
            })
        });
        reasons.collect()
    }

    /// Whether a controller without a schedulable node is large enough.
    fn fits_unschedulable(&self) -> bool {
        let mut views = self.capacity.views.iter();
        views.any(|view| view.unschedulable.is_some() && view.total_ipus >= self.ipus)
    }
}

/// A reason that holds for all controllers.
pub fn for_all(why: &str) -> WaitingReason {
    WaitingReason {
        controller: EVERY.to_owned(),
        reason: why.to_owned(),
    }
}

#[cfg(test)]
mod tests;
