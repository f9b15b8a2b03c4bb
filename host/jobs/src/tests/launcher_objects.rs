//! The objects that a launcher needs beside its Pod, and where its pull secrets come from.

use ipu_api::ipujob::IPUJob;
use serde_json::{Value, json};

use super::cluster::{self, Cluster};
use super::fixtures::{JobFixture, parallel};
use crate::job_object::JobObject;
use crate::raw::RawJob;
use crate::step;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Runs a job until its launcher exists, beside a ServiceAccount of the user. Returns all requests.
async fn launched(cluster: &Cluster, job: &IPUJob, account: &str, secrets: &Value) -> Vec<String> {
    let object = json!({"metadata": {"name": account}, "imagePullSecrets": secrets});
    cluster.put(&format!("{ACCOUNTS}/{account}"), object);
    let (context, job) = (cluster.context(), cluster.submit(job));
    for _ in 0..6 {
        cluster.deliver(&context);
        Box::pin(step::step(&context, &job)).await.unwrap();
        cluster.partitions_ready();
        cluster.pods_run();
    }
    cluster.asked()
}

fn secrets_of(cluster: &Cluster, pod: &str) -> Value {
    cluster.object(&cluster::pod(pod))["spec"]["imagePullSecrets"].clone()
}

#[tokio::test]
async fn the_launcher_has_the_pull_secrets_of_the_workers_account() {
    let secrets = json!([{"name": "registry"}]);
    for (template, account) in [
        (json!({}), "default"),
        (json!({"serviceAccountName": "trainer"}), "trainer"),
        (json!({"serviceAccount": "older"}), "older"),
    ] {
        let cluster = Cluster::default();
        let job = parallel().template(&json!({"spec": template}));
        let asked = launched(&cluster, &job, account, &secrets).await;
        assert_eq!(
            secrets_of(&cluster, "sample-launcher"),
            secrets,
            "{account}"
        );
        let read = format!("GET {ACCOUNTS}/{account}");
        assert_eq!(
            asked.iter().filter(|asked| **asked == read).count(),
            1,
            "{asked:?}"
        );
    }
}

#[tokio::test]
async fn pull_secrets_of_the_template_are_enough() {
    let own = json!([{"name": "own"}]);
    let job = parallel().template(&json!({"spec": {"imagePullSecrets": own}}));
    let cluster = Cluster::default();
    let asked = launched(&cluster, &job, "default", &json!([{"name": "registry"}])).await;
    assert_eq!(secrets_of(&cluster, "sample-launcher"), own);
    let read = format!("GET {ACCOUNTS}/default");
    assert!(!asked.contains(&read), "{asked:?}");
}

#[tokio::test]
async fn an_account_that_does_not_exist_has_no_pull_secrets() {
    let cluster = Cluster::default();
    launched(&cluster, &parallel(), "another", &json!([])).await;
    assert!(cluster.object(&cluster::pod("sample-launcher")).is_object());
    assert_eq!(secrets_of(&cluster, "sample-launcher"), Value::Null);
}

#[tokio::test]
async fn the_users_account_is_bound_and_never_written() {
    let mut job = parallel();
    let launcher = job.spec.launcher.as_mut().unwrap();
    launcher.service_account_name = Some("trainer".to_owned());
    let cluster = Cluster::default();
    let asked = launched(&cluster, &job, "trainer", &json!([])).await;
    let writes = asked.iter().filter(|asked| !asked.starts_with("GET"));
    let of_accounts = writes.filter(|asked| asked.contains("serviceaccounts"));
    assert_eq!(of_accounts.count(), 0, "{asked:?}");
    let rights = asked.iter().filter(|asked| asked.contains("rolebindings"));
    assert_eq!(rights.count(), 1, "they are verified once: {asked:?}");
    let launcher = cluster.object(&cluster::pod("sample-launcher"));
    assert_eq!(launcher["spec"]["serviceAccountName"], "trainer");
}

#[tokio::test]
async fn config_maps_are_created_before_the_pods_that_refer_to_them() {
    let from = json!([{"secretRef": {"name": "mine"}}]);
    let containers = json!([{"name": "main", "image": "a", "envFrom": from}]);
    let job = parallel().template(&json!({"spec": {"containers": containers}}));
    let cluster = Cluster::default();
    let asked = launched(&cluster, &job, "default", &json!([])).await;
    let posts: Vec<&str> = asked
        .iter()
        .filter_map(|asked| asked.strip_prefix("POST /api/v1/namespaces/default/"))
        .filter(|kind| *kind != "serviceaccounts")
        .collect();
    let (map, pod) = ("configmaps", "pods");
    assert_eq!(posts, [map, map, map, pod, pod, pod]);
    for pod in ["sample-worker-0", "sample-worker-1", "sample-launcher"] {
        let first = &cluster.object(&cluster::pod(pod))["spec"]["containers"][0]["envFrom"][0];
        let name = first["configMapRef"]["name"].as_str().unwrap();
        let map = cluster.object(&format!("{CONFIG_MAPS}/{name}"));
        assert_eq!(map["data"]["IPUOF_VIPU_API_PARTITION_ID"], "p-0", "{pod}");
    }
}

const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/sample-launcher";

/// Returns the Pods that the launcher's Role names. `None` if the Role does not exist.
fn named(cluster: &Cluster) -> Option<Value> {
    let role = cluster.object(ROLE);
    role.is_object().then(|| {
        let rules = role["rules"].as_array().cloned().unwrap_or_default();
        assert!(
            rules.iter().all(|rule| rule["resourceNames"] != json!([])),
            "such a rule grants all Pods: {role}"
        );
        rules
            .first()
            .map_or(json!([]), |rule| rule["resourceNames"].clone())
    })
}

#[tokio::test]
async fn role_names_only_pods_of_the_job() {
    let cluster = Cluster::default();
    let (context, job) = (cluster.context(), cluster.submit(&parallel()));
    let other =
        json!({"metadata": {"name": "sample-worker-1", "namespace": "default", "uid": "other"}});
    cluster.put(&cluster::pod("sample-worker-1"), other);
    let step = async || {
        cluster.deliver(&context);
        Box::pin(step::step(&context, &job)).await.unwrap();
    };
    for _ in 0..4 {
        step().await;
        cluster.partitions_ready();
        cluster.pods_run();
        assert_eq!(named(&cluster), None, "a Pod of another owner has a name");
    }
    cluster.remove(&cluster::pod("sample-worker-1"));
    step().await;
    assert_eq!(named(&cluster), None);
    step().await;
    assert_eq!(
        named(&cluster),
        Some(json!(["sample-worker-0", "sample-worker-1"]))
    );
}

#[tokio::test]
async fn role_of_a_suspended_job_is_empty_after_a_restart_too() {
    for restarts in [false, true] {
        let cluster = Cluster::default();
        launched(&cluster, &parallel(), "default", &json!([])).await;
        assert_eq!(
            named(&cluster),
            Some(json!(["sample-worker-0", "sample-worker-1"]))
        );
        cluster.change(&cluster::job("sample"), &json!({"spec": {"suspend": true}}));
        let context = cluster.context();
        let job: RawJob = serde_json::from_value(cluster.object(&cluster::job("sample"))).unwrap();
        let job = job.job().unwrap();
        for _ in 0..4 {
            let context = if restarts {
                &cluster.context()
            } else {
                &context
            };
            cluster.deliver(context);
            Box::pin(step::step(context, &job)).await.unwrap();
        }
        let role = cluster.object(ROLE);
        assert_eq!(named(&cluster), Some(json!([])), "{role}");
        cluster.asked();
        cluster.deliver(&context);
        Box::pin(step::step(&context, &job)).await.unwrap();
        let writes = cluster.asked();
        assert!(
            !writes.iter().any(|asked| asked.starts_with("PATCH")),
            "{writes:?}"
        );
        cluster.change(
            &cluster::job("sample"),
            &json!({"spec": {"suspend": false}}),
        );
        for _ in 0..6 {
            cluster.deliver(&context);
            Box::pin(step::step(&context, &job)).await.unwrap();
            cluster.partitions_ready();
            cluster.pods_run();
        }
        assert_eq!(
            named(&cluster),
            Some(json!(["sample-worker-0", "sample-worker-1"]))
        );
    }
}
