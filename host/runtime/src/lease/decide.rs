//! Pure: decides the next action of a replica that competes for a Lease.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// The action of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Create the Lease, which does not exist.
    Create,
    /// Write the Lease if it has not changed meanwhile. This replica holds it, or no replica does.
    Acquire,
    /// Wait, because another replica holds the Lease.
    Wait,
}

/// Decides the next action of the replica `identity`, which has observed the Lease unchanged for
/// this time.
pub(super) fn next_action(lease: Option<&Lease>, identity: &str, unchanged: Duration) -> Action {
    let Some(lease) = lease else {
        return Action::Create;
    };
    match holder(lease) {
        Some(holder) if holder != identity && unchanged < duration(lease) => Action::Wait,
        Some(_) | None => Action::Acquire,
    }
}

/// Returns the holder of a Lease, if there is one.
pub(super) fn holder(lease: &Lease) -> Option<&str> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
    Some(holder).filter(|holder| !holder.is_empty())
}

/// Builds the spec of a Lease that `identity` holds.
pub(super) fn spec(
    old: Option<&LeaseSpec>,
    identity: &str,
    lease_duration: Duration,
    now: Timestamp,
) -> LeaseSpec {
    let old = old.cloned().unwrap_or_default();
    let is_mine = old.holder_identity.as_deref() == Some(identity);
    let count = old.lease_transitions.unwrap_or(0);
    LeaseSpec {
        acquire_time: old
            .acquire_time
            .filter(|_| is_mine)
            .or(Some(MicroTime(now))),
        renew_time: Some(MicroTime(now)),
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: Some(
            i32::try_from(lease_duration.as_secs().max(1)).unwrap_or(i32::MAX),
        ),
        lease_transitions: Some(if is_mine {
            count
        } else {
            count.saturating_add(1)
        }),
        ..LeaseSpec::default()
    }
}

/// Builds the spec of a released Lease.
pub(super) fn released(old: Option<&LeaseSpec>, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(String::new()),
        renew_time: Some(MicroTime(now)),
        ..old.cloned().unwrap_or_default()
    }
}

/// Returns the duration of a Lease. An invalid one counts as the shortest.
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
    fn a_lease_of_another_replica_is_acquired_only_after_it_was_unchanged_for_its_duration() {
        let at = Duration::from_secs;
        let cases = [
            (None, 0, Action::Create),
            (Some(held("me", 15)), 0, Action::Acquire),
            (Some(held("", 15)), 0, Action::Acquire),
            (Some(held("other", 15)), 0, Action::Wait),
            (Some(held("other", 15)), 14, Action::Wait),
            (Some(held("other", 15)), 15, Action::Acquire),
            (Some(held("other", -1)), 0, Action::Wait),
            (Some(held("other", -1)), 1, Action::Acquire),
            (Some(Lease::default()), 0, Action::Acquire),
        ];
        for (lease, unchanged, expected) in cases {
            let got = next_action(lease.as_ref(), "me", at(unchanged));
            assert_eq!(got, expected, "{lease:?} unchanged for {unchanged} s");
        }
    }

    #[test]
    fn a_renewal_keeps_the_acquire_time_and_the_transitions() {
        let (first, later) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
        let ttl = Duration::from_secs(15);
        let taken = spec(held("other", 15).spec.as_ref(), "me", ttl, first);
        assert_eq!(taken.lease_transitions, Some(5));
        let renewed = spec(Some(&taken), "me", ttl, later);
        assert_eq!(renewed.acquire_time, Some(MicroTime(first)));
        assert_eq!(renewed.renew_time, Some(MicroTime(later)));
        assert_eq!(renewed.lease_transitions, Some(5));
        let released = Lease {
            spec: Some(released(Some(&renewed), later)),
            ..Lease::default()
        };
        assert_eq!(holder(&released), None);
    }
}
