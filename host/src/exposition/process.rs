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

pub(super) fn leading(
    now: &mut Registry,
    process: Process,
    reconciles: &LeadershipStatus,
    policies: &LeadershipStatus,
) {
    let leads: &[_] = match process {
        Process::Controller => &[("controller-manager", reconciles), ("policies", policies)],
        Process::VipuProxy => &[("vipu-proxy", reconciles)],
    };
    let gauge: Family<[(&str, &str); 1], Gauge> = Family::default();
    for (lease, leading) in leads {
        gauge
            .get_or_create(&[("lease", lease)])
            .set(i64::from(leading.is_valid()));
    }
    now.register(
        "leader",
        "Whether this replica holds the Lease: 1 or 0",
        gauge,
    );
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
