//! The other form of a launcher, in a cluster that refuses the usual one.

use ipu_api::ipujob::IPUJob;
use ipu_api::labels;
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use serde_json::json;

use super::build::held;
use super::cluster::{self, Cluster};
use super::fixtures::{JobFixture, parallel, settings};
use crate::build::{PodSettings, launcher, launcher_otherwise};
use crate::step;

fn resources() -> ResourceRequirements {
    serde_json::from_value(json!({"requests": {"cpu": "10m"}})).unwrap()
}

/// The usual form and the other one, with a default of the admin.
fn forms(job: &IPUJob) -> (Pod, Option<Pod>) {
    let settings = PodSettings {
        launcher_resources: Some(resources()),
        ..settings()
    };
    let job = job.valid();
    let command = job.launcher.clone().unwrap();
    let usual = launcher::launcher(&job, &command, &settings, (&held(), 0));
    let otherwise = launcher_otherwise::otherwise(&job, &usual);
    (usual, otherwise)
}

#[test]
fn it_has_the_labels_of_the_template_and_no_default_requests() {
    let theirs = json!({"team": "ml", "graphcore.ai/instance": "0", "graphcore.ai/role": "worker"});
    let job = parallel().template(&json!({"metadata": {"labels": theirs}}));
    let (usual, otherwise) = forms(&job);
    let (mut expected, otherwise) = (json!(usual), json!(otherwise));
    for container in ["/spec/containers/0", "/spec/initContainers/0"] {
        let container = expected.pointer_mut(container).unwrap();
        assert_eq!(container["resources"], json!(resources()));
        container.as_object_mut().unwrap().remove("resources");
    }
    expected["metadata"]["labels"]["team"] = json!("ml");
    assert_eq!(otherwise, expected);
}

#[test]
fn a_launcher_with_requests_of_its_user_and_without_labels_has_no_other_form() {
    let mut job = parallel();
    job.spec.launcher.as_mut().unwrap().resources = Some(resources());
    assert_eq!(forms(&job).1, None);
}

#[tokio::test]
async fn a_launcher_that_lacks_a_demanded_label_gets_it() {
    for (label, labels) in [
        ("team", json!({"team": "ml"})),
        ("example.com/team", json!({"example.com/team": "ml"})),
    ] {
        let cluster = Cluster::default();
        cluster.demand_label(label);
        let job = parallel().template(&json!({"metadata": {"labels": labels}}));
        let (context, job) = (cluster.context(), cluster.submit(&job));
        for _ in 0..6 {
            cluster.deliver(&context);
            Box::pin(step::step(&context, &job)).await.unwrap();
            cluster.partitions_ready();
            cluster.pods_run();
        }
        let launcher = cluster.object(&cluster::pod("sample-launcher"));
        assert_eq!(launcher["metadata"]["labels"][label], "ml");
    }
}

#[tokio::test]
async fn a_launcher_of_which_both_forms_are_refused_is_one_obstacle() {
    let cluster = Cluster::default();
    let job = parallel().template(&json!({"metadata": {"labels": {"team": "ml"}}}));
    let (context, job) = (cluster.context(), cluster.submit(&job));
    for _ in 0..6 {
        cluster.deliver(&context);
        Box::pin(step::step(&context, &job)).await.unwrap();
        // A label that the operator gives to workers only.
        cluster.demand_label(labels::INSTANCE_LABEL);
        cluster.partitions_ready();
        cluster.pods_run();
    }
    let asked = cluster.asked();
    let created = asked
        .iter()
        .filter(|asked| *asked == "POST /api/v1/namespaces/default/pods");
    assert!(created.count() >= 4, "two workers and two forms: {asked:?}");
    let status = cluster.object(&cluster::job("sample"))["status"].clone();
    let expected = "the API server refused Pod sample-launcher: ";
    let message = status["lastMessage"].as_str().unwrap();
    assert!(message.starts_with(expected), "{message}");
    assert_eq!(message.matches(expected).count(), 1, "{message}");
}
