//! Pure: what needs somebody: V-IPU controllers, nodes that reach them, and partitions, with the
//! worst first.

use ipu_api::ipupartition::PartitionPhase;
use jiff::Timestamp;
use serde::Serialize;

use crate::cluster::Cluster;
use crate::past::Sample;
use crate::projection::{Controller, Node, Partition};

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// IPUs cannot be used, and nobody wanted that.
    Failure,
    /// Something failed, or is about to.
    Warning,
    /// Somebody wanted it, or it has passed.
    Notice,
}

/// The kind of an object with a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// A V-IPU controller, by its address.
    Controller,
    /// A node.
    Node,
    /// An IPUPartition.
    Partition,
}

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// The kind of the object.
    pub subject: Subject,
    /// Its name.
    pub name: String,
    /// The problem, as a sentence without the name.
    pub message: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The V-IPU controller that has it or that it reaches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
}

/// All problems, the worst first. `namespace`: of partitions, those of its owners alone.
pub(super) fn problems(cluster: &Cluster, namespace: Option<&str>) -> Vec<Problem> {
    let controllers = cluster.controllers.values();
    let of_controllers = controllers.clone().flat_map(of_controller);
    let nodes = cluster.nodes.values();
    let of_nodes = nodes.filter_map(|node| {
        let mut controllers = controllers.clone();
        let controller = controllers.find(|controller| node.has(&controller.label))?;
        of_node(node, &controller.address)
    });
    let partitions = cluster.partitions.values();
    let is_shown =
        |partition: &&Partition| namespace.is_none_or(|name| partition.owner.namespace == name);
    let of_partitions = partitions.filter(is_shown).filter_map(of_partition);
    let mut all: Vec<_> = of_controllers
        .chain(of_nodes)
        .chain(of_partitions)
        .collect();
    all.sort();
    all
}

/// Whether a problem needs somebody: nobody wanted it.
pub(super) fn needs_somebody(problem: &Problem) -> bool {
    problem.severity != Severity::Notice
}

/// The numbers of this moment. `None`: the user may not read them, or they are not listed yet.
pub fn sample(cluster: &Cluster) -> Option<Sample> {
    if !cluster.controllers.is_known() || !cluster.partitions.is_known() {
        return None;
    }
    let waiting = cluster
        .partitions
        .values()
        .filter(|partition| partition.is_waiting);
    let problems = problems(cluster, None);
    Some(Sample {
        waiting: waiting.count(),
        attention: problems
            .iter()
            .filter(|problem| needs_somebody(problem))
            .count(),
    })
}

fn of_controller(one: &Controller) -> Vec<Problem> {
    let problem = |severity, message: String, since| Problem {
        severity,
        subject: Subject::Controller,
        name: one.address.clone(),
        message,
        since,
        controller: Some(one.address.clone()),
    };
    let mut problems = Vec::new();
    if !one.is_listed {
        let text = "it is not in the admin's list any more".to_owned();
        problems.push(problem(Severity::Warning, text, None));
    }
    if !one.is_ready {
        let text = "it does not answer".to_owned();
        problems.push(problem(Severity::Failure, text, one.since));
    }
    if one.is_listed && one.nodes == 0 {
        let (key, value) = &one.label;
        let text = format!("no node has the label {key}={value}, so no job can use its IPUs");
        problems.push(problem(Severity::Failure, text, None));
    }
    if one.failed_partitions > 0 {
        let failures = counted(one.failed_partitions, "partition", "partitions");
        let text = format!("{failures} failed within the last day");
        problems.push(problem(Severity::Warning, text, None));
    }
    if one.auto_resets > 0 {
        let resets = counted(one.auto_resets, "automatic reset", "automatic resets");
        let text = format!("{resets} of partitions within the last day");
        problems.push(problem(Severity::Notice, text, None));
    }
    if one.is_cordoned {
        problems.push(problem(Severity::Notice, cordoned(one), None));
    }
    problems
}

fn cordoned(one: &Controller) -> String {
    let by = one.requested_by.as_ref();
    let by = by.map_or(String::new(), |user| format!(" by {user}"));
    let reason = one.reason.as_ref();
    let reason = reason.map_or(String::new(), |reason| format!(": {reason}"));
    format!("it is cordoned{by}{reason}")
}

fn of_node(node: &Node, controller: &str) -> Option<Problem> {
    let (severity, message) = match (node.is_ready, node.is_cordoned) {
        (false, _) => (Severity::Failure, "it is not ready"),
        (true, true) => (Severity::Notice, "it is cordoned"),
        (true, false) => return None,
    };
    Some(Problem {
        severity,
        subject: Subject::Node,
        name: node.name.clone(),
        message: message.to_owned(),
        since: node.since.filter(|_| !node.is_ready),
        controller: Some(controller.to_owned()),
    })
}

fn of_partition(one: &Partition) -> Option<Problem> {
    let (severity, message) = match one.phase {
        _ if one.is_terminating => return None,
        PartitionPhase::Error => (Severity::Failure, "it is in error"),
        PartitionPhase::Rejected => (Severity::Warning, "no V-IPU controller can ever create it"),
        PartitionPhase::Pending
        | PartitionPhase::Creating
        | PartitionPhase::Ready
        | PartitionPhase::Resetting
        | PartitionPhase::Releasing => return None,
    };
    Some(Problem {
        severity,
        subject: Subject::Partition,
        name: one.name.clone(),
        message: message.to_owned(),
        since: one.since,
        controller: one.controller.clone(),
    })
}

fn counted(count: u32, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::view::fixture::{cluster, controller, node, partition_object, placed, with_nodes};

    #[test]
    fn the_worst_comes_first_and_what_was_wanted_needs_nobody() {
        let mut unreachable = controller("pod2", 64, 0, 64);
        unreachable["status"]["conditions"][0]["status"] = json!("False");
        unreachable["status"]["nodes"] = json!(0);
        let mut cordoned = controller("pod1", 64, 0, 64);
        cordoned["spec"] = json!({"cordoned": true, "requestedBy": "admin", "reason": "Friday"});
        cordoned["status"]["lastDay"] = json!({"failedPartitions": 1, "autoResets": 2});
        let partitions = vec![
            partition_object("b/broken", 2, &placed("pod1", "Error")),
            partition_object("a/never", 2, &json!({"phase": "Rejected"})),
            partition_object("a/good", 2, &placed("pod1", "Ready")),
        ];
        let mut known = cluster(vec![unreachable, cordoned], partitions, Vec::new());
        let nodes = vec![
            node("node1", "pod1", true, true),
            node("node2", "pod2", false, false),
            node("elsewhere", "pod9", false, false),
        ];
        with_nodes(&mut known, nodes);
        let lines = |namespace| {
            let all = problems(&known, namespace);
            let line = |problem: &Problem| {
                format!(
                    "{:?} {}: {}",
                    problem.severity, problem.name, problem.message
                )
            };
            all.iter().map(line).collect::<Vec<_>>()
        };
        let expected = [
            "Failure pod2:8090: it does not answer",
            "Failure pod2:8090: no node has the label ipunode=pod2, so no job can use its IPUs",
            "Failure node2: it is not ready",
            "Failure b.broken-0: it is in error",
            "Warning pod1:8090: 1 partition failed within the last day",
            "Warning a.never-0: no V-IPU controller can ever create it",
            "Notice pod1:8090: 2 automatic resets of partitions within the last day",
            "Notice pod1:8090: it is cordoned by admin: Friday",
            "Notice node1: it is cordoned",
        ];
        assert_eq!(lines(None), expected);
        let of_a = lines(Some("a")).join("\n");
        assert!(
            of_a.contains("a.never-0") && !of_a.contains("broken"),
            "{of_a}"
        );
        assert_eq!(sample(&known).unwrap().attention, 6);
        known.controllers.refuse("forbidden".to_owned());
        assert_eq!(sample(&known), None);
    }
}
