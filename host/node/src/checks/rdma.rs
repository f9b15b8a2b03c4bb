//! Pure: whether the node has RDMA devices with an active port, and advertises them.

use super::Finding;
use crate::facts::{Facts, RdmaDevice};
use crate::requirements::Requirements;

/// State of a port that carries data.
const ACTIVE: &str = "ACTIVE";

/// What shows the devices and their state on a node.
const SHOW: &str = "`rdma link` on the node shows them";

/// Whether the RDMA devices are there.
pub(super) fn device(facts: &Facts, requirements: &Requirements) -> Finding {
    if !requirements.rdma {
        return Finding::skipped("ipuNode.rdma.required is false");
    }
    let devices = match &facts.files.rdma {
        Ok(devices) => devices,
        Err(why) => return Finding::unknown(format!("the RDMA devices cannot be read: {why}")),
    };
    let is_missing = |name: &&String| devices.iter().all(|device| device.name != **name);
    let missing: Vec<_> = requirements
        .rdma_devices
        .iter()
        .filter(is_missing)
        .cloned()
        .collect();
    if !missing.is_empty() {
        return Finding::failed(format!(
            "ipuNode.rdma.devices names {}, which the node lacks: load the driver of the network card, or correct the \
             value; {SHOW}",
            missing.join(", ")
        ));
    }
    if devices.is_empty() {
        return Finding::failed(format!(
            "the node has no RDMA device: load the driver of the network card, such as mlx5_ib; {SHOW}"
        ));
    }
    Finding::ok(devices.iter().map(shown).collect::<Vec<_>>().join(", "))
}

/// Whether a port is active: of each required device, or else of any.
pub(super) fn link(facts: &Facts, requirements: &Requirements) -> Finding {
    if !requirements.rdma {
        return Finding::skipped("ipuNode.rdma.required is false");
    }
    let Ok(devices) = &facts.files.rdma else {
        return Finding::unknown("the RDMA devices cannot be read");
    };
    let names = &requirements.rdma_devices;
    let is_required = |device: &&RdmaDevice| names.is_empty() || names.contains(&device.name);
    let required: Vec<_> = devices.iter().filter(is_required).collect();
    if required.is_empty() {
        return Finding::skipped("the node has no such RDMA device");
    }
    let mut active = required.iter().map(|device| device.is_active());
    let is_fine = if names.is_empty() {
        active.any(|is_active| is_active)
    } else {
        active.all(|is_active| is_active)
    };
    let states = required.iter().map(|device| device.states());
    let states = states.collect::<Vec<_>>().join(", ");
    if is_fine {
        return Finding::ok(states);
    }
    Finding::failed(format!(
        "{states}: check the cable, the switch and the address of the interface; {SHOW}"
    ))
}

/// Whether the node advertises the resource of RDMA devices.
pub(super) fn resource(facts: &Facts, requirements: &Requirements) -> Finding {
    let resource = &requirements.rdma_resource;
    if resource.is_empty() {
        return Finding::skipped("ipuNode.rdma.resource is empty");
    }
    let node = match &facts.node {
        Ok(node) => node,
        Err(why) => return Finding::unknown(format!("the Node cannot be read: {why}")),
    };
    match node.allocatable.get(resource).map(String::as_str) {
        Some(number) if number != "0" => {
            Finding::ok(format!("the node advertises {number} of {resource}"))
        }
        Some(_) => Finding::failed(format!(
            "the node advertises 0 of {resource}: its device plugin finds no device; read the plugin's log, and compare \
             its selectors with the RDMA devices"
        )),
        None => Finding::failed(format!(
            "the node does not advertise {resource}: does its device plugin run on the node, and has its resource this \
             name?"
        )),
    }
}

impl RdmaDevice {
    fn is_active(&self) -> bool {
        self.ports.iter().any(|(_, state)| state == ACTIVE)
    }

    /// The state of each port.
    fn states(&self) -> String {
        let name = &self.name;
        if self.ports.is_empty() {
            return format!("{name} has no port");
        }
        let states = self
            .ports
            .iter()
            .map(|(port, state)| format!("{name} port {port} is {state}"));
        states.collect::<Vec<_>>().join(", ")
    }
}

/// A device with what distinguishes it.
fn shown(device: &RdmaDevice) -> String {
    let interfaces = device.interfaces.iter().cloned();
    let node = device.numa_node.map(|number| format!("NUMA node {number}"));
    let details: Vec<_> = interfaces.chain(node).collect();
    if details.is_empty() {
        return device.name.clone();
    }
    format!("{} ({})", device.name, details.join(", "))
}
