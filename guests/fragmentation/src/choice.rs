//! Pure: the choice of the controller on which a partition splits the smallest free block.
//!
//! A partition takes a block of its size. If it has to split a larger free block, each size between
//! both loses one partition, and no other size loses anything. So the smallest block is the best
//! one for every mix of sizes, and the choice needs neither the sizes of the waiting requests nor a
//! forecast. Among equal blocks, the fullest controller is taken: the emptiest ones are the first
//! that can serve a large request.

#[cfg(test)]
mod table;

use guest_sdk::placement::{Blocker, Requirements, Skipped};
use guest_sdk::placer::{Attempt, Controller, Decision};

/// Answers the controller whose smallest sufficient block is the smallest of all; the fullest of
/// several, and the first of equally full ones. Without one, the request waits as long as a
/// controller could serve it later, and is rejected when none ever can.
pub fn choose(
    requirements: Requirements<'_>,
    controllers: &[Controller],
    attempts: &[Attempt],
) -> Decision {
    let mut skipped = Skipped::default();
    let mut best: Option<((u32, u32), &Controller)> = None;
    for controller in controllers {
        if let Some(blocker) = blocker(requirements, controller, attempts) {
            skipped.add(controller, blocker);
            continue;
        }
        let rank = rank(requirements.ipus, controller);
        if best.is_none_or(|(lowest, _)| rank < lowest) {
            best = Some((rank, controller));
        }
    }
    match best {
        Some((_, controller)) => Decision::Try(controller.name.clone()),
        None => skipped.decision(requirements),
    }
}

/// The block that the partition would split, and the free IPUs. Without any block that is large
/// enough, the largest free partition counts.
fn rank(ipus: u32, controller: &Controller) -> (u32, u32) {
    let blocks = controller.free_blocks.iter().map(|block| block.ipus);
    let smallest = blocks.filter(|block| *block >= ipus).min();
    let free = controller.total_ipus.saturating_sub(controller.used_ipus);
    (smallest.unwrap_or(controller.largest_free), free)
}

/// A controller that is too small stays so, whatever else keeps it from serving the request now.
fn blocker(
    requirements: Requirements<'_>,
    controller: &Controller,
    attempts: &[Attempt],
) -> Option<Blocker> {
    Blocker::of_label(controller, requirements)
        .or_else(|| Blocker::of_size(controller, requirements))
        .or_else(|| Blocker::of_state(controller))
        .or_else(|| Blocker::of_attempts(controller, attempts))
        .or_else(|| Blocker::of_emptiness(controller))
        .or_else(|| Blocker::of_usage(controller, requirements))
}
