//! Pure: the choice of the controller on which a partition splits the smallest free block.
//!
//! A partition takes a block of its size. If it has to split a larger free block, each size between both loses one
//! partition, and no other size loses anything. So the smallest block is the best one for every mix of sizes, and the
//! choice needs neither the sizes of the waiting requests nor a forecast. Among equal blocks, the fullest controller is
//! taken: the emptiest ones are the first that can serve a large request.

#[cfg(test)]
mod table;

/// A V-IPU controller as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// `host:port`.
    pub name: String,
    /// Reason why it cannot serve the request whatever is free.
    pub blocker: Option<Blocker>,
    /// IPUs that it has, used or not.
    pub total: u32,
    /// IPUs in partitions of all owners.
    pub used: u32,
    /// The largest partition that could be made now: an estimate.
    pub largest_free: u32,
    /// The sizes of its free blocks: an estimate.
    pub blocks: Vec<u32>,
}

/// Reason why a controller is passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocker {
    /// It could never serve the request.
    Lasting(String),
    /// It may serve the request later.
    Passing(String),
}

/// The decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Make the partition on this controller.
    Try(String),
    /// Wait, with the reason of each skipped controller.
    Wait(Vec<(String, String)>),
    /// No controller could ever serve it, and why.
    Reject(String),
}

/// Answers the controller whose smallest sufficient block is the smallest of all; the fullest of several, and the first
/// of equally full ones. Without one, the request waits as long as a controller could serve it later, and is rejected
/// when none ever can.
pub fn choose(ipus: u32, controllers: &[Controller]) -> Choice {
    let mut passed_over = Vec::new();
    let mut can_wait = controllers.is_empty();
    let mut best: Option<((u32, u32), &Controller)> = None;
    for controller in controllers {
        let reason = match blocker(ipus, controller) {
            None => {
                let rank = rank(ipus, controller);
                if best.is_none_or(|(lowest, _)| rank < lowest) {
                    best = Some((rank, controller));
                }
                continue;
            }
            Some(Blocker::Lasting(reason)) => reason,
            Some(Blocker::Passing(reason)) => {
                can_wait = true;
                reason
            }
        };
        passed_over.push((controller.name.clone(), reason));
    }
    if let Some((_, controller)) = best {
        return Choice::Try(controller.name.clone());
    }
    if can_wait {
        return Choice::Wait(passed_over);
    }
    let reasons: Vec<_> = passed_over
        .into_iter()
        .map(|(name, reason)| format!("{name}: {reason}"))
        .collect();
    Choice::Reject(format!(
        "no V-IPU controller can ever serve {ipus} IPUs ({})",
        reasons.join("; ")
    ))
}

/// The block that the partition would split, and the free IPUs. Without any block that is large enough, the largest
/// free partition counts: both are estimates.
fn rank(ipus: u32, controller: &Controller) -> (u32, u32) {
    let blocks = controller.blocks.iter().copied();
    let smallest = blocks.filter(|block| *block >= ipus).min();
    let free = controller.total.saturating_sub(controller.used);
    (smallest.unwrap_or(controller.largest_free), free)
}

fn blocker(ipus: u32, controller: &Controller) -> Option<Blocker> {
    let Controller {
        total,
        used,
        largest_free: largest,
        ..
    } = controller;
    if let Some(blocker @ Blocker::Lasting(_)) = &controller.blocker {
        return Some(blocker.clone());
    }
    // A controller whose agents are not there yet has no IPUs, but may have some soon.
    if *total > 0 && *total < ipus {
        return Some(Blocker::Lasting(format!(
            "has {total} IPUs in all, fewer than the {ipus} requested"
        )));
    }
    if let Some(blocker) = &controller.blocker {
        return Some(blocker.clone());
    }
    if *total == 0 {
        return Some(Blocker::Passing("has no IPUs at present".to_owned()));
    }
    (*largest < ipus).then(|| {
        Blocker::Passing(format!(
            "{used} of its {total} IPUs are used, and the largest free partition is {largest}, \
             smaller than the {ipus} requested"
        ))
    })
}
