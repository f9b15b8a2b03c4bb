//! Pure: whether Pods on the node can get a second network.

use super::Finding;
use crate::facts::Facts;
use crate::requirements::Requirements;

/// Part of the name of the configuration that Multus writes.
const MULTUS: &str = "multus";

/// Why a check about networks is skipped.
const NONE: &str = "ipuNode.networkAttachmentDefinitions is empty";

/// Whether Multus is part of the node's container network.
pub(super) fn multus(facts: &Facts, requirements: &Requirements) -> Finding {
    if requirements.networks.is_empty() {
        return Finding::skipped(NONE);
    }
    let names = match &facts.files.cni {
        Ok(names) => names,
        Err(why) => {
            return Finding::unknown(format!(
                "the configuration of the container network cannot be read: {why}; is ipuNode.cniConfigDir the folder of \
                 this node's container runtime?"
            ));
        }
    };
    let is_configuration = |name: &&String| {
        let ends = [".conf", ".conflist"].iter().any(|end| name.ends_with(end));
        ends && name.contains(MULTUS)
    };
    if let Some(name) = names.iter().find(is_configuration) {
        return Finding::ok(format!("{name} configures Multus"));
    }
    Finding::failed(
        "ipuNode.cniConfigDir has no configuration of Multus: does the DaemonSet of Multus run on this node, and write \
         into this folder?",
    )
}

/// Whether the required NetworkAttachmentDefinitions exist.
pub(super) fn definitions(facts: &Facts, requirements: &Requirements) -> Finding {
    let names: Vec<_> = requirements
        .networks
        .iter()
        .map(ToString::to_string)
        .collect();
    if names.is_empty() {
        return Finding::skipped(NONE);
    }
    let (mut missing, mut unknown) = (Vec::new(), Vec::new());
    for name in &names {
        match facts.networks.get(name) {
            Some(Ok(true)) => {}
            Some(Ok(false)) => missing.push(name.as_str()),
            Some(Err(why)) => unknown.push(format!("{name} cannot be read: {why}")),
            None => unknown.push(format!("{name} was not read")),
        }
    }
    if !missing.is_empty() {
        return Finding::failed(format!(
            "there is no NetworkAttachmentDefinition {}: create it, or correct ipuNode.networkAttachmentDefinitions",
            missing.join(", ")
        ));
    }
    if !unknown.is_empty() {
        return Finding::unknown(unknown.join("; "));
    }
    Finding::ok(format!("{} exists", names.join(", ")))
}
