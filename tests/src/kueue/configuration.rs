//! Pure: the Configuration of Kueue's manager, as an admin who queues IPUJobs writes it.

use std::path::Path;

use serde_json::{Value, json};

/// The name of IPUJobs in `integrations.externalFrameworks` and `multiKueue.externalFrameworks`.
pub const FRAMEWORK: &str = "IPUJob.v1alpha1.graphcore.ai";

/// The Configuration of the chart's Deployment: the ports are those of its Services and probes.
pub(super) fn in_cluster() -> Value {
    json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443"},
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": false},
        "clientConnection": {"qps": 300, "burst": 500},
        "integrations": {
            "frameworks": ["batch/job", "jobset.x-k8s.io/jobset", "pod"],
            "externalFrameworks": [FRAMEWORK],
        },
    })
}

/// The Configuration of a process beside an API server. The on-demand API for pending Workloads is
/// off, because its server keeps its certificate in a folder at the root of the file system.
pub(super) fn of_process(health: u16, webhook: u16, certificates: &Path) -> Value {
    let mut configuration = in_cluster();
    let changes = json!({
        "health": {"healthProbeBindAddress": format!("127.0.0.1:{health}")},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": webhook, "certDir": certificates},
        "featureGates": {"VisibilityOnDemand": false},
        "integrations": {"frameworks": ["batch/job", "pod"]},
    });
    json_patch::merge(&mut configuration, &changes);
    configuration
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_listens_on_its_own_ports_and_queues_the_same_jobs() {
        let configuration = of_process(1, 2, Path::new("/certificates"));
        assert_eq!(
            configuration["health"]["healthProbeBindAddress"],
            "127.0.0.1:1"
        );
        assert_eq!(
            configuration["webhook"],
            json!({"port": 2, "certDir": "/certificates"})
        );
        assert_eq!(
            configuration["integrations"]["externalFrameworks"],
            in_cluster()["integrations"]["externalFrameworks"]
        );
    }
}
