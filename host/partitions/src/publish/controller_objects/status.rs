//! Pure: the status of a VIPUController.

use ipu_api::condition;
use ipu_api::vipu_controller::{
    ControllerFailures, ControllerIpus, CordonState, VIPUControllerStatus,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};
use vipu_client::controllers::KEY;

use super::fit::Fit;
use crate::controllers::summary::Summary;

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
    /// Number of its partitions of the operator, also of other releases.
    pub partitions: usize,
    /// Number of their requests with an unknown result on the controller.
    pub unsettled: usize,
    /// Whether partitions of this release are on it, or may be.
    pub is_used: bool,
    /// The first name of the controller in the list, if this is a second one.
    pub duplicate_of: Option<String>,
    /// State of a listed controller. `None`: it has left the list, or counts under its first name.
    pub listed: Option<Listed>,
}

/// State of a listed controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    /// Its figures.
    pub summary: Summary,
    /// Number of nodes that reach it.
    pub nodes: usize,
    /// Time of its last failure within a day.
    pub last_failure: Option<Timestamp>,
    /// The largest new request that fits on it.
    pub fit: Fit,
}

/// Request of an admin in the spec of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ObservedSpec {
    pub cordon_state: Option<CordonState>,
    /// The generation of this spec. `None`: the object is not there yet.
    pub generation: Option<i64>,
}

/// Difference between a status and the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Not at all.
    Nothing,
    /// In figures or messages.
    Figures,
    /// In the state of a condition, in the summary, which also has the cordon, or in the spec that
    /// `Drained` is about.
    State,
}

/// The status of a controller at `now`. Unknown fields keep their previous values.
pub(super) fn desired(
    observed: &Observed,
    before: Option<&VIPUControllerStatus>,
    spec: ObservedSpec,
    now: Timestamp,
) -> VIPUControllerStatus {
    let mut status = before.cloned().unwrap_or_default();
    status.address.clone_from(&observed.address);
    status.partitions = number(observed.partitions);
    if let Some(listed) = &observed.listed {
        set_figures(&mut status, listed);
    } else {
        // Nothing is placed there any more.
        status.ipus.largest_free = 0;
        status.free_ipus = None;
        if observed.duplicate_of.is_some() {
            // A sum over all objects counts each IPU once.
            (status.ipus, status.other_partitions) = (ControllerIpus::default(), 0);
        }
        set_fit(&mut status, &Fit::default());
    }
    status.summary = summary(observed, spec.cordon_state);
    status.conditions = conditions(observed, &status.conditions, spec, now);
    status
}

/// The kind of change from the previous status.
pub(super) fn change(
    before: Option<&VIPUControllerStatus>,
    after: &VIPUControllerStatus,
) -> Change {
    let states = |status: &VIPUControllerStatus| {
        let conditions = status.conditions.iter();
        let states = conditions.map(|one| {
            // A client that drains the controller waits for this generation of the condition. No
            // client waits for the others.
            let is_awaited = one.type_ == DRAINED;
            let generation = one.observed_generation.filter(|_| is_awaited);
            let words = [&one.type_, &one.status, &one.reason].map(String::clone);
            (words, generation)
        });
        (status.summary.clone(), states.collect::<Vec<_>>())
    };
    match before {
        Some(before) if before == after => Change::Nothing,
        Some(before) if states(before) == states(after) => Change::Figures,
        _ => Change::State,
    }
}

/// The merge patch that writes this status.
pub(super) fn patch(uid: &str, status: &VIPUControllerStatus) -> Value {
    let mut patch = json!({"metadata": {"uid": uid}, "status": status});
    let fields = &mut patch["status"];
    remove_missing(
        fields,
        &[
            "serverVersion",
            "labelKey",
            "labelValue",
            "freeIpus",
            "reservedFor",
        ],
    );
    remove_missing(&mut fields["lastDay"], &["last"]);
    patch
}

/// A merge patch removes only fields that it sets to null.
fn remove_missing(fields: &mut Value, names: &[&str]) {
    for name in names {
        if fields.get(name).is_none() {
            fields[*name] = Value::Null;
        }
    }
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
        status.free_ipus.clone_from(&summary.free_ipus);
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
        None if observed.duplicate_of.is_some() => "Duplicate",
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
    spec: ObservedSpec,
    now: Timestamp,
) -> Vec<Condition> {
    let conditions = Conditions {
        before,
        generation: spec.generation,
        now: whole_seconds(now),
    };
    let not_listed = |type_: &str| {
        let (reason, message) = match &observed.duplicate_of {
            Some(first) => ("SecondName", second_name(&observed.address, first)),
            None => (
                "ControllerNotListed",
                why_kept(observed, spec.cordon_state).to_owned(),
            ),
        };
        conditions.renewed_condition(type_, false, reason, message)
    };
    let ready = match observed
        .listed
        .as_ref()
        .map(|of_list| &of_list.summary.reason)
    {
        None => not_listed(READY),
        Some(None) => {
            conditions.renewed_condition(READY, true, "Reachable", "it answers".to_owned())
        }
        Some(Some(cause)) => {
            conditions.renewed_condition(READY, false, "Unreachable", cause.clone())
        }
    };
    let listed = match observed.listed {
        None => not_listed(LISTED),
        Some(_) => conditions.renewed_condition(
            LISTED,
            true,
            "ControllerListed",
            "it is in the list of V-IPU controllers".to_owned(),
        ),
    };
    let is_draining = spec.cordon_state == Some(CordonState::Draining);
    let drained = is_draining.then(|| match observed.duplicate_of {
        // Its partitions are counted under the first name, so nobody may take it for empty.
        Some(_) => not_listed(DRAINED),
        None => conditions.drained(observed),
    });
    [ready, listed].into_iter().chain(drained).collect()
}

/// Renews conditions.
struct Conditions<'a> {
    before: &'a [Condition],
    generation: Option<i64>,
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
        let renewed = condition::renewed(self.before, type_, is_true, (reason, message), self.now);
        Condition {
            observed_generation: self.generation,
            ..renewed
        }
    }

    /// A request may have created a partition as long as its outcome is unknown.
    fn drained(&self, observed: &Observed) -> Condition {
        let (count, unsettled) = (observed.partitions, observed.unsettled);
        let mut message = format!("partitions of the operator that are left on it: {count}");
        if unsettled > 0 {
            let more = format!("; requests that may have created another one: {unsettled}");
            message.push_str(&more);
        }
        if count + unsettled == 0 {
            self.renewed_condition(DRAINED, true, "NoPartitionsLeft", message)
        } else {
            self.renewed_condition(DRAINED, false, "PartitionsLeft", message)
        }
    }
}

/// The message of an entry of the list that names a controller a second time.
fn second_name(address: &str, first: &str) -> String {
    format!(
        "{address} and {first} in the list of V-IPU controllers are one V-IPU controller: both list the same partitions \
         of the operator. Only {first} counts, because it comes first, and a cordon or drain of {address} has no effect; remove \
         the entry of {address} from {KEY} in the ConfigMap of the list (global.vipuControllers of the chart)"
    )
}

/// Reason why a controller that is not in the list still has an object.
fn why_kept(observed: &Observed, cordon_state: Option<CordonState>) -> &'static str {
    if observed.is_used {
        return "it has left the list of V-IPU controllers, and partitions of the operator are still on it";
    }
    match cordon_state {
        Some(_) => {
            "it is not in the list of V-IPU controllers, and its object keeps the cordon; uncordon it, and the \
             operator deletes the object"
        }
        None => {
            "it is not in the list of V-IPU controllers, and entries of the list cannot be read; the log of the \
             vipu-proxy names them"
        }
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
