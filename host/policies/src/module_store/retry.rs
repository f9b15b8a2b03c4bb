//! The time of the next attempt to prepare a failed version.

use std::time::Duration;

use tokio::time::Instant;

use super::Failure;

/// First delay before a failed source is fetched again; it doubles after each failure.
pub(super) const RETRY_MIN: Duration = Duration::from_secs(2);

/// Longest delay before a failed source is fetched again.
pub(super) const RETRY_MAX: Duration = Duration::from_mins(1);

/// The next attempt to prepare a failed version.
#[derive(Clone, Copy, Debug)]
pub(super) enum Retry {
    /// It is under way.
    UnderWay,
    /// It begins at this time, or when the admin requests it.
    At(Instant),
    /// It begins when the admin requests it.
    OnRequest,
}

impl Retry {
    /// Returns the next attempt after a failure that came after this number of others.
    pub(super) fn after(failure: &Failure, earlier: u32, longest: Duration, now: Instant) -> Self {
        if !failure.is_retryable {
            return Self::OnRequest;
        }
        let delay = RETRY_MIN.saturating_mul(1 << earlier.min(6));
        Self::At(now + delay.min(longest))
    }

    /// Whether the attempt must begin.
    pub(super) fn is_due(self, is_requested: bool, now: Instant) -> bool {
        match self {
            Self::UnderWay => false,
            Self::At(retry_at) => retry_at <= now || is_requested,
            Self::OnRequest => is_requested,
        }
    }

    /// Returns the time at which the attempt begins by itself.
    pub(super) fn time(self) -> Option<Instant> {
        match self {
            Self::At(retry_at) => Some(retry_at),
            Self::UnderWay | Self::OnRequest => None,
        }
    }
}
