//! Pure: whether the node belongs to V-IPU controllers, and reaches them.

use std::collections::{BTreeMap, BTreeSet};

use ipu_api::ipupartition::ControllerRef;

use super::Finding;
use crate::facts::{Connection, Facts, NodeFacts, controllers_of};
use crate::requirements::Requirements;

/// Whether the node has the label of a V-IPU controller.
pub(super) fn label(facts: &Facts, _: &Requirements) -> Finding {
    let (node, all) = match known(facts) {
        Ok(known) => known,
        Err(why) => return Finding::unknown(why),
    };
    if all.is_empty() {
        return Finding::unknown(
            "the list of V-IPU controllers is empty: set global.vipuControllers, or write the list into its ConfigMap",
        );
    }
    let own = controllers_of(all, &node.labels);
    if own.is_empty() {
        return Finding::failed(no_label(node, all));
    }
    let names: Vec<_> = own
        .iter()
        .map(|controller| controller.name.as_str())
        .collect();
    Finding::ok(format!("the node has the label of {}", names.join(", ")))
}

/// Whether each V-IPU controller of the node's label accepts TCP connections.
pub(super) fn connection(facts: &Facts, _: &Requirements) -> Finding {
    let (node, all) = match known(facts) {
        Ok(known) => known,
        Err(why) => return Finding::unknown(why),
    };
    let own = controllers_of(all, &node.labels);
    if own.is_empty() {
        return Finding::skipped("the node has the label of no V-IPU controller");
    }
    let faults = own
        .iter()
        .filter_map(|controller| fault(controller, &facts.connections));
    let faults: Vec<_> = faults.collect();
    if faults.is_empty() {
        let names: Vec<_> = own
            .iter()
            .map(|controller| controller.name.as_str())
            .collect();
        return Finding::ok(format!("{} accepts connections", names.join(", ")));
    }
    Finding::failed(faults.join("; "))
}

/// The node and the list, or why one of them is not known.
fn known(facts: &Facts) -> Result<(&NodeFacts, &[ControllerRef]), String> {
    let node = facts.node.as_ref();
    let node = node.map_err(|why| format!("the Node cannot be read: {why}"))?;
    let all = facts.controllers.as_ref();
    let all = all.map_err(|why| format!("the list of V-IPU controllers cannot be read: {why}"))?;
    Ok((node, all))
}

/// Names the labels that the node could have, and what it has instead.
fn no_label(node: &NodeFacts, all: &[ControllerRef]) -> String {
    let label = |key: &str, value: &str| format!("{key}={value}");
    let wanted: BTreeSet<_> = all
        .iter()
        .map(|controller| label(&controller.label_key, &controller.label_value))
        .collect();
    let found: BTreeSet<_> = all
        .iter()
        .filter_map(|controller| {
            Some(label(
                &controller.label_key,
                node.labels.get(&controller.label_key)?,
            ))
        })
        .collect();
    let found = if found.is_empty() {
        "none of them".to_owned()
    } else {
        join(&found)
    };
    format!(
        "V-IPU controllers have the labels {}, and the node has {found}: correct it with kubectl label node, or correct \
         global.vipuControllers",
        join(&wanted)
    )
}

fn join(labels: &BTreeSet<String>) -> String {
    labels
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Why the node does not reach a controller. `None`: it does.
fn fault(controller: &ControllerRef, connections: &BTreeMap<String, Connection>) -> Option<String> {
    let (name, host) = (&controller.name, &controller.host);
    let text = match connections.get(name)? {
        Connection::Established => return None,
        Connection::NoRoute => format!(
            "there is no route to {name}: compare `ip route get {host}` on the node with a node that reaches it"
        ),
        Connection::Refused => {
            format!(
                "{name} refuses connections: is the V-IPU controller running, and is the port right?"
            )
        }
        Connection::NoAnswer(seconds) => format!(
            "{name} does not answer within {seconds} s: check routes and firewalls, and the NetworkPolicy of ipu-node"
        ),
        Connection::NoAddress => {
            format!(
                "the name of {name} has no address: correct DNS, or the list of V-IPU controllers"
            )
        }
        Connection::Error(error) => format!("the connection to {name} fails: {error}"),
    };
    Some(text)
}
