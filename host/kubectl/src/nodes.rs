//! Pure: the nodes with IPUs, and the results of their checks, as ipu-node reports them on each
//! Node.

mod text;

#[cfg(test)]
mod tests;

use ipu_api::labels::{IPU_READY_CONDITION, IPU_RESOURCE, NODE_CHECKS_ANNOTATION};
use ipu_api::node_check::{CheckResult, Outcome};
use ipu_api::vipu_controller::VIPUController;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::ResourceExt;
use serde::Serialize;

use crate::condition::shown;

pub use text::{doctor, table};

/// Most checks of a node that are shown. Anybody who may write Nodes chooses their number.
const CHECKS_MAX: usize = 64;

/// Word for what is not known.
pub const UNKNOWN: &str = "Unknown";

/// A node, and whether Pods there can use IPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// Its name.
    pub node: String,
    /// Its label of a V-IPU controller, as `key=value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_label: Option<String>,
    /// The IPUs that it advertises.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipus: Option<String>,
    /// `True`, `False` or `Unknown`. Missing: it was never checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// Reason of the condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Message of the condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Time of the last change of the condition's status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The results of the checks.
    pub checks: Vec<CheckResult>,
}

impl NodeReport {
    /// Whether a check failed.
    pub fn has_failed(&self) -> bool {
        let is_failed = |check: &CheckResult| check.outcome == Outcome::Failed;
        self.ready.as_deref() == Some("False") || self.checks.iter().any(is_failed)
    }
}

/// The report of a node.
pub fn report(node: &Node, controllers: &[VIPUController]) -> NodeReport {
    let status = node.status.as_ref();
    let capacity = status.and_then(|status| status.capacity.as_ref());
    let ipus = capacity.and_then(|capacity| capacity.get(IPU_RESOURCE));
    let condition = condition(node);
    let text = |text: &Option<String>| text.as_deref().map(shown);
    NodeReport {
        node: shown(&node.name_any()),
        controller_label: label(node, controllers),
        ipus: ipus.map(|ipus| shown(&ipus.0)),
        ready: condition.map(|condition| shown(&condition.status)),
        reason: condition.and_then(|condition| text(&condition.reason)),
        message: condition.and_then(|condition| text(&condition.message)),
        since: condition
            .and_then(|condition| condition.last_transition_time.as_ref().map(|time| time.0)),
        checks: checks(node),
    }
}

/// The reports of the nodes that have something to do with IPUs, in the order of their names.
pub fn reports(nodes: &[Node], controllers: &[VIPUController]) -> Vec<NodeReport> {
    let reports = nodes.iter().map(|node| report(node, controllers));
    let has_ipus = |report: &NodeReport| {
        report.controller_label.is_some() || report.ipus.is_some() || report.ready.is_some()
    };
    let mut reports: Vec<_> = reports.filter(has_ipus).collect();
    reports.sort_by(|a, b| a.node.cmp(&b.node));
    reports
}

fn condition(node: &Node) -> Option<&NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions
        .iter()
        .find(|condition| condition.type_ == IPU_READY_CONDITION)
}

/// The label of the node that is that of a V-IPU controller.
fn label(node: &Node, controllers: &[VIPUController]) -> Option<String> {
    let labels = node.labels();
    let statuses = controllers
        .iter()
        .filter_map(|controller| controller.status.as_ref());
    let mut own =
        statuses.filter(|status| labels.get(&status.label_key) == Some(&status.label_value));
    let status = own.next()?;
    Some(shown(&format!(
        "{}={}",
        status.label_key, status.label_value
    )))
}

/// The results of the checks. An annotation that another version wrote in another form has none.
fn checks(node: &Node) -> Vec<CheckResult> {
    let annotation = node.annotations().get(NODE_CHECKS_ANNOTATION);
    let checks = annotation.and_then(|json| serde_json::from_str::<Vec<CheckResult>>(json).ok());
    let checks = checks.into_iter().flatten().take(CHECKS_MAX);
    let checks = checks.map(|check| CheckResult {
        check: shown(&check.check),
        outcome: check.outcome,
        message: shown(&check.message),
    });
    checks.collect()
}
