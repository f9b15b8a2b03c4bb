//! Pure: how long ago something was, in the form of `kubectl get`.

use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// The time from `since` to `now`, in one unit. A time in the future, of another clock, counts as
/// now.
pub fn age(since: Timestamp, now: Timestamp) -> String {
    length(now.duration_since(since).as_secs())
}

/// A number of seconds, in one unit.
pub fn length(seconds: i64) -> String {
    let seconds = seconds.max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / MINUTE),
        7_200..172_800 => format!("{}h", seconds / HOUR),
        _ => format!("{}d", seconds / DAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_one_unit() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (seconds, expected) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7_199, "119m"),
            (7_200, "2h"),
            (172_799, "47h"),
            (172_800, "2d"),
        ] {
            assert_eq!(age(at(0), at(seconds)), expected);
        }
    }
}
