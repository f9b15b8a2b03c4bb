//! Pure: the objects with which an admin configures queues for IPUs. A test changes their JSON if
//! necessary.

use serde_json::{Value, json};

/// The version of Kueue's API that all objects have.
pub const API_VERSION: &str = "kueue.x-k8s.io/v1beta2";

/// The resource that counts IPUs.
pub const IPUS: &str = "graphcore.ai/ipu";

/// The label of a job that names its LocalQueue.
pub const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";

/// The label of a job that names its WorkloadPriorityClass.
pub const PRIORITY_LABEL: &str = "kueue.x-k8s.io/priority-class";

/// The controller of the AdmissionChecks that the operator answers.
pub const CHECK_CONTROLLER: &str = "graphcore.ai/partition";

/// A ResourceFlavor. Jobs with it run only on nodes with these labels.
pub fn resource_flavor(name: &str, node_labels: &[(&str, &str)]) -> Value {
    let labels = node_labels.iter().map(|(key, value)| (*key, *value));
    let labels: std::collections::BTreeMap<_, _> = labels.collect();
    json!({
        "apiVersion": API_VERSION,
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": {"nodeLabels": labels},
    })
}

/// A ClusterQueue for every namespace, with a quota of IPUs for each flavor, in the order in which
/// Kueue tries them. It counts CPU and memory too, which never run out.
pub fn cluster_queue(name: &str, ipus_by_flavor: &[(&str, u32)]) -> Value {
    let flavor = |(flavor, ipus): &(&str, u32)| {
        json!({"name": flavor, "resources": [
            {"name": IPUS, "nominalQuota": ipus.to_string()},
            {"name": "cpu", "nominalQuota": "10000"},
            {"name": "memory", "nominalQuota": "10000Gi"},
        ]})
    };
    let flavors: Vec<Value> = ipus_by_flavor.iter().map(flavor).collect();
    json!({
        "apiVersion": API_VERSION,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [{
                "coveredResources": [IPUS, "cpu", "memory"],
                "flavors": flavors,
            }],
        },
    })
}

/// A LocalQueue, which connects a namespace to a ClusterQueue.
pub fn local_queue(namespace: &str, name: &str, cluster_queue: &str) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": cluster_queue},
    })
}

/// A WorkloadPriorityClass.
pub fn priority_class(name: &str, value: i32) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": name},
        "value": value,
        "description": "A priority of jobs on IPUs",
    })
}

/// An AdmissionCheck that the operator answers. A ClusterQueue names it in
/// `spec.admissionChecksStrategy`.
pub fn admission_check(name: &str) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {"controllerName": CHECK_CONTROLLER},
    })
}

/// The rights on IPUJobs that Kueue's own chart does not grant. Before Kueue admits a Pod, it reads
/// the Pod's owner. Without these rights, it would refuse every Pod of an IPUJob.
pub fn rights_on_jobs() -> [Value; 2] {
    let name = "kueue-ipujobs";
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [
            {
                "apiGroups": ["graphcore.ai"],
                "resources": ["ipujobs"],
                "verbs": ["get", "list", "watch"],
            },
            // MultiKueue copies the status of a job on another cluster.
            {
                "apiGroups": ["graphcore.ai"],
                "resources": ["ipujobs/status"],
                "verbs": ["get", "patch", "update"],
            },
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{
            "kind": "ServiceAccount",
            "name": super::ACCOUNT,
            "namespace": super::NAMESPACE,
        }],
    });
    [role, binding]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flavor_has_a_quota_for_every_covered_resource() {
        let queue = cluster_queue("team", &[("pod1", 16), ("pod2", 64)]);
        let group = &queue["spec"]["resourceGroups"][0];
        let covered = group["coveredResources"].as_array().unwrap();
        for (flavor, ipus) in [(0, "16"), (1, "64")] {
            let resources = group["flavors"][flavor]["resources"].as_array().unwrap();
            assert_eq!(resources[0]["nominalQuota"], ipus);
            // Kueue refuses a flavor with other resources, or with another order.
            let names: Vec<_> = resources.iter().map(|one| one["name"].clone()).collect();
            assert_eq!(&names, covered);
        }
    }
}
