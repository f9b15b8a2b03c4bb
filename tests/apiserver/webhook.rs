//! The webhooks as an API server calls them: over TLS, with the operator's certificate and the real
//! guests.

pub(crate) mod fixture;
mod pod_trial;
mod trainings;
mod view;
mod witness;

use std::path::Path;

use cluster::wait::{Seen, eventually};
use ipu_ports::certificates::registration::{CaBundles, Registration};
use ipu_ports::certificates::renewal::CertificateManager;
use ipu_ports::certificates::{Source, issue, secret};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use release::guests::checkout;
use serde_json::{Value, json};

use self::fixture::Webhooks;

fn example(file: &str) -> Value {
    let path = checkout().join("examples").join(file);
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns the first example under a name of its own, with one change.
fn job(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut job = example("01-single-worker.yaml");
    job["metadata"]["name"] = json!(name);
    change(&mut job);
    job
}

#[tokio::test]
async fn defaults_arrive_without_a_warning() {
    let webhooks = Webhooks::shared().await;
    let made = webhooks.create(&job("defaults", |_| {})).await.unwrap();
    assert_eq!(made.warnings, Vec::<String>::new());
    let spec = &made.object["spec"];
    assert_eq!(spec["cleanPodPolicy"], json!("None"));
    assert_eq!(
        spec["restartPolicy"],
        json!({ "type": "Never", "backOffLimit": 3 })
    );
}

#[tokio::test]
async fn a_bad_job_is_refused_with_field_value_and_rule() {
    let webhooks = Webhooks::shared().await;
    let bad = job("bad", |job| {
        job["spec"]["ipusPerJobInstance"] = json!("3");
        job["spec"]["workersPerJobInstance"] = json!("two");
    });
    let refusal = webhooks.create(&bad).await.unwrap_err();
    assert_eq!((refusal.code, refusal.reason.as_str()), (422, "Invalid"));
    let causes = refusal.details.unwrap().causes;
    let cause = |field| causes.iter().find(|cause| cause.field == field).unwrap();
    let size = cause("spec.ipusPerJobInstance");
    assert!(
        size.message.contains("\"3\"") && size.message.contains("power of two"),
        "{size:?}"
    );
    assert!(
        cause("spec.workersPerJobInstance")
            .message
            .contains("\"two\"")
    );
    // A program that shows only the message also shows all violations.
    for cause in &causes {
        assert!(
            refusal.message.contains(&cause.message),
            "{}",
            refusal.message
        );
    }
    assert!(webhooks.jobs().get_opt("bad").await.unwrap().is_none());
}

#[tokio::test]
async fn every_bad_example_is_refused() {
    let webhooks = Webhooks::shared().await;
    let files = std::fs::read_dir(checkout().join("examples/bad")).unwrap();
    let files: Vec<_> = files
        .map(|file| file.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .collect();
    assert!(!files.is_empty());
    for file in files {
        let name = Path::new("bad").join(file.file_name().unwrap());
        let refusal = webhooks
            .create(&example(name.to_str().unwrap()))
            .await
            .unwrap_err();
        assert_eq!(refusal.code, 422, "{name:?}: {refusal:?}");
    }
}

#[tokio::test]
async fn a_manifest_of_alpha_5_is_mapped_and_says_so() {
    let webhooks = Webhooks::shared().await;
    let made = webhooks.create(&example("08-alpha-5.yaml")).await.unwrap();
    let spec = &made.object["spec"];
    assert_eq!(spec["jobInstances"], json!(1));
    assert_eq!(spec["ipusPerJobInstance"], json!("4"));
    assert_eq!(spec["modelReplicasPerWorker"], json!("4"));
    let warned = made
        .warnings
        .iter()
        .any(|warning| warning.contains("spec.modelReplicas"));
    assert!(warned, "{:?}", made.warnings);
}

#[tokio::test]
async fn an_update_is_checked_only_where_the_spec_changes() {
    let webhooks = Webhooks::shared().await;
    webhooks.create(&job("update", |_| {})).await.unwrap();
    let jobs = webhooks.jobs();
    let patch = |change: Value| {
        let jobs = jobs.clone();
        async move {
            let (params, change) = (PatchParams::default(), Patch::Merge(change));
            jobs.patch("update", &params, &change).await
        }
    };
    let labelled = patch(json!({ "metadata": { "labels": { "team": "vision" } } })).await;
    assert_eq!(labelled.unwrap().metadata.labels.unwrap()["team"], "vision");
    let refused = patch(json!({ "spec": { "ipusPerJobInstance": "5" } })).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("spec.ipusPerJobInstance"), "{refused}");
    patch(json!({ "spec": { "jobInstances": 2 } }))
        .await
        .unwrap();
}

#[tokio::test]
async fn an_emptied_ca_bundle_is_set_again() {
    let webhooks = Webhooks::start().await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(webhooks.client());
    let bundle = || async {
        let found = configurations.get(fixture::CONFIGURATION).await.unwrap();
        found.webhooks.unwrap().remove(0).client_config.ca_bundle
    };
    let before = bundle().await;
    assert!(before.is_some());
    let blank = json!([{ "op": "remove", "path": "/webhooks/0/clientConfig/caBundle" }]);
    let blank: json_patch::Patch = serde_json::from_value(blank).unwrap();
    let params = PatchParams::default();
    configurations
        .patch(fixture::CONFIGURATION, &params, &Patch::<()>::Json(blank))
        .await
        .unwrap();
    eventually("the caBundle is set again", async || {
        Seen::when(bundle().await, |bundle| *bundle == before)
    })
    .await;
}

#[tokio::test]
async fn both_configurations_belong_to_the_releases_namespace() {
    let webhooks = Webhooks::shared().await;
    let namespaces: Api<Namespace> = Api::all(webhooks.client());
    let uid = namespaces.get("default").await.unwrap().uid().unwrap();
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(webhooks.client());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(webhooks.client());
    eventually("the Namespace to be the only owner of both", async || {
        let mutating = mutating.get(fixture::CONFIGURATION).await.unwrap();
        let validating = validating.get(fixture::CONFIGURATION).await.unwrap();
        let owners = [mutating.owner_references(), validating.owner_references()];
        let owners = owners.map(<[_]>::to_vec);
        Seen::when(owners, |owners| {
            owners.iter().all(|owners| {
                owners.len() == 1
                    && (owners[0].kind.as_str(), &owners[0].uid) == ("Namespace", &uid)
            })
        })
    })
    .await;
}

#[tokio::test]
async fn replicas_that_start_together_serve_with_one_certificate() {
    let webhooks = Webhooks::shared().await;
    let managers: Vec<_> = (0..4)
        .map(|_| webhooks.certificate_manager("together"))
        .collect();
    let now: Timestamp = "2026-06-01T12:00:00Z".parse().unwrap();
    let keys =
        futures::future::join_all(managers.iter().map(|manager| manager.ensure(|| now))).await;
    let keys: Vec<_> = keys.into_iter().map(Result::unwrap).collect();
    assert!(keys.iter().all(|each| *each == keys[0]));
    let secrets: Api<Secret> = Api::default_namespaced(webhooks.client());
    let secret = secrets.get("together").await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
    let stored: Vec<_> = secret.data.unwrap().into_keys().collect();
    assert_eq!(stored, ["ca.crt", "ca.key", "tls.crt", "tls.key"]);
}

#[tokio::test]
async fn a_secret_of_another_owner_is_left_alone() {
    let webhooks = Webhooks::shared().await;
    let secrets: Api<Secret> = Api::default_namespaced(webhooks.client());
    let foreign = json!({
        "metadata": { "name": "foreign" }, "stringData": { "cert": "of the original" },
    });
    let foreign: Secret = serde_json::from_value(foreign).unwrap();
    let before = secrets
        .create(&PostParams::default(), &foreign)
        .await
        .unwrap();
    let now: Timestamp = "2026-06-01T12:00:00Z".parse().unwrap();
    let refused = webhooks
        .certificate_manager("foreign")
        .ensure(|| now)
        .await
        .unwrap_err()
        .to_string();
    for part in ["foreign", "tls.crt", "delete it"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    assert_eq!(secrets.get("foreign").await.unwrap(), before);
}

#[tokio::test]
async fn a_given_certificate_is_awaited_used_and_never_replaced() {
    let webhooks = Webhooks::shared().await;
    let secrets: Api<Secret> = Api::default_namespaced(webhooks.client());
    let now: Timestamp = "2026-06-01T12:00:00Z".parse().unwrap();
    let manager = CertificateManager {
        source: Source::Given,
        ..webhooks.certificate_manager("given")
    };
    let awaited = manager.ensure(|| now).await.unwrap_err().to_string();
    for part in ["given", "no such Secret", "certificates.source"] {
        assert!(awaited.contains(part), "{part}: {awaited}");
    }
    assert_eq!(secrets.get_opt("given").await.unwrap(), None);

    // Writes as cert-manager does, into a Secret that the operator created before.
    let made = issue::issue(&["127.0.0.1".to_owned()], now).unwrap();
    let given = secret::build("given", "default", &made, None);
    let before = secrets.create(&PostParams::default(), &given).await;
    let before = before.unwrap();
    assert!(manager.ensure(|| now).await.unwrap() == made);
    let late = now + SignedDuration::from_hours(24 * 364);
    assert!(manager.ensure(|| late).await.unwrap() == made);
    let over = now + SignedDuration::from_hours(24 * 366);
    let expired = manager.ensure(|| over).await.unwrap_err().to_string();
    assert!(expired.contains("certificates.source"), "{expired}");
    assert_eq!(secrets.get("given").await.unwrap(), before);
}

#[tokio::test]
async fn without_the_options_ca_bundle_and_owner_are_left_alone() {
    let webhooks = Webhooks::shared().await;
    let registration = Registration {
        client: webhooks.client(),
        namespace: "default".to_owned(),
        configuration: "there-is-none".to_owned(),
        ca_bundles: CaBundles::Foreign,
        manages_owners: false,
    };
    registration.ensure_ca_bundles("a CA").await.unwrap();
    registration.set_owners().await.unwrap();
    let managed = Registration {
        ca_bundles: CaBundles::Written,
        manages_owners: true,
        ..registration
    };
    managed.ensure_ca_bundles("a CA").await.unwrap_err();
    managed.set_owners().await.unwrap_err();
}

#[tokio::test]
async fn with_the_webhooks_down_no_job_can_be_created_and_every_job_can_be_deleted() {
    let mut webhooks = Webhooks::start().await;
    // The webhook adds the finalizer, and no controller would remove it.
    webhooks.create(&job("stays", |_| {})).await.unwrap();
    webhooks.stop();
    let refused = webhooks.create(&job("late", |_| {})).await.unwrap_err();
    assert!(
        refused.message.contains("mipujob.graphcore.ai"),
        "{}",
        refused.message
    );

    let jobs = webhooks.jobs();
    let patch = |change| {
        let jobs = jobs.clone();
        async move {
            jobs.patch("stays", &PatchParams::default(), &Patch::Merge(change))
                .await
        }
    };
    patch(json!({ "metadata": { "labels": { "team": "vision" } } }))
        .await
        .unwrap();
    patch(json!({ "spec": { "jobInstances": 2 } }))
        .await
        .unwrap_err();
    jobs.delete("stays", &DeleteParams::default())
        .await
        .unwrap();
    patch(json!({ "metadata": { "finalizers": null } }))
        .await
        .unwrap();
    eventually("the job is gone", async || {
        Seen::when(jobs.get_opt("stays").await.unwrap(), Option::is_none)
    })
    .await;
}

#[tokio::test]
async fn an_object_that_is_read_can_also_be_answered() {
    let webhooks = Webhooks::shared().await;
    // Less than a megabyte of JSON, and more than 16 MiB as a tree.
    let many = job("many", |job| {
        job["spec"]["workers"]["template"]["spec"]["tolerations"] =
            json!(vec![json!({"key": "a", "operator": "Exists"}); 20_000]);
    });
    let created = webhooks.create_dry(&many).await.unwrap();
    let template = &created.object["spec"]["workers"]["template"]["spec"];
    assert_eq!(template["tolerations"].as_array().unwrap().len(), 20_000);
}
