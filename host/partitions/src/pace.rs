//! Pure: how long to rest before an IPUPartition is looked at again.

use std::time::Duration;

use super::step::Pace;

/// How long to rest, the `rests`-th time in a row that nothing was done (from 0). None means until
/// the object changes.
pub(super) fn rest(pace: Pace, rests: u32) -> Option<Duration> {
    match pace {
        Pace::Soon => Some(doubling(50, rests, 2_000)),
        Pace::ForRoom => Some(Duration::from_secs(10)),
        Pace::Blocked => Some(doubling(1_000, rests, 60_000)),
        Pace::Steady => Some(Duration::from_secs(30)),
        Pace::Never => None,
    }
}

fn doubling(first: u64, times: u32, most: u64) -> Duration {
    let factor = 1_u64.checked_shl(times).unwrap_or(u64::MAX);
    Duration::from_millis(first.saturating_mul(factor).min(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound() {
        let cases = [
            (Pace::Soon, 0, Some(50)),
            (Pace::Soon, 2, Some(200)),
            (Pace::Soon, 200, Some(2_000)),
            (Pace::Blocked, 0, Some(1_000)),
            (Pace::Blocked, 63, Some(60_000)),
            (Pace::ForRoom, 7, Some(10_000)),
            (Pace::Steady, 7, Some(30_000)),
            (Pace::Never, 0, None),
        ];
        for (pace, rests, expected) in cases {
            let got = rest(pace, rests).map(|pause| pause.as_millis());
            assert_eq!(got, expected, "{pace:?} after {rests}");
        }
    }
}
