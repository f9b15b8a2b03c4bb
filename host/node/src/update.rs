//! Pure: the patch of a Node, if what it reports differs from the results of the checks.

use ipu_api::labels::{
    IPU_NOT_READY, IPU_READY_CONDITION, IPU_READY_LABEL, NODE_CHECKS_ANNOTATION,
};
use ipu_api::node_check::CheckResult;
use ipu_runtime::events::{Event, normal, warning};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::verdict::{Status, Verdict};

/// Action of the events.
const ACTION: &str = "Check";

/// A change of a Node.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// A strategic merge patch of its status. It contains the label and the annotation, so that one
    /// write changes all of them, and no right to the spec is needed.
    pub patch: Value,
    /// The event, if the status or the reason of the condition changes.
    pub event: Option<Event>,
}

/// Returns the change that makes a Node report these results. `None`: it does.
pub fn change(
    node: &Node,
    verdict: &Verdict,
    results: &[CheckResult],
    now: Timestamp,
) -> Option<Change> {
    let checks = json!(results).to_string();
    let label = label(verdict.status);
    let old = condition(node);
    let is_same_condition = old.is_some_and(|old| {
        old.status == verdict.status.word()
            && old.reason.as_deref() == Some(verdict.reason)
            && old.message.as_deref() == Some(&verdict.message)
    });
    let labels = node.metadata.labels.as_ref();
    let annotations = node.metadata.annotations.as_ref();
    let has_label = labels
        .and_then(|labels| labels.get(IPU_READY_LABEL))
        .map(String::as_str)
        == label;
    let has_checks = annotations.and_then(|all| all.get(NODE_CHECKS_ANNOTATION)) == Some(&checks);
    if is_same_condition && has_label && has_checks {
        return None;
    }
    let patch = json!({
        "metadata": {
            "uid": node.metadata.uid,
            "labels": {IPU_READY_LABEL: label},
            "annotations": {NODE_CHECKS_ANNOTATION: checks},
        },
        "status": {"conditions": [renewed(old, verdict, now)]},
    });
    let is_news = old.is_none_or(|old| {
        old.status != verdict.status.word() || old.reason.as_deref() != Some(verdict.reason)
    });
    Some(Change {
        patch,
        event: is_news.then(|| event(verdict)),
    })
}

/// The condition of this package.
fn condition(node: &Node) -> Option<&NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions
        .iter()
        .find(|condition| condition.type_ == IPU_READY_CONDITION)
}

/// The value of the label. `None`: the node has no label, and no scheduler avoids it.
fn label(status: Status) -> Option<&'static str> {
    match status {
        Status::True => Some("true"),
        Status::False => Some(IPU_NOT_READY),
        Status::Unknown => None,
    }
}

/// The condition. The time of its last transition moves only with its status.
fn renewed(old: Option<&NodeCondition>, verdict: &Verdict, now: Timestamp) -> NodeCondition {
    let same = old.filter(|old| old.status == verdict.status.word());
    let since = same.and_then(|old| old.last_transition_time.clone());
    NodeCondition {
        type_: IPU_READY_CONDITION.to_owned(),
        status: verdict.status.word().to_owned(),
        reason: Some(verdict.reason.to_owned()),
        message: Some(verdict.message.clone()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(since.unwrap_or(Time(now))),
    }
}

fn event(verdict: &Verdict) -> Event {
    let message = verdict.message.clone();
    match verdict.status {
        Status::True => normal(verdict.reason, ACTION, message),
        Status::False | Status::Unknown => warning(verdict.reason, ACTION, message),
    }
}

#[cfg(test)]
mod tests {
    use ipu_api::node_check::Outcome;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn results(outcome: Outcome) -> Vec<CheckResult> {
        vec![CheckResult {
            check: "rdma-link".to_owned(),
            outcome,
            message: "mlx5_0 port 1 is DOWN".to_owned(),
        }]
    }

    fn changed(node: &Node, outcome: Outcome, now: Timestamp) -> Option<Change> {
        let results = results(outcome);
        change(node, &Verdict::of(&results), &results, now)
    }

    /// The node after a patch. The list of conditions has one entry.
    fn patched(patch: &Value) -> Node {
        let mut node = patch.clone();
        if node["metadata"]["labels"][IPU_READY_LABEL].is_null() {
            node["metadata"]["labels"] = json!({});
        }
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn a_result_is_written_once() {
        let first = changed(&Node::default(), Outcome::Failed, at(1)).unwrap();
        assert_eq!(
            first.patch["metadata"]["labels"][IPU_READY_LABEL],
            json!("false")
        );
        let event = first.event.unwrap();
        assert_eq!((event.reason, event.is_warning), ("RDMALinkDown", true));
        let node = patched(&first.patch);
        assert_eq!(changed(&node, Outcome::Failed, at(2)), None);
        let second = changed(&node, Outcome::Ok, at(3)).unwrap();
        assert_eq!(
            second.patch["metadata"]["labels"][IPU_READY_LABEL],
            json!("true")
        );
        let time = &second.patch["status"]["conditions"][0]["lastTransitionTime"];
        assert_eq!(*time, json!(Time(at(3))));
        assert!(!second.event.unwrap().is_warning);
    }

    #[test]
    fn an_unknown_node_has_no_label() {
        let change = changed(&Node::default(), Outcome::Unknown, at(1)).unwrap();
        assert_eq!(
            change.patch["metadata"]["labels"],
            json!({IPU_READY_LABEL: null})
        );
        assert_eq!(
            changed(&patched(&change.patch), Outcome::Unknown, at(2)),
            None
        );
    }

    #[test]
    fn what_others_change_is_written_again_without_an_event() {
        let first = changed(&Node::default(), Outcome::Failed, at(1)).unwrap();
        let mut node = patched(&first.patch);
        node.metadata.labels = None;
        let again = changed(&node, Outcome::Failed, at(2)).unwrap();
        assert_eq!(again.event, None);
        let time = &again.patch["status"]["conditions"][0]["lastTransitionTime"];
        assert_eq!(*time, json!(Time(at(1))), "the status is the same");
    }
}
