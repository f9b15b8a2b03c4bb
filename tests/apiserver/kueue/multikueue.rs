//! MultiKueue: a job of one cluster runs on another cluster, which has the IPUs.

use std::fs;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cluster::control_plane::ControlPlane;
use cluster::wait::{Seen, eventually};
use ipu_api::ipujob_status::JobState;
use ipu_api::naming;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use tests::kueue::configuration::FRAMEWORK;
use tests::kueue::objects::{API_VERSION, cluster_queue};
use tests::kueue::workload::workloads;

use super::fixture::{FLAVOR, Fixture, NAMESPACE, QUEUE, job};

/// Name of the AdmissionCheck, of its MultiKueueConfig, and of the cluster in it.
const WORKER: &str = "worker";

/// The controller of the AdmissionCheck, which also runs the jobs that name it in `spec.managedBy`.
const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";

/// Returns the kubeconfig of an API server with embedded files, as MultiKueue requires.
fn kubeconfig(plane: &ControlPlane) -> String {
    let text = fs::read_to_string(plane.kubeconfig()).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    for (list, entry, field) in [
        ("clusters", "cluster", "certificate-authority"),
        ("users", "user", "client-certificate"),
        ("users", "user", "client-key"),
    ] {
        let fields = config[list][0][entry].as_object_mut().unwrap();
        let path = fields.remove(field).unwrap();
        let content = fs::read(path.as_str().unwrap()).unwrap();
        fields.insert(format!("{field}-data"), json!(STANDARD.encode(content)));
    }
    config.to_string()
}

/// Sets up a cluster whose queue leads to the worker cluster.
async fn manager_of(worker: &Fixture) -> Fixture {
    let mut queue = cluster_queue(QUEUE, &[(FLAVOR, 64)]);
    let checks = json!([{"name": WORKER}]);
    queue["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": checks});
    let changes = json!({"multiKueue": {
        "gcInterval": "1s",
        "externalFrameworks": [{"name": FRAMEWORK}],
    }});
    let manager = Fixture::with_configuration(queue, &changes).await;
    let secret = json!({
        "metadata": {"name": WORKER},
        "stringData": {"kubeconfig": kubeconfig(&worker.installation.plane)},
    });
    let secret: Secret = serde_json::from_value(secret).unwrap();
    let client = manager.installation.client.clone();
    let secrets: Api<Secret> = Api::namespaced(client, tests::kueue::NAMESPACE);
    let create = PostParams::default();
    secrets.create(&create, &secret).await.unwrap();
    let of_kind = |kind: &str, spec: Value| json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": WORKER}, "spec": spec});
    let source = json!({"kubeConfig": {"location": WORKER, "locationType": "Secret"}});
    let parameters = json!({
        "apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": WORKER,
    });
    for object in [
        of_kind("MultiKueueCluster", json!({"clusterSource": source})),
        of_kind("MultiKueueConfig", json!({"clusters": [WORKER]})),
        of_kind(
            "AdmissionCheck",
            json!({"controllerName": MULTIKUEUE, "parameters": parameters}),
        ),
    ] {
        manager.apply(&object).await;
    }
    manager
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_on_another_cluster_and_its_status_is_on_both() {
    let mut worker = Fixture::with_quota(4).await;
    worker.run_pods(false);
    let manager = manager_of(&worker).await;
    let managed = |name: &str| {
        let mut job = job(name, 4);
        job["spec"]["managedBy"] = json!(MULTIKUEUE);
        job
    };

    manager.installation.submit(&managed("first")).await;
    worker.once_running("first").await;
    manager.once_running("first").await;
    assert_eq!((worker.taken(), manager.taken()), (4, 0));
    let pods = manager.installation.pods().list(&Default::default()).await;
    assert_eq!(pods.unwrap().items.len(), 0);

    manager.installation.submit(&managed("second")).await;
    // The other cluster gets the job itself only once it has quota there.
    let remote = workloads(&worker.installation.client, NAMESPACE);
    eventually("its Workload is on the other cluster", async || {
        let found = remote.list(&Default::default()).await.unwrap();
        Seen::when(found.items.len(), |found| *found == 2)
    })
    .await;
    assert!(
        worker
            .installation
            .jobs()
            .get_opt("second")
            .await
            .unwrap()
            .is_none()
    );
    worker.installation.ends(&naming::worker("first", 0)).await;
    manager
        .installation
        .once("first", JobState::Completed)
        .await;
    manager
        .once("first", "is finished", |one| one.is("Finished"))
        .await;
    worker.once_gone("first").await;

    manager.once_running("second").await;
    manager.delete("second").await;
    manager.once_gone("second").await;
    worker.once_gone("second").await;
    eventually("no IPU is taken", async || {
        Seen::when(worker.taken(), |taken| *taken == 0)
    })
    .await;
    assert_eq!((worker.most_taken(), manager.most_taken()), (4, 0));
    let left = remote.list(&Default::default()).await.unwrap();
    assert_eq!(left.items.len(), 0);
}
