//! Pure: where an IPUPartition is to be made: what is settled before the placement policy is asked, what it
//! is asked, and what its decision comes to. The simulation and the model check call the same functions.

use std::collections::HashMap;
use std::time::Duration;

use ipu_api::ipupartition::{ControllerRef, DecidedBy, IPUPartition, WaitingReason};
use ipu_guest_host::model::{ControllerView, Decision, PlaceAttempt};
use jiff::{SignedDuration, Timestamp};
use vipu_client::cordon::CordonStates;

use super::capacity::{self, Withheld};
use super::observations::Answer;
use super::placing::{self, shortened};
use super::queue::{self, Capacity, QueueEntry};

/// What stands in the place of a controller's name where the reason is the same for all.
const EVERY: &str = "every controller";

/// Why a partition waits where others were given IPUs each time that the policy had decided.
const OUTPACED: &str = "others got the IPUs during the decision; it is repeated within seconds";

/// What the controllers of the list have, in its order: those that take something new, and those that
/// the admin has closed.
#[derive(Clone, Debug)]
pub struct Divided {
    /// Those that take something new.
    pub open: Vec<ControllerView>,
    /// Those that do not.
    pub shut: Vec<ControllerView>,
    cordons: CordonStates,
    withheld: HashMap<String, Withheld>,
}

impl Divided {
    /// Divides the controllers by whether the admin has closed them.
    pub fn of(views: Vec<ControllerView>, cordons: CordonStates) -> Self {
        let is_shut = |view: &ControllerView| cordons.contains_key(&view.name);
        let (shut, open) = views.into_iter().partition(is_shut);
        Self {
            open,
            shut,
            cordons,
            withheld: HashMap::new(),
        }
    }

    /// The same, with what is withheld on controllers of these names.
    #[must_use]
    pub fn withholding(self, withheld: HashMap<String, Withheld>) -> Self {
        Self { withheld, ..self }
    }

    /// The reasons of a policy, which was not told why less is free than a controller says.
    pub fn explained(&self, reasons: Vec<WaitingReason>) -> Vec<WaitingReason> {
        capacity::explained(reasons, &self.withheld)
    }

    /// Why nothing is made on those that are shut.
    pub fn shut_out(&self) -> impl Iterator<Item = WaitingReason> {
        let shut = self.shut.iter();
        shut.map(|view| placing::shut_out(view, &self.cordons))
    }
}

/// What is known of the queue where a partition is placed.
#[derive(Clone, Copy, Debug)]
pub struct QueueView<'a> {
    /// Those who wait, in order.
    pub entries: &'a [QueueEntry],
    /// IPUs of each controller that others were told to take, and have not asked for yet.
    pub reservations: &'a [(String, u32)],
    /// How many partitions the owner has, or is getting.
    pub held: u32,
    /// How long somebody who waits is passed by smaller ones.
    pub backfill_limit: Duration,
}

/// Whether the policy has to be asked.
#[derive(Debug)]
pub enum Placement {
    /// It need not be: this is the answer.
    Decided(Answer),
    /// It is to be asked this.
    Ask(Box<Request>),
}

/// What the policy is asked, and what its decision is judged by.
#[derive(Debug)]
pub struct Request {
    /// The attempts of this round.
    pub tried: Vec<PlaceAttempt>,
    capacity: Capacity,
    /// Why closed controllers serve nobody.
    shut_out: Vec<WaitingReason>,
    /// Whether one of them is large enough.
    could_be_opened: bool,
    withheld: HashMap<String, Withheld>,
}

/// What can be said of a partition before the policy is asked.
pub fn prepare(
    partition: &IPUPartition,
    found: Divided,
    queue: QueueView<'_>,
    now: Timestamp,
) -> Placement {
    let me = queue::own_entry(partition, queue.entries, now);
    let all = found.open.iter().chain(&found.shut);
    if let Some(why) = queue::never_fits(&me, all) {
        return Placement::Decided(Answer::Reject(shortened(&why)));
    }
    let shut_out = found.shut_out().collect();
    let mut shut = found.shut.iter();
    let could_be_opened = shut.any(|view| view.total_ipus >= partition.spec.ipus);
    let limit = SignedDuration::try_from(queue.backfill_limit).unwrap_or(SignedDuration::MAX);
    let QueueView {
        entries,
        reservations,
        held,
        ..
    } = queue;
    let capacity = queue::capacity_for(&me, entries, reservations, held, found.open, limit, now);
    if let Some(why) = &capacity.too_small {
        return Placement::Decided(later(&capacity, vec![for_all(why)]));
    }
    Placement::Ask(Box::new(Request {
        tried: placing::tried(&partition.status.clone().unwrap_or_default()),
        capacity,
        shut_out,
        could_be_opened,
        withheld: found.withheld,
    }))
}

impl Request {
    /// The controllers as the policy is shown them.
    pub fn views(&self) -> &[ControllerView] {
        &self.capacity.views
    }

    /// The answer, where `by` has decided: with the reasons that the policy was not told. What only a closed
    /// controller could serve is not impossible.
    pub fn conclude(
        self,
        decision: Decision,
        by: DecidedBy,
        controllers: &[ControllerRef],
    ) -> Answer {
        match placing::answer(decision, by, controllers) {
            Answer::Wait(reasons) => {
                let reasons = queue::explained(reasons, &self.capacity);
                let mut reasons = capacity::explained(reasons, &self.withheld);
                reasons.extend(self.shut_out);
                later(&self.capacity, reasons)
            }
            Answer::Reject(_) if self.could_be_opened => Answer::Wait(self.shut_out),
            answer => answer,
        }
    }
}

/// The answer where others were given IPUs each time that the policy had decided.
pub fn outpaced() -> Answer {
    Answer::Later(vec![for_all(OUTPACED)])
}

/// Where what is free was promised to others, an answer comes within seconds.
fn later(capacity: &Capacity, reasons: Vec<WaitingReason>) -> Answer {
    if capacity.is_claimed {
        Answer::Later(reasons)
    } else {
        Answer::Wait(reasons)
    }
}

fn for_all(why: &str) -> WaitingReason {
    WaitingReason {
        controller: EVERY.to_owned(),
        reason: why.to_owned(),
    }
}
