//! Pure: requeue delays of IPUPartitions.

use std::time::Duration;

use super::step::Requeue;

/// Returns the requeue delay after `idle_rounds` reconciles in a row that wrote nothing. `None`
/// waits for the next event.
pub fn delay(requeue: Requeue, idle_rounds: u32) -> Option<Duration> {
    match requeue {
        Requeue::Forming => Some(doubling(50, idle_rounds, 500)),
        Requeue::Soon => Some(doubling(50, idle_rounds, 2_000)),
        Requeue::ForPods => Some(doubling(50, idle_rounds, 30_000)),
        Requeue::ForCapacity => Some(Duration::from_secs(10)),
        Requeue::Blocked => Some(doubling(1_000, idle_rounds, 60_000)),
        Requeue::Steady => Some(Duration::from_secs(30)),
        Requeue::Never => None,
    }
}

/// Returns the requeue delay after a conflict. The new version triggers a reconcile at once, unless
/// the watch has stopped without notice.
pub fn after_conflict(idle_rounds: u32) -> Duration {
    doubling(100, idle_rounds.saturating_sub(1), 5_000)
}

fn doubling(first: u64, times: u32, most: u64) -> Duration {
    let factor = 1_u64.checked_shl(times).unwrap_or(u64::MAX);
    Duration::from_millis(first.saturating_mul(factor).min(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_their_bound() {
        let cases = [
            (Requeue::Forming, 3, Some(400)),
            (Requeue::Forming, 200, Some(500)),
            (Requeue::Soon, 0, Some(50)),
            (Requeue::Soon, 2, Some(200)),
            (Requeue::Soon, 200, Some(2_000)),
            (Requeue::ForPods, 0, Some(50)),
            (Requeue::ForPods, 10, Some(30_000)),
            (Requeue::Blocked, 0, Some(1_000)),
            (Requeue::Blocked, 63, Some(60_000)),
            (Requeue::ForCapacity, 7, Some(10_000)),
            (Requeue::Steady, 7, Some(30_000)),
            (Requeue::Never, 0, None),
        ];
        for (requeue, idle_rounds, expected) in cases {
            let got = delay(requeue, idle_rounds).map(|pause| pause.as_millis());
            assert_eq!(got, expected, "{requeue:?} after {idle_rounds}");
        }
        let after_conflicts = [1, 2, 3, 200].map(|count| after_conflict(count).as_millis());
        assert_eq!(after_conflicts, [100, 200, 400, 5_000]);
    }
}
