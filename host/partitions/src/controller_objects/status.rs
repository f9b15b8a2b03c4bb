//! Pure: the status of a VIPUController.

use ipu_api::condition;
use ipu_api::vipu_controller::{ControllerFailures, ControllerIpus, VIPUControllerStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};
use vipu_client::cordon::CordonState;

use super::fit::Fit;
use crate::controller_summary::Summary;

/// Condition: the controller answers.
pub(super) const READY: &str = "Ready";

/// Condition: the controller is in the admin's list.
pub(super) const LISTED: &str = "Listed";

/// Condition: the controller is being drained, and has no partition of the operator left.
pub(super) const DRAINED: &str = "Drained";

/// A V-IPU controller that has an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Observed {
    /// `host:port`.
    pub address: String,
    /// How many partitions of the operator it has, also of other releases.
    pub partitions: usize,
    /// What is known of a controller of the list. `None`: it has left the list.
    pub listed: Option<Listed>,
}

/// What is known of a controller of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    /// Its figures.
    pub summary: Summary,
    /// How many nodes reach it.
    pub nodes: usize,
    /// When its last failure within a day was.
    pub last_failure: Option<Timestamp>,
    /// What a new request would get on it.
    pub fit: Fit,
}

/// How a status differs from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Not at all.
    Nothing,
    /// In figures or messages.
    Figures,
    /// In the state of a condition, or in the summary, which also has the cordon.
    State,
}

/// The status of a controller at `now`. What is not known keeps the values of the status before.
pub(super) fn desired(
    observed: &Observed,
    before: Option<&VIPUControllerStatus>,
    cordon_state: Option<CordonState>,
    now: Timestamp,
) -> VIPUControllerStatus {
    let mut status = before.cloned().unwrap_or_default();
    status.address.clone_from(&observed.address);
    status.partitions = number(observed.partitions);
    match &observed.listed {
        Some(listed) => set_figures(&mut status, listed),
        // Nothing is placed there any more.
        None => {
            status.ipus.largest_free = 0;
            set_fit(&mut status, &Fit::default());
        }
    }
    status.summary = summary(observed, cordon_state);
    status.conditions = conditions(observed, &status.conditions, cordon_state, now);
    status
}

/// What a status changes in the one before.
pub(super) fn change(
    before: Option<&VIPUControllerStatus>,
    after: &VIPUControllerStatus,
) -> Change {
    let states = |status: &VIPUControllerStatus| {
        let conditions = status.conditions.iter();
        let states =
            conditions.map(|one| [&one.type_, &one.status, &one.reason].map(String::clone));
        (status.summary.clone(), states.collect::<Vec<_>>())
    };
    match before {
        Some(before) if before == after => Change::Nothing,
        Some(before) if states(before) == states(after) => Change::Figures,
        _ => Change::State,
    }
}

/// The merge patch that writes this status. It leaves `accounting` as it is.
pub(super) fn patch(uid: &str, status: &VIPUControllerStatus) -> Value {
    let mut patch = json!({"metadata": {"uid": uid}, "status": status});
    let fields = &mut patch["status"];
    // A merge patch removes only what it names.
    for optional in ["serverVersion", "labelKey", "labelValue", "reservedFor"] {
        if fields.get(optional).is_none() {
            fields[optional] = Value::Null;
        }
    }
    if status.last_day.last.is_none() {
        fields["lastDay"]["last"] = Value::Null;
    }
    patch
}

fn set_figures(status: &mut VIPUControllerStatus, listed: &Listed) {
    let Listed {
        summary,
        nodes,
        last_failure,
        fit,
    } = listed;
    status.label_key.clone_from(&summary.label_key);
    status.label_value.clone_from(&summary.label_value);
    status.nodes = number(*nodes);
    status.server_version.clone_from(&summary.server_version);
    status.last_day = ControllerFailures {
        failed_partitions: summary.failure_stats.failed_partitions,
        auto_resets: summary.failure_stats.auto_resets,
        last: last_failure.map(|last| Time(whole_seconds(last))),
    };
    if summary.reachable {
        status.other_partitions = number(summary.other_count);
        status.ipus = ControllerIpus {
            total: summary.total_ipus,
            used: summary.used_ipus,
            used_by_others: summary.used_by_others,
            largest_free: summary.largest_free,
            largest_fit: None,
        };
    }
    set_fit(status, fit);
}

fn set_fit(status: &mut VIPUControllerStatus, fit: &Fit) {
    status.ipus.largest_fit = Some(fit.largest);
    status.reserved_for.clone_from(&fit.reserved_for);
}

/// The state in words, as `kubectl get nodes` shows it.
fn summary(observed: &Observed, cordon_state: Option<CordonState>) -> String {
    let state = match &observed.listed {
        None => "Unlisted",
        Some(listed) if listed.summary.reachable => "Ready",
        Some(_) => "NotReady",
    };
    let cordon = match cordon_state {
        None => "",
        Some(CordonState::Cordoned) => ",Cordoned",
        Some(CordonState::Draining) => ",Draining",
    };
    format!("{state}{cordon}")
}

fn conditions(
    observed: &Observed,
    before: &[Condition],
    cordon_state: Option<CordonState>,
    now: Timestamp,
) -> Vec<Condition> {
    let conditions = Conditions {
        before,
        now: whole_seconds(now),
    };
    let ready = match observed
        .listed
        .as_ref()
        .map(|of_list| &of_list.summary.reason)
    {
        None => conditions.not_listed(READY),
        Some(None) => {
            conditions.renewed_condition(READY, true, "Reachable", "it answers".to_owned())
        }
        Some(Some(cause)) => {
            conditions.renewed_condition(READY, false, "Unreachable", cause.clone())
        }
    };
    let listed = match observed.listed {
        None => conditions.not_listed(LISTED),
        Some(_) => conditions.renewed_condition(
            LISTED,
            true,
            "ControllerListed",
            "it is in the list of V-IPU controllers".to_owned(),
        ),
    };
    let drained = (cordon_state == Some(CordonState::Draining)).then(|| {
        let count = observed.partitions;
        let message = format!("partitions of the operator that are left on it: {count}");
        if count == 0 {
            conditions.renewed_condition(DRAINED, true, "NoPartitionsLeft", message)
        } else {
            conditions.renewed_condition(DRAINED, false, "PartitionsLeft", message)
        }
    });
    [ready, listed].into_iter().chain(drained).collect()
}

/// Renews conditions.
struct Conditions<'a> {
    before: &'a [Condition],
    now: Timestamp,
}

impl Conditions<'_> {
    fn renewed_condition(
        &self,
        type_: &str,
        is_true: bool,
        reason: &str,
        message: String,
    ) -> Condition {
        condition::renewed(self.before, type_, is_true, (reason, message), self.now)
    }

    fn not_listed(&self, type_: &str) -> Condition {
        let message = "it has left the list of V-IPU controllers, and partitions of the operator are still on it";
        self.renewed_condition(type_, false, "ControllerNotListed", message.to_owned())
    }
}

/// A time in a status has whole seconds; one with more would differ from it for ever.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
