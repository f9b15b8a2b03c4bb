//! Pure: who holds a Lease, and what a replica that wants it does next.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// What a replica does about a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// There is none: make it.
    Create,
    /// It is this replica's own, or nobody's: write it, unless it changes meanwhile.
    Take,
    /// Another replica holds it.
    Wait,
}

/// What `me` does next, having seen the Lease unchanged for this long.
pub(super) fn next(lease: Option<&Lease>, me: &str, unchanged: Duration) -> Move {
    let Some(lease) = lease else {
        return Move::Create;
    };
    match holder(lease) {
        Some(holder) if holder != me && unchanged < duration(lease) => Move::Wait,
        Some(_) | None => Move::Take,
    }
}

/// Who holds it, if anybody.
pub(super) fn holder(lease: &Lease) -> Option<&str> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
    Some(holder).filter(|holder| !holder.is_empty())
}

/// The Lease in the hand of `me`. Its transitions are counted, for people.
pub(super) fn spec(old: Option<&LeaseSpec>, me: &str, ttl: Duration, now: Timestamp) -> LeaseSpec {
    let old = old.cloned().unwrap_or_default();
    let is_mine = old.holder_identity.as_deref() == Some(me);
    let count = old.lease_transitions.unwrap_or(0);
    LeaseSpec {
        acquire_time: old
            .acquire_time
            .filter(|_| is_mine)
            .or(Some(MicroTime(now))),
        renew_time: Some(MicroTime(now)),
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: Some(i32::try_from(ttl.as_secs().max(1)).unwrap_or(i32::MAX)),
        lease_transitions: Some(if is_mine {
            count
        } else {
            count.saturating_add(1)
        }),
        ..LeaseSpec::default()
    }
}

/// The Lease in nobody's hand.
pub(super) fn released(old: Option<&LeaseSpec>, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(String::new()),
        renew_time: Some(MicroTime(now)),
        ..old.cloned().unwrap_or_default()
    }
}

/// For how long it holds; what is no sensible number counts as the shortest.
fn duration(lease: &Lease) -> Duration {
    let seconds = lease
        .spec
        .as_ref()
        .and_then(|spec| spec.lease_duration_seconds);
    Duration::from_secs(
        seconds
            .and_then(|given| u64::try_from(given).ok())
            .unwrap_or(1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(by: &str, seconds: i32) -> Lease {
        Lease {
            spec: Some(LeaseSpec {
                holder_identity: Some(by.to_owned()),
                lease_duration_seconds: Some(seconds),
                lease_transitions: Some(4),
                ..LeaseSpec::default()
            }),
            ..Lease::default()
        }
    }

    #[test]
    fn only_a_lease_that_was_seen_unchanged_for_its_time_is_taken_from_another() {
        let at = Duration::from_secs;
        let cases = [
            (None, 0, Move::Create),
            (Some(held("me", 15)), 0, Move::Take),
            (Some(held("", 15)), 0, Move::Take),
            (Some(held("other", 15)), 0, Move::Wait),
            (Some(held("other", 15)), 14, Move::Wait),
            (Some(held("other", 15)), 15, Move::Take),
            (Some(held("other", -1)), 0, Move::Wait),
            (Some(held("other", -1)), 1, Move::Take),
            (Some(Lease::default()), 0, Move::Take),
        ];
        for (lease, unchanged, expected) in cases {
            let got = next(lease.as_ref(), "me", at(unchanged));
            assert_eq!(got, expected, "{lease:?} unchanged for {unchanged} s");
        }
    }

    #[test]
    fn a_renewal_keeps_the_time_of_the_takeover_and_the_count() {
        let (first, later) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
        let ttl = Duration::from_secs(15);
        let taken = spec(held("other", 15).spec.as_ref(), "me", ttl, first);
        assert_eq!(taken.lease_transitions, Some(5));
        let renewed = spec(Some(&taken), "me", ttl, later);
        assert_eq!(renewed.acquire_time, Some(MicroTime(first)));
        assert_eq!(renewed.renew_time, Some(MicroTime(later)));
        assert_eq!(renewed.lease_transitions, Some(5));
        let given = Lease {
            spec: Some(released(Some(&renewed), later)),
            ..Lease::default()
        };
        assert_eq!(holder(&given), None);
    }
}
