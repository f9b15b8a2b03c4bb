//! Jobs, V-IPU controllers and a policy for tests.

use ipu_api::guest::placement::PlacementRequest;
use ipu_placement::serial_walk::serial_walk;

use crate::controllers::Controller;
use crate::jobs::Job;
use crate::replay::Decided;

/// A job of the namespace `a`.
pub(crate) fn job(arrival: u64, (gang, ipus): (u32, u32), duration: u64) -> Job {
    Job {
        namespace: "a".into(),
        arrival,
        ipus,
        gang,
        duration,
    }
}

/// The controllers `pod0`, `pod1` and so on, with these IPUs.
pub(crate) fn controllers(ipus: &[u32]) -> Vec<Controller> {
    let numbered = ipus.iter().enumerate();
    let controllers = numbered.map(|(index, &ipus)| Controller {
        name: format!("pod{index}"),
        ipus,
    });
    controllers.collect()
}

/// The built-in serial walk.
pub(crate) fn walk(_: u64, request: PlacementRequest) -> Decided {
    let PlacementRequest {
        request,
        controllers,
        attempts,
    } = request;
    Decided {
        decision: serial_walk(&request, &controllers, &attempts),
        overruled: None,
    }
}
