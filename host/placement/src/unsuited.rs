//! Pure: the V-IPU controllers without a node that can run the Pods of a request, and why.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ipu_api::guest::placement::ControllerView;
use parking_lot::Mutex;

use super::node_match::{Blocker, NodeFacts, Requirements};

/// Most results that are kept for one state of the nodes. Requests of one owner share a result, and
/// so do most others.
const KEPT_MAX: usize = 4_096;

/// Most bytes of requirements that are kept with them. Those of one request may have as many as its
/// object, and users choose them.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// The controllers that have no node for the Pods of a request now, by name, with the reason.
pub type Unsuited = Arc<BTreeMap<String, String>>;

/// The nodes at one moment.
#[derive(Debug, Default)]
pub struct NodeSnapshot {
    nodes: Vec<Arc<NodeFacts>>,
    results: Mutex<Results>,
}

/// The results for one list of controllers.
#[derive(Debug, Default)]
struct Results {
    controllers: Vec<NodeLabel>,
    nodes: HashMap<String, Vec<Arc<NodeFacts>>>,
    by_requirements: HashMap<Requirements, Unsuited>,
    /// Bytes of these requirements.
    kept_bytes: usize,
}

/// The label of the nodes of a controller.
#[derive(Clone, Debug)]
struct NodeLabel {
    controller: String,
    key: String,
    value: String,
}

/// What the nodes of one controller are for the Pods of a request.
enum Fit {
    /// One of them can run the Pods.
    Suits,
    /// Some have the required labels, and none of them can run a new Pod of the request now. Their
    /// number by reason.
    Blocked(BTreeMap<Blocker, usize>),
    /// None has the required labels.
    NoMatch,
}

impl NodeSnapshot {
    /// These nodes.
    pub fn of(nodes: Vec<Arc<NodeFacts>>) -> Self {
        Self {
            nodes,
            results: Mutex::default(),
        }
    }

    /// The controllers that have no node for the Pods now, while another one has such a node, or
    /// would have it if it was not cordoned, tainted or not ready. If no node of any controller has
    /// the required labels, no controller is better than another one, and the result is empty.
    pub fn unsuited<'a>(
        &self,
        controllers: impl Iterator<Item = &'a ControllerView> + Clone,
        requirements: &Requirements,
    ) -> Unsuited {
        let mut results = self.results.lock();
        // Thousands of requests of one pass have the same controllers.
        if !have_labels(controllers.clone(), &results.controllers) {
            let controllers: Vec<_> = controllers.map(NodeLabel::of).collect();
            *results = Results {
                nodes: self.by_controller(&controllers),
                controllers,
                by_requirements: HashMap::new(),
                kept_bytes: 0,
            };
        }
        if let Some(known) = results.by_requirements.get(requirements) {
            return Unsuited::clone(known);
        }
        let unsuited: Unsuited = Arc::new(unsuited(&results.nodes, requirements));
        results.keep(requirements, Unsuited::clone(&unsuited));
        unsuited
    }

    /// The nodes with the label of each controller.
    fn by_controller(&self, controllers: &[NodeLabel]) -> HashMap<String, Vec<Arc<NodeFacts>>> {
        let mut found: HashMap<String, Vec<Arc<NodeFacts>>> = HashMap::new();
        for label in controllers {
            let has = |node: &&Arc<NodeFacts>| node.labels.get(&label.key) == Some(&label.value);
            let nodes = self.nodes.iter().filter(has).cloned().collect();
            found.insert(label.controller.clone(), nodes);
        }
        found
    }
}

impl Results {
    fn keep(&mut self, requirements: &Requirements, unsuited: Unsuited) {
        let bytes = requirements.bytes();
        let is_full = self.kept_bytes.saturating_add(bytes) > KEPT_BYTES_MAX;
        if is_full || self.by_requirements.len() >= KEPT_MAX {
            self.by_requirements.clear();
            self.kept_bytes = 0;
        }
        self.kept_bytes += bytes;
        self.by_requirements.insert(requirements.clone(), unsuited);
    }
}

/// Whether the controllers have exactly these names and labels.
fn have_labels<'a>(
    controllers: impl Iterator<Item = &'a ControllerView>,
    labels: &[NodeLabel],
) -> bool {
    let names = controllers.map(|view| (&view.name, &view.label_key, &view.label_value));
    let known = labels
        .iter()
        .map(|label| (&label.controller, &label.key, &label.value));
    names.eq(known)
}

impl NodeLabel {
    fn of(view: &ControllerView) -> Self {
        Self {
            controller: view.name.clone(),
            key: view.label_key.clone(),
            value: view.label_value.clone(),
        }
    }
}

fn unsuited(
    nodes: &HashMap<String, Vec<Arc<NodeFacts>>>,
    requirements: &Requirements,
) -> BTreeMap<String, String> {
    // A controller without a node says so itself.
    let with_nodes = nodes.iter().filter(|(_, nodes)| !nodes.is_empty());
    let fits: Vec<_> = with_nodes
        .map(|(name, nodes)| (name, fit(nodes, requirements)))
        .collect();
    if fits.iter().all(|(_, fit)| matches!(fit, Fit::NoMatch)) {
        return BTreeMap::new();
    }
    fits.into_iter()
        .filter_map(|(name, fit)| Some((name.clone(), reason(fit)?)))
        .collect()
}

fn fit(nodes: &[Arc<NodeFacts>], requirements: &Requirements) -> Fit {
    let mut blockers = BTreeMap::new();
    for node in nodes.iter().filter(|node| requirements.selects(node)) {
        match requirements.blocker(node) {
            None => return Fit::Suits,
            Some(blocker) => *blockers.entry(blocker).or_default() += 1,
        }
    }
    if blockers.is_empty() {
        return Fit::NoMatch;
    }
    Fit::Blocked(blockers)
}

/// Returns why no node of a controller runs the Pods, for users.
fn reason(fit: Fit) -> Option<String> {
    let blockers = match fit {
        Fit::Suits => return None,
        Fit::NoMatch => {
            return Some(
                "none of its nodes has the labels that the node selector and the required node \
                 affinity of the Pods ask for"
                    .to_owned(),
            );
        }
        Fit::Blocked(blockers) => blockers,
    };
    let nodes: usize = blockers.values().sum();
    let each = blockers.into_iter().map(|(blocker, count)| {
        let are = if count == 1 { "is" } else { "are" };
        let have = if count == 1 { "has" } else { "have" };
        match blocker {
            Blocker::Cordoned => format!("{count} {are} cordoned"),
            Blocker::NotReady => format!("{count} {are} not Ready"),
            Blocker::FailedCheck => format!("{count} failed the check of ipu-node"),
            Blocker::Tainted(taint) => {
                format!("{count} {have} the taint {taint}, which the Pods do not tolerate")
            }
        }
    });
    let each: Vec<_> = each.collect();
    Some(format!(
        "no node is schedulable for the Pods, of {nodes} with the required labels: {}",
        each.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::node_match::NodeTaint;
    use crate::samples::view;

    type Change = fn(&mut NodeFacts);

    const SAME: Change = |_| {};
    const CORDONED: Change = |node| node.is_cordoned = true;
    const SILENT: Change = |node| node.is_not_ready = true;
    const FAILED: Change = |node| node.has_failed_check = true;
    const TAINTED: Change = |node| {
        node.taints.push(NodeTaint {
            key: "repair".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..NodeTaint::default()
        });
    };
    const IN_POOL: Change = |node| {
        node.labels.insert("pool".to_owned(), "a".to_owned());
    };

    /// The reasons for controllers that have such nodes each, by the name of the controller.
    fn reasons(nodes: &[(&str, Change)], selector: &[(&str, &str)]) -> Vec<(String, String)> {
        let nodes = nodes.iter().map(|(controller, change)| {
            let mut node = NodeFacts::default();
            let label = ("ipunode".to_owned(), (*controller).to_owned());
            node.labels.extend([label]);
            change(&mut node);
            Arc::new(node)
        });
        let views = [view("pod1", 16, 0), view("pod2", 16, 0)];
        let requirements = Requirements {
            node_selector: selector
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            scheduling: serde_json::from_value(json!({})).unwrap(),
        };
        let snapshot = NodeSnapshot::of(nodes.collect());
        let found = snapshot.unsuited(views.iter(), &requirements);
        assert_eq!(snapshot.unsuited(views.iter(), &requirements), found);
        found.iter().map(|(a, b)| (a.clone(), b.clone())).collect()
    }

    fn unsuited(nodes: &[(&str, Change)], selector: &[(&str, &str)]) -> Vec<String> {
        let reasons = reasons(nodes, selector).into_iter();
        reasons.map(|(name, _)| name).collect()
    }

    #[test]
    fn a_controller_without_a_schedulable_node_is_unsuited() {
        let none: [&str; 0] = [];
        assert_eq!(unsuited(&[("pod1", SAME), ("pod2", SAME)], &[]), none);
        for blocked in [CORDONED, SILENT, FAILED, TAINTED] {
            let nodes = [("pod1", blocked), ("pod2", SAME)];
            assert_eq!(unsuited(&nodes, &[]), ["pod1"]);
            let both = [("pod1", blocked), ("pod2", blocked)];
            assert_eq!(unsuited(&both, &[]), ["pod1", "pod2"]);
            let one_of_two = [("pod1", blocked), ("pod1", SAME), ("pod2", SAME)];
            assert_eq!(unsuited(&one_of_two, &[]), none);
        }
    }

    #[test]
    fn labels_decide_only_while_a_node_has_them() {
        let none: [&str; 0] = [];
        let pool = [("pool", "a")];
        let nodes = [("pod1", SAME), ("pod2", IN_POOL)];
        assert_eq!(unsuited(&nodes, &pool), ["pod1"]);
        let nowhere = [("pod1", SAME), ("pod2", SAME)];
        assert_eq!(unsuited(&nowhere, &pool), none);
        let cordoned: Change = |node| {
            IN_POOL(node);
            node.is_cordoned = true;
        };
        let waits = [("pod1", SAME), ("pod2", cordoned)];
        assert_eq!(unsuited(&waits, &pool), ["pod1", "pod2"]);
        assert_eq!(unsuited(&[("pod1", SAME)], &[]), none, "pod2 has no node");
        assert_eq!(unsuited(&[], &[]), none);
    }

    #[test]
    fn the_reason_counts_the_nodes() {
        let nodes = [
            ("pod1", CORDONED),
            ("pod1", CORDONED),
            ("pod1", SILENT),
            ("pod1", FAILED),
            ("pod1", TAINTED),
            ("pod2", IN_POOL),
        ];
        let expected = "no node is schedulable for the Pods, of 5 with the required labels: 2 are \
                        cordoned, 1 is not Ready, 1 failed the check of ipu-node, 1 has the taint \
                        repair:NoSchedule, which the Pods do not tolerate";
        assert_eq!(
            reasons(&nodes, &[]),
            [("pod1".to_owned(), expected.to_owned())]
        );
        let reasons = reasons(&nodes, &[("pool", "a")]);
        assert!(reasons[0].1.starts_with("none of its nodes has the labels"));
    }

    #[test]
    fn large_requirements_are_kept_within_a_bound() {
        let snapshot = NodeSnapshot::of(Vec::new());
        let views = [view("pod1", 16, 0)];
        for number in 0..40 {
            let large = (number.to_string(), "x".repeat(1 << 20));
            let requirements = Requirements {
                node_selector: BTreeMap::from([large]),
                ..Requirements::default()
            };
            snapshot.unsuited(views.iter(), &requirements);
            let results = snapshot.results.lock();
            assert!(results.kept_bytes <= KEPT_BYTES_MAX);
            let kept = results.by_requirements.keys().map(Requirements::bytes);
            assert_eq!(kept.sum::<usize>(), results.kept_bytes);
        }
    }

    #[test]
    fn another_list_of_controllers_has_other_results() {
        let mut node = NodeFacts::default();
        node.labels.insert("ipunode".to_owned(), "pod1".to_owned());
        node.is_cordoned = true;
        let snapshot = NodeSnapshot::of(vec![Arc::new(node)]);
        let unsuited = |views: &[ControllerView]| {
            let found = snapshot.unsuited(views.iter(), &Requirements::default());
            found.len()
        };
        assert_eq!(unsuited(&[view("pod2", 16, 0)]), 0);
        assert_eq!(unsuited(&[view("pod1", 16, 0), view("pod2", 16, 0)]), 1);
        assert_eq!(unsuited(&[view("pod2", 16, 0)]), 0);
    }
}
