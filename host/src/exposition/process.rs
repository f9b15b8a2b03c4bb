//! Metrics of the version of a process, and of the leadership of its replica.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use ipu_runtime::lease::LeadershipStatus;
use ipu_runtime::release::Process;
use ipu_runtime::scope::Conflicts;

pub(super) fn register(registry: &mut Registry) {
    let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "The version that runs", version);
}

/// A gauge with one label.
type Labelled = Family<[(&'static str, &'static str); 1], Gauge>;

pub(super) fn leading(
    now: &mut Registry,
    process: Process,
    reconciles: &LeadershipStatus,
    policies: &LeadershipStatus,
) {
    now.register(
        "leader",
        "Whether this replica holds the Lease: 1 or 0",
        leads("lease", process, reconciles, policies),
    );
}

/// The same under the name of Kubernetes' Go libraries, in a registry without a prefix.
pub(super) fn leading_standard(
    standard: &mut Registry,
    process: Process,
    reconciles: &LeadershipStatus,
    policies: &LeadershipStatus,
) {
    standard.register(
        "leader_election_master_status",
        "Whether this replica holds the Lease: 1 or 0",
        leads("name", process, reconciles, policies),
    );
}

fn leads(
    label: &'static str,
    process: Process,
    reconciles: &LeadershipStatus,
    policies: &LeadershipStatus,
) -> Labelled {
    let leads: &[_] = match process {
        Process::Controller => &[("controller-manager", reconciles), ("policies", policies)],
        Process::VipuProxy => &[("vipu-proxy", reconciles)],
    };
    let gauge = Labelled::default();
    for (lease, leading) in leads {
        gauge
            .get_or_create(&[(label, *lease)])
            .set(i64::from(leading.is_valid()));
    }
    gauge
}

pub(super) fn conflict(now: &mut Registry, conflicts: &Conflicts) {
    let gauge: Gauge = Gauge::default();
    gauge.set(i64::from(!conflicts.current().is_empty()));
    now.register(
        "scope_conflict",
        "Whether this release is inactive, because an older release serves the same namespaces: 1 or 0",
        gauge,
    );
}
