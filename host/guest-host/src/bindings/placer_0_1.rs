//! The records of `placer` that version 0.2.0 changed, as version 0.1.0 has them.

use wasmtime::component::{ComponentType, Lower};

use super::{placer, types};

/// `placer.request` of 0.1.0: it has no `waiting`.
#[derive(ComponentType, Lower)]
#[component(record)]
pub(super) struct Request {
    owner: placer::Owner,
    namespace: types::Namespace,
    others: Vec<types::NamespaceUsage>,
    slot: u32,
    ipus: u32,
    gcds: u32,
    #[component(name = "node-selector")]
    node_selector: types::Pairs,
    options: placer::Options,
    progress: placer::Progress,
    settings: String,
}

impl From<placer::Request> for Request {
    fn from(request: placer::Request) -> Self {
        let placer::Request {
            owner,
            namespace,
            others,
            waiting: _,
            slot,
            ipus,
            gcds,
            node_selector,
            options,
            progress,
            settings,
        } = request;
        Self {
            owner,
            namespace,
            others,
            slot,
            ipus,
            gcds,
            node_selector,
            options,
            progress,
            settings,
        }
    }
}

/// `placer.controller` of 0.1.0: it has no `unschedulable` and no `free-blocks`.
#[derive(ComponentType, Lower)]
#[component(record)]
pub(super) struct Controller {
    name: String,
    #[component(name = "label-key")]
    label_key: String,
    #[component(name = "label-value")]
    label_value: String,
    #[component(name = "has-nodes")]
    has_nodes: bool,
    unreachable: Option<String>,
    #[component(name = "total-ipus")]
    total_ipus: u32,
    #[component(name = "used-ipus")]
    used_ipus: u32,
    #[component(name = "largest-free")]
    largest_free: u32,
    failures: u32,
}

impl From<placer::Controller> for Controller {
    fn from(controller: placer::Controller) -> Self {
        let placer::Controller {
            name,
            label_key,
            label_value,
            has_nodes,
            unreachable,
            unschedulable: _,
            total_ipus,
            used_ipus,
            largest_free,
            free_blocks: _,
            failures,
        } = controller;
        Self {
            name,
            label_key,
            label_value,
            has_nodes,
            unreachable,
            total_ipus,
            used_ipus,
            largest_free,
            failures,
        }
    }
}
