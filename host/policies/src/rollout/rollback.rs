//! Pure: rolls back the active version of a policy if its calls fail too often.
//!
//! The previous version can admit what the active one denies. So a rollback never ends an enforced
//! rule, it needs failures that no single tenant can cause, and it is possible only for a time.

use ipu_api::ipupolicy::{IPUPolicyStatus, Mode, Revision, RollbackOptions, RolledBack};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{FAILING_NAMESPACES, FAILING_USERS, HookReplicas};
use crate::report::{Counts, spec_of};

/// Rolls back an active version that fails too often, if the operator may return to the previous
/// version.
pub(super) fn roll_back(status: &mut IPUPolicyStatus, replicas: &HookReplicas<'_>, now: Timestamp) {
    let (Some(failing), Some(previous)) = (status.active.clone(), status.previous.clone()) else {
        return;
    };
    let Some(options) =
        options(&failing).filter(|options| is_possible(*options, &failing, &previous, now))
    else {
        return;
    };
    let counts = replicas.counts(Some(failing.generation));
    if !fails_too_often(options, &counts) {
        return;
    }
    // A replica refuses a previous version whose keys have been removed: it would decide nothing.
    if replicas.problem(previous.generation, true).is_some() {
        return;
    }
    let calls = counts.recent.answered + counts.recent.failed;
    status.rolled_back = Some(RolledBack {
        generation: failing.generation,
        digest: failing.digest,
        reason: format!(
            "{} of its last {calls} calls gave no usable answer, in at least {FAILING_NAMESPACES} namespaces",
            counts.recent.failed
        ),
        at: Time(now),
    });
    status.previous = None;
    status.active = Some(Revision {
        since: Time(now),
        ..previous
    });
}

/// Drops the previous version once the operator cannot return to it, so that replicas do not keep
/// its module.
pub(super) fn drop_previous(status: &mut IPUPolicyStatus, now: Timestamp) {
    let Some(active) = &status.active else {
        return;
    };
    // A version of the operator that can read the active version decides about the previous one.
    if spec_of(active).is_err() {
        return;
    }
    let options = options(active);
    status.previous = status.previous.take().filter(|previous| {
        options.is_some_and(|options| is_possible(options, active, previous, now))
    });
}

/// Whether a version was rolled back, so that it is not activated again.
pub(super) fn is_rolled_back(status: &IPUPolicyStatus, generation: i64) -> bool {
    let rolled_back = status.rolled_back.as_ref();
    rolled_back.is_some_and(|rolled_back| rolled_back.generation == generation)
}

fn options(active: &Revision) -> Option<RollbackOptions> {
    spec_of(active).ok()?.automatic_rollback()
}

fn is_possible(
    options: RollbackOptions,
    active: &Revision,
    previous: &Revision,
    now: Timestamp,
) -> bool {
    let within = SignedDuration::from_secs(options.within_seconds.into());
    let is_in_time = now.duration_since(active.since.0) <= within;
    is_in_time && (is_enforced(previous) || !is_enforced(active))
}

fn is_enforced(revision: &Revision) -> bool {
    revision.promoted || spec_of(revision).is_ok_and(|spec| spec.mode == Mode::Enforce)
}

fn fails_too_often(options: RollbackOptions, counts: &Counts) -> bool {
    let recent = counts.recent;
    let calls = recent.answered + recent.failed;
    counts.failing_namespaces.len() >= FAILING_NAMESPACES
        && counts.failing_users.len() >= FAILING_USERS
        && calls >= i64::from(options.minimum_calls)
        && recent.failed * 100 >= calls * i64::from(options.failures_percent)
}
