//! The time by the clock of the API server, which writes the times in objects.
//!
//! The clocks of two replicas and of the control plane may differ by an hour. Then a deadline that
//! one replica wrote could already be over for the other, and a node that became unreachable now
//! could count as unreachable for long. So times in objects are compared with the clock of the API
//! server, and set by it. Each of its answers contains the time. Before the first answer, the clock
//! of this machine counts.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use http::HeaderMap;
use http::header::DATE;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};

/// Tolerated difference of the clocks. Answers contain whole seconds, and clocks with NTP differ by
/// less.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(5);

/// Smallest difference that is logged.
const WORTH_SAYING: SignedDuration = SignedDuration::from_mins(1);

/// Seconds by which the API server's clock is ahead of the clock of this machine.
static AHEAD: AtomicI64 = AtomicI64::new(0);

/// The time by the clock of the API server.
pub fn now() -> Timestamp {
    let own = Timestamp::now();
    own.saturating_add(ahead()).unwrap_or(own)
}

/// Adds a duration to a time. A time in an object can have any value up to the latest valid time.
pub fn later(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

/// The rest of a duration that began at `since`. A time in the future comes from a clock that was
/// set back meanwhile.
pub fn remaining(since: Timestamp, duration: SignedDuration, now: Timestamp) -> Option<Duration> {
    let until = later(since, duration);
    (since <= now && now < until).then(|| until.duration_since(now).unsigned_abs())
}

/// Reads the time of an answer. `asked` is the time of its request by the clock of this machine.
pub fn adjust(answer: &HeaderMap, asked: Timestamp) {
    let date = answer.get(DATE).and_then(|date| date.to_str().ok());
    let Some(sent) = date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok()) else {
        return;
    };
    let before = ahead();
    let after = corrected(before, sent, (asked, Timestamp::now()));
    if after == before {
        return;
    }
    AHEAD.store(after.as_secs(), Ordering::Relaxed);
    if (after - before).abs() >= WORTH_SAYING {
        let seconds = after.as_secs();
        tracing::warn!(
            seconds,
            "the clocks of the API server and of this machine differ; times in objects are the API server's"
        );
    }
}

fn ahead() -> SignedDuration {
    SignedDuration::from_secs(AHEAD.load(Ordering::Relaxed))
}

/// Computes how far the API server is ahead. Its answer was sent at `sent` by its clock, and
/// between the two other times by ours. The previous value stays while it can be correct: a process
/// that was paused receives old answers, which prove little.
fn corrected(
    before: SignedDuration,
    sent: Timestamp,
    (asked, came): (Timestamp, Timestamp),
) -> SignedDuration {
    let least = sent.duration_since(came) - TOLERANCE;
    let most = sent.duration_since(asked) + TOLERANCE;
    if least <= before && before <= most {
        return before;
    }
    // Most answers arrive as soon as they are sent.
    SignedDuration::from_secs(sent.duration_since(came).as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: SignedDuration = SignedDuration::from_hours(1);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    #[test]
    fn nothing_is_later_than_the_end_of_all_times() {
        assert_eq!(later(at(0), HOUR), at(3_600));
        assert_eq!(later(Timestamp::MAX, HOUR), Timestamp::MAX);
    }

    #[test]
    fn the_difference_of_the_clocks_is_believed_where_it_must_be() {
        let none = SignedDuration::ZERO;
        let seconds = SignedDuration::from_secs;
        for (why, before, sent, between, expected) in [
            ("whole seconds", none, at(-1), (at(0), at(0)), none),
            ("kept by NTP", none, at(4), (at(0), at(0)), none),
            ("an hour ahead", none, at(3600), (at(0), at(0)), HOUR),
            ("an hour behind", none, at(-3600), (at(0), at(0)), -HOUR),
            ("still an hour", HOUR, at(3601), (at(0), at(1)), HOUR),
            ("set right", HOUR, at(0), (at(0), at(0)), none),
            ("paused for an hour", none, at(0), (at(0), at(3600)), none),
            ("paused, and ahead", HOUR, at(3600), (at(0), at(7200)), HOUR),
            ("ten seconds", none, at(10), (at(0), at(0)), seconds(10)),
        ] {
            assert_eq!(corrected(before, sent, between), expected, "{why}");
        }
    }

    #[test]
    fn the_date_of_an_answer_is_read_as_go_writes_it() {
        let mut answer = HeaderMap::new();
        // The current time, so that it does not affect other tests of this process.
        let now = Timestamp::now();
        let date = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let parsed = DateTimeParser::new().parse_timestamp(&date).unwrap();
        assert_eq!(parsed.as_second(), now.as_second());
        answer.insert(DATE, date.parse().unwrap());
        adjust(&answer, now);
        answer.insert(DATE, "malformed".parse().unwrap());
        adjust(&answer, now);
        assert_eq!(ahead(), SignedDuration::ZERO);
    }
}
