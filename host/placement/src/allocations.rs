//! Pure: the free capacity of a V-IPU controller: the smaller of its reported free IPUs and the
//! unallocated IPUs of the ledger.
//!
//! A controller that has lost its state reports all IPUs as free while Pods still use some. It
//! chooses the IPUs of a partition itself, and may choose these. Therefore it gets no new partition
//! before the attempts of all IPUPartitions that hold something there are settled, which happens
//! when no Pod uses their partitions.

use std::collections::HashMap;
use std::sync::Arc;

use ipu_api::guest::placement::ControllerView;
use ipu_api::ipupartition::{
    Attempt, AttemptOutcome, IPUPartition, IPUPartitionStatus, WaitingReason,
};
use ipu_api::naming;
use ipu_api::partition_request::largest_partition;
use ipu_api::uid::Uid;

use crate::drain::attempts;

/// A V-IPU partition of an IPUPartition that may still exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Name of its controller.
    pub controller: Arc<str>,
    /// Its id on the controller.
    pub id: Uid,
    /// Its IPUs.
    pub ipus: u32,
    /// A short hash of the V-IPU user id of the request.
    pub account: Option<Arc<str>>,
}

/// The allocations of an IPUPartition on all controllers; `word` stores the name of each controller
/// once. An attempt with an unknown outcome does not count, because no Pod has its id. The
/// exception is an adopted partition: Graphcore's operator gave its Pods the id.
pub fn allocations(
    partition: &IPUPartition,
    mut word: impl FnMut(&str) -> Arc<str>,
) -> Box<[Allocation]> {
    let made = attempts(partition, AttemptOutcome::Created);
    let spec = &partition.spec;
    let asked = attempts(partition, AttemptOutcome::Unknown);
    let adopted = asked.filter(|one| one.id == naming::adoptable_partition(&spec.owner, spec.slot));
    made.chain(adopted)
        .map(|attempt| allocation(attempt, spec.ipus, &mut word))
        .collect()
}

/// The partitions that an IPUPartition has requested with an unknown result, in the same way.
pub fn requested(
    partition: &IPUPartition,
    mut word: impl FnMut(&str) -> Arc<str>,
) -> Box<[Allocation]> {
    attempts(partition, AttemptOutcome::Unknown)
        .map(|attempt| allocation(attempt, partition.spec.ipus, &mut word))
        .collect()
}

fn allocation(attempt: &Attempt, ipus: u32, mut word: impl FnMut(&str) -> Arc<str>) -> Allocation {
    Allocation {
        controller: word(&attempt.controller.name),
        id: Uid::of(&attempt.id),
        ipus,
        account: attempt.account.as_deref().map(word),
    }
}

/// Whether a status releases IPUs that the one before holds.
pub fn releases(before: &IPUPartitionStatus, after: &IPUPartitionStatus) -> bool {
    let held = |status: &IPUPartitionStatus, id: &str| {
        let mut attempts = status.attempts.iter();
        attempts.any(|one| one.id == id && one.outcome == AttemptOutcome::Created)
    };
    let mut ids = before.attempts.iter().map(|one| one.id.as_str());
    ids.any(|id| held(before, id) && !held(after, id))
}

/// The allocations of all IPUPartitions, by the name of the controller.
#[derive(Debug, Default)]
pub struct Allocations {
    controllers: HashMap<Arc<str>, HoldersById>,
}

/// The allocations on one controller, by id.
type HoldersById = HashMap<Uid, Holder>;

/// The holder of an allocation.
#[derive(Debug)]
struct Holder {
    /// Name of its IPUPartition.
    name: Arc<str>,
    ipus: u32,
    account: Option<Arc<str>>,
}

/// Allocations that their controller does not list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unlisted {
    /// IPUs of partitions that the controller has lost.
    lost: u32,
    /// IPUs of partitions of another V-IPU user: a list may contain only what its caller may see.
    hidden: u32,
    /// The name of the first of those IPUPartitions.
    first: Option<Arc<str>>,
    count: usize,
}

/// IPUs that a controller reports as free although IPUPartitions hold them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// Their number.
    pub ipus: u32,
    /// Other IPUs that stay unallocated meanwhile, because the controller might choose held ones
    /// instead.
    pub besides: u32,
    /// The reason, for users.
    pub reason: String,
}

impl Allocations {
    /// Replaces the allocations of the IPUPartition with this name.
    pub fn replace(&mut self, name: &Arc<str>, before: &[Allocation], now: &[Allocation]) {
        for one in before {
            let Some(there) = self.controllers.get_mut(&one.controller) else {
                continue;
            };
            if there
                .get(&one.id)
                .is_some_and(|holder| holder.name == *name)
            {
                there.remove(&one.id);
            }
            if there.is_empty() {
                self.controllers.remove(&one.controller);
            }
        }
        for one in now {
            let there = self.controllers.entry(Arc::clone(&one.controller));
            let holder = Holder {
                name: Arc::clone(name),
                ipus: one.ipus,
                account: one.account.clone(),
            };
            there.or_default().insert(one.id, holder);
        }
    }

    /// The names of all controllers with allocations.
    pub fn controllers(&self) -> impl Iterator<Item = &str> {
        self.controllers.keys().map(|name| &**name)
    }

    /// All of them: each with its controller, and its IPUs.
    pub fn held(&self) -> impl Iterator<Item = (&str, u32)> {
        let all = self.controllers.iter();
        all.flat_map(|(name, held)| held.values().map(move |one| (&**name, one.ipus)))
    }

    /// The allocations on this controller that its inventory, read as `account`, does not account
    /// for.
    pub fn unlisted(
        &self,
        controller: &str,
        accounts_for: impl Fn(&Uid) -> bool,
        account: Option<&str>,
    ) -> Unlisted {
        let mut unlisted = Unlisted::default();
        let there = self.controllers.get(controller).into_iter().flatten();
        for (_, one) in there.filter(|(id, _)| !accounts_for(id)) {
            let ipus = if one.account.as_deref() == account {
                &mut unlisted.lost
            } else {
                &mut unlisted.hidden
            };
            *ipus = ipus.saturating_add(one.ipus);
            unlisted.count += 1;
            let first = unlisted.first.take().filter(|first| *first < one.name);
            unlisted.first = first.or_else(|| Some(Arc::clone(&one.name)));
        }
        unlisted
    }
}

impl Unlisted {
    /// Whether the controller has lost a held partition.
    pub fn is_lost(&self) -> bool {
        self.lost > 0
    }
}

/// Subtracts unlisted allocations from the free IPUs of a controller. If it has lost a partition,
/// none are left.
pub fn withhold(view: &mut ControllerView, unlisted: &Unlisted) -> Option<Withheld> {
    let free = view.free_ipus();
    let ipus = unlisted.lost.saturating_add(unlisted.hidden).min(free);
    let first = unlisted.first.as_ref().filter(|_| ipus > 0)?;
    let besides = if unlisted.is_lost() { free - ipus } else { 0 };
    view.used_ipus += ipus + besides;
    let left = largest_partition(view.free_ipus());
    view.largest_free = view.largest_free.min(left);
    view.free_blocks.clear();
    let others = match unlisted.count {
        0 | 1 => String::new(),
        count => format!(" and {} others", count - 1),
    };
    let why = if unlisted.is_lost() {
        "which it does not list any more; it may assign these IPUs to another partition, so the operator creates \
         no partitions on it until no Pod uses them"
    } else {
        "which was requested under another V-IPU user id"
    };
    Some(Withheld {
        ipus,
        besides,
        reason: format!("{ipus} more IPUs are held by IPUPartition {first}{others}, {why}"),
    })
}

/// The reasons to wait, with the withheld IPUs of each controller.
pub(crate) fn explained(
    mut reasons: Vec<WaitingReason>,
    withheld: &HashMap<String, Withheld>,
) -> Vec<WaitingReason> {
    for reason in &mut reasons {
        if let Some(withheld) = withheld.get(&reason.controller) {
            reason.reason = format!("{}; {}", reason.reason, withheld.reason);
        }
    }
    reasons
}

#[cfg(test)]
mod tests;
