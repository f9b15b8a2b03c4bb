//! Pure: adds requirements to the node affinity of a Pod.

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorTerm, PodSpec};

/// Adds a requirement to the required node affinity of a Pod. A node matches the affinity if it
/// matches one of the terms, so each of them gets the requirement. An empty term matches no node,
/// and stays empty.
pub fn require(spec: &mut PodSpec, add: impl Fn(&mut NodeSelectorTerm)) {
    let affinity = spec.affinity.get_or_insert_default();
    let affinity = affinity.node_affinity.get_or_insert_default();
    let required = &mut affinity.required_during_scheduling_ignored_during_execution;
    let Some(required) = required else {
        let mut term = NodeSelectorTerm::default();
        add(&mut term);
        *required = Some(NodeSelector {
            node_selector_terms: vec![term],
        });
        return;
    };
    for term in &mut required.node_selector_terms {
        let is_empty = |list: &Option<Vec<_>>| list.as_ref().is_none_or(Vec::is_empty);
        if !is_empty(&term.match_expressions) || !is_empty(&term.match_fields) {
            add(term);
        }
    }
}
