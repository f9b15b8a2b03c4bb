//! Sample objects for the tests of several modules and packages.

use ipu_api::guest::placement::{ControllerView, PartitionRequest};
use ipu_api::ipupartition::{Attempt, AttemptOutcome, ControllerRef};
use ipu_api::partition_request::largest_partition;
use ipu_api::uid::Uid;
use jiff::Timestamp;

use crate::node_match::Requirements;
use crate::queue::{QueueEntry, QueuedRequest};

/// A V-IPU controller of the admin's list.
pub fn controller() -> ControllerRef {
    ControllerRef {
        name: "pod1:8090".to_owned(),
        host: "pod1".to_owned(),
        port: 8090,
        label_key: "ipunode".to_owned(),
        label_value: "pod1".to_owned(),
    }
}

/// An attempt to create partition `id` on a controller, without anything that is optional.
pub fn attempt(controller: ControllerRef, id: &str, outcome: AttemptOutcome) -> Attempt {
    Attempt {
        controller,
        id: id.to_owned(),
        outcome,
        reason: None,
        exhausted: None,
        started: None,
        decided_by: None,
        account: None,
    }
}

/// A request that was created at this time and has waited since.
pub fn waiting(name: &str, ipus: u32, created: Timestamp) -> QueueEntry {
    let request = QueuedRequest {
        name: name.into(),
        uid: Uid::of(&format!("uid-{name}")),
        owner: Uid::of(&format!("owner-{name}")),
        owner_name: format!("default/{name}"),
        since: created,
        ipus,
        gang: 1,
        was_placed: false,
        requirements: Requirements::default().into(),
        has_usual_options: true,
    };
    QueueEntry::new(request, created)
}

/// A reachable V-IPU controller, whose label has its name as the value.
pub fn view(name: &str, total_ipus: u32, used_ipus: u32) -> ControllerView {
    ControllerView {
        name: name.to_owned(),
        label_key: "ipunode".to_owned(),
        label_value: name.to_owned(),
        has_nodes: true,
        unschedulable: None,
        unreachable: None,
        total_ipus,
        used_ipus,
        largest_free: largest_partition(total_ipus - used_ipus),
        free_blocks: Vec::new(),
        failures: 0,
    }
}

/// A request for a partition of 4 IPUs.
pub fn place_request() -> PartitionRequest {
    PartitionRequest {
        namespace: "default".to_owned(),
        owner: "sample".to_owned(),
        ipus: 4,
        gcds: 1,
        ..PartitionRequest::default()
    }
}

/// One full, one unreachable and one empty controller.
pub fn controllers() -> Vec<ControllerView> {
    let mut controllers = vec![
        view("full:8090", 16, 16),
        view("unreachable:8090", 16, 0),
        view("empty:8090", 16, 0),
    ];
    controllers[1].unreachable = Some("connection refused".to_owned());
    controllers
}
