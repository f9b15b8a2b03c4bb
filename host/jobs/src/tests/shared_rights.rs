//! The rights that the launchers of a namespace share: which jobs use them, and what a change of
//! the setting does.

use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobState;
use ipu_api::naming;
use serde_json::{Value, json};

use super::cluster::{self, Cluster};
use super::fixtures::{JobFixture, parallel, settings};
use super::world::World;
use crate::build::{PodSettings, access};
use crate::step;
use crate::validate::ValidJob;

const POLICY: &str = "the-policy";
const LAUNCHER: &str = "sample-launcher";
const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/ipu-launchers";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1/";

fn shared() -> PodSettings {
    PodSettings {
        launcher_policy: Some(POLICY.to_owned()),
        ..settings()
    }
}

/// Advances a job by a step of everybody.
fn advance(world: &mut World, job: &ValidJob) {
    world.settle(job);
    let new = world.slots_without_status();
    world.ready(new);
    world.settle(job);
}

/// The ServiceAccount of the launcher.
fn account(world: &mut World) -> Option<String> {
    let spec = world.pod(LAUNCHER).spec.as_ref();
    spec.unwrap().service_account_name.clone()
}

#[test]
fn a_job_shares_rights_if_the_agent_needs_no_read_for_it() {
    let renamed = |length: usize| {
        let mut job = parallel();
        job.metadata.name = Some("j".repeat(length));
        job
    };
    let with_account = || {
        let mut job = parallel();
        let launcher = job.spec.launcher.as_mut().unwrap();
        launcher.service_account_name = Some("trainer".to_owned());
        job
    };
    let on_host = |job: IPUJob| job.template(&json!({"spec": {"hostNetwork": true}}));
    for (job, expected) in [
        (parallel(), true),
        (IPUJob::sample(), false),
        (IPUJob::sample().interactive(60), true),
        (with_account(), false),
        (renamed(100), true),
        (on_host(parallel()), true),
        // The host name of such a worker is not the name of its Pod.
        (on_host(renamed(100)), false),
    ] {
        let valid = job.valid();
        let shares = access::shares_rights(&valid, &shared());
        assert_eq!(shares, expected, "{}", valid.name);
        assert!(!access::shares_rights(&valid, &settings()), "it is off");
    }
}

#[test]
fn a_running_job_keeps_its_rights_when_the_setting_changes() {
    for (first, then, account_of) in [
        (shared(), settings(), naming::SHARED_LAUNCHERS),
        (settings(), shared(), LAUNCHER),
    ] {
        let is_shared = first.launcher_policy.is_some();
        // When the launcher waits for its workers, and when it runs.
        for changed_after in 1..3 {
            let (job, mut world) = (parallel().valid(), World::new());
            world.settings = first.clone();
            for turn in 1..4 {
                advance(&mut world, &job);
                if turn == changed_after {
                    world.settings = then.clone();
                }
                world.run_pods();
            }
            let step = world.settle(&job).pop().unwrap();
            assert_eq!(world.status().launcher_status, JobState::Running);
            assert_eq!(world.status().restart_count.unwrap_or(0), 0);
            assert_eq!(account(&mut world).as_deref(), Some(account_of));
            assert_eq!(step.plan.shared, [], "{changed_after}");
            // Rights of its own are still restored. Those of the namespace stay as they are without
            // the policy's name.
            assert_eq!(step.plan.apply.is_empty(), is_shared, "{changed_after}");
        }
    }
}

/// An API server with the policy and its binding.
fn with_policy() -> Cluster {
    let cluster = Cluster::default();
    let metadata = json!({"name": POLICY});
    cluster.put(
        &format!("{ADMISSION}validatingadmissionpolicies/{POLICY}"),
        json!({"metadata": metadata, "spec": {"failurePolicy": "Fail"}}),
    );
    cluster.put(
        &format!("{ADMISSION}validatingadmissionpolicybindings/{POLICY}"),
        json!({"metadata": metadata, "spec": {"policyName": POLICY, "validationActions": ["Deny"]}}),
    );
    cluster
}

/// Reconciles a job with a new process until it runs or an obstacle stops it. Returns the requests
/// about rights.
async fn runs(cluster: &Cluster, name: &str) -> Vec<String> {
    let mut job = parallel();
    job.metadata.name = Some(name.to_owned());
    job.metadata.uid = Some(name.to_owned());
    let (context, job) = (cluster.context_with(shared()), cluster.submit(&job));
    for _ in 0..6 {
        cluster.deliver(&context);
        Box::pin(step::step(&context, &job)).await.unwrap();
        cluster.partitions_ready();
        cluster.pods_run();
    }
    let mut asked = cluster.asked();
    asked.retain(|asked| {
        let is_right = ["roles", "rolebindings", "serviceaccounts"]
            .iter()
            .any(|kind| asked.contains(&format!("/{kind}")));
        is_right && !asked.ends_with("serviceaccounts/default")
    });
    asked
}

fn rules(cluster: &Cluster) -> Value {
    cluster.object(ROLE)["rules"].clone()
}

#[tokio::test]
async fn one_set_is_written_for_a_namespace_and_repaired() {
    let cluster = with_policy();
    let kinds = ["serviceaccounts", "roles", "rolebindings"];
    let writes = |asked: &[String]| {
        let writes = asked.iter().filter(|asked| !asked.starts_with("GET"));
        writes.count()
    };
    let first = runs(&cluster, "sample").await;
    assert_eq!(writes(&first), kinds.len(), "{first:?}");
    assert_eq!(
        rules(&cluster),
        json!([{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]}])
    );
    let launcher = cluster.object(&cluster::pod(LAUNCHER));
    assert_eq!(launcher["spec"]["serviceAccountName"], "ipu-launchers");
    let second = runs(&cluster, "another").await;
    assert_eq!(writes(&second), 0, "{second:?}");
    // Somebody widens the Role.
    cluster.change(
        ROLE,
        &json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}),
    );
    let third = runs(&cluster, "third").await;
    assert_eq!(writes(&third), 1, "{third:?}");
    assert_eq!(rules(&cluster)[0]["resources"], json!(["pods/exec"]));
}

#[tokio::test]
async fn without_the_policy_nothing_is_shared() {
    let binding = format!("{ADMISSION}validatingadmissionpolicybindings/{POLICY}");
    let policy = format!("{ADMISSION}validatingadmissionpolicies/{POLICY}");
    for (path, change) in [
        (&policy, json!({"spec": {"failurePolicy": "Ignore"}})),
        (&binding, json!({"spec": {"validationActions": ["Audit"]}})),
        (&binding, json!({"spec": {"policyName": "another"}})),
        (
            &binding,
            json!({"spec": {"matchResources": {"namespaceSelector": {}}}}),
        ),
        (
            &binding,
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        ),
    ] {
        let cluster = with_policy();
        runs(&cluster, "running").await;
        assert_ne!(rules(&cluster), json!([]), "the policy is there");
        cluster.change(path, &change);
        runs(&cluster, "sample").await;
        assert_eq!(rules(&cluster), json!([]), "{change}");
        let pod = cluster.object(&cluster::pod(LAUNCHER));
        assert!(pod.is_null(), "{change}: {pod}");
        let status = &cluster.object(&cluster::job("sample"))["status"];
        let message = status["lastMessage"].as_str().unwrap();
        assert!(message.contains("launcher.sharedRights"), "{message}");
    }
    let cluster = Cluster::default();
    runs(&cluster, "sample").await;
    assert!(cluster.object(ROLE).is_null(), "nothing grants an exec");
}

#[tokio::test]
async fn an_object_of_a_user_is_not_changed() {
    let cluster = with_policy();
    cluster.put(
        ROLE,
        json!({"metadata": {"name": "ipu-launchers"}, "rules": []}),
    );
    runs(&cluster, "sample").await;
    assert_eq!(rules(&cluster), json!([]));
    assert!(cluster.object(&cluster::pod(LAUNCHER)).is_null());
    let status = &cluster.object(&cluster::job("sample"))["status"];
    let message = status["lastMessage"].as_str().unwrap();
    assert!(message.contains("did not create it"), "{message}");
}
