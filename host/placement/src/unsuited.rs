//! Pure: the V-IPU controllers without a node that can run the Pods of a request, and why.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use ipu_api::guest::placement::ControllerView;
use parking_lot::Mutex;

use super::hashed::Hashed;
use super::node_match::{Blocker, NodeFacts, Requirements};

/// Most results that are kept for one state of the nodes. Requests of one owner share a result, and
/// so do most others.
const KEPT_MAX: usize = 4_096;

/// Most bytes of requirements that are kept with them. Those of one request may have as many as its
/// object, and users choose them.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// The controllers that have no node for the Pods of a request now, by name, with the reason: as
/// many texts as there are controllers.
pub type Unsuited = Hashed<BTreeMap<String, String>>;

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
    /// Each once, whatever different requirements have it.
    unsuited: HashSet<Unsuited>,
    by_requirements: HashMap<Hashed<Requirements>, Unsuited>,
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
        requirements: &Hashed<Requirements>,
    ) -> Unsuited {
        let mut results = self.results.lock();
        // Thousands of requests of one pass have the same controllers.
        if !have_labels(controllers.clone(), &results.controllers) {
            let controllers: Vec<_> = controllers.map(NodeLabel::of).collect();
            *results = Results {
                nodes: self.by_controller(&controllers),
                controllers,
                ..Results::default()
            };
        }
        if let Some(known) = results.by_requirements.get(requirements) {
            return known.clone();
        }
        let unsuited = Unsuited::from(unsuited(&results.nodes, requirements));
        results.keep(requirements, unsuited)
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
    /// Keeps a result. Returns the one that is shared.
    fn keep(&mut self, requirements: &Hashed<Requirements>, unsuited: Unsuited) -> Unsuited {
        let bytes = requirements.bytes();
        let is_full = self.kept_bytes.saturating_add(bytes) > KEPT_BYTES_MAX;
        if is_full || self.by_requirements.len() >= KEPT_MAX {
            self.by_requirements.clear();
            self.unsuited.clear();
            self.kept_bytes = 0;
        }
        self.kept_bytes += bytes;
        let unsuited = self.unsuited.get(&unsuited).cloned().unwrap_or(unsuited);
        self.unsuited.insert(unsuited.clone());
        self.by_requirements
            .insert(requirements.clone(), unsuited.clone());
        unsuited
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
mod tests;
