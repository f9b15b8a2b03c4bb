//! Pure: which periods of an accounting lie in the time that a user asks about.

use std::str::FromStr;

use ipu_api::accounting::{Accounting, Period};
use jiff::{SignedDuration, Timestamp};

/// Most hours that are summed up from the periods of an hour, of which an accounting keeps 25.
const HOURS_MAX: u32 = 25;

/// Most days: an accounting keeps 32 periods of a day, and today is one of them.
const DAYS_MAX: u32 = 31;

/// Seconds of the two kinds of periods.
const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

/// Age of the first period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// So many hours.
    Hours(u32),
    /// So many days.
    Days(u32),
    /// As long as the V-IPU controllers are counted.
    All,
}

/// A text that names no such time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not a time that the accounting keeps: give hours or days such as 24h or 7d, {DAYS_MAX}d at most, or all"
)]
pub struct SinceError(String);

impl FromStr for Since {
    type Err = SinceError;

    fn from_str(text: &str) -> Result<Self, SinceError> {
        let number = |unit: char| text.strip_suffix(unit)?.parse::<u32>().ok();
        let since = match (number('h'), number('d')) {
            (Some(hours), _) => Self::Hours(hours),
            (_, Some(days)) => Self::Days(days),
            _ if text == "all" => Self::All,
            _ => return Err(SinceError(text.to_owned())),
        };
        let is_kept = match since {
            Self::Hours(hours) => (1..=24 * DAYS_MAX).contains(&hours),
            Self::Days(days) => (1..=DAYS_MAX).contains(&days),
            Self::All => true,
        };
        is_kept
            .then_some(since)
            .ok_or_else(|| SinceError(text.to_owned()))
    }
}

impl Since {
    /// The periods that end after that time. They are whole: the first one can begin earlier.
    pub(super) fn periods(self, accounting: &Accounting, now: Timestamp) -> Vec<&Period> {
        let (seconds, length, periods) = match self {
            Self::All => return vec![&accounting.total],
            Self::Hours(hours) if hours <= HOURS_MAX => {
                (i64::from(hours) * HOUR, HOUR, &accounting.hours)
            }
            Self::Hours(hours) => (i64::from(hours) * HOUR, DAY, &accounting.days),
            Self::Days(days) => (i64::from(days) * DAY, DAY, &accounting.days),
        };
        let before_first = now - SignedDuration::from_secs(seconds + length);
        let periods = periods.iter();
        periods
            .filter(|period| period.start.0 > before_first)
            .collect()
    }

    /// Returns the start of that time. `None`: everything counts.
    pub(super) fn begin(self, now: Timestamp) -> Option<Timestamp> {
        let seconds = match self {
            Self::Hours(hours) => i64::from(hours) * HOUR,
            Self::Days(days) => i64::from(days) * DAY,
            Self::All => return None,
        };
        Some(now - SignedDuration::from_secs(seconds))
    }

    /// The kind of these periods.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::All => "total",
            Self::Hours(hours) if hours <= HOURS_MAX => "hour",
            Self::Hours(_) | Self::Days(_) => "day",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_hours_or_days_or_all_of_it() {
        for (text, expected) in [
            ("1h", Some(Since::Hours(1))),
            ("24h", Some(Since::Hours(24))),
            ("744h", Some(Since::Hours(744))),
            ("7d", Some(Since::Days(7))),
            ("31d", Some(Since::Days(31))),
            ("all", Some(Since::All)),
            ("745h", None),
            ("32d", None),
            ("0h", None),
            ("7", None),
            ("-1d", None),
            ("h", None),
            ("", None),
        ] {
            assert_eq!(text.parse::<Since>().ok(), expected, "{text}");
        }
    }
}
