//! Pure: rolls back the active version of a policy if its calls fail too often.

use ipu_api::ipupolicy::{CallCounts, IPUPolicySpec, IPUPolicyStatus, Revision, RolledBack};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::HookReplicas;
use crate::report::spec_of;

/// Rolls back an active version that fails too often, if there is a previous version or mode.
pub(super) fn roll_back(status: &mut IPUPolicyStatus, replicas: &HookReplicas<'_>, now: Timestamp) {
    let Some(failing) = status.active.clone() else {
        return;
    };
    let Ok(spec) = spec_of(&failing) else {
        return;
    };
    let recent = replicas.counts(Some(failing.generation)).recent;
    if (!failing.promoted && status.previous.is_none()) || !fails_too_often(&spec, recent) {
        return;
    }
    let calls = recent.answered + recent.failed;
    status.rolled_back = Some(RolledBack {
        generation: failing.generation,
        digest: failing.digest.clone(),
        reason: format!(
            "{} of its last {calls} calls gave no usable answer",
            recent.failed
        ),
        at: Time(now),
    });
    status.active = if failing.promoted {
        Some(Revision {
            promoted: false,
            since: Time(now),
            ..failing
        })
    } else {
        status.previous.take().map(|previous| Revision {
            since: Time(now),
            ..previous
        })
    };
}

/// Whether a version was rolled back, so that it is not activated again.
pub(super) fn is_rolled_back(status: &IPUPolicyStatus, generation: i64) -> bool {
    let rolled_back = status.rolled_back.as_ref();
    rolled_back.is_some_and(|rolled_back| rolled_back.generation == generation)
}

fn fails_too_often(spec: &IPUPolicySpec, recent: CallCounts) -> bool {
    let limit = spec.rollback.unwrap_or_default();
    let calls = recent.answered + recent.failed;
    calls >= i64::from(limit.minimum_calls)
        && recent.failed > 0
        && recent.failed * 100 >= calls * i64::from(limit.failures_percent)
}
