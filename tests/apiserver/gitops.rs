//! The files for GitOps tools, applied by clients that behave as Argo CD and Flux do.
#![cfg(test)]

mod argo_cd;
mod diff;
mod flux;
mod health;
mod lua;
mod manifests;
mod synced;
mod verify;

use std::fs;

use cluster::kubeconfig;
use cluster::wait::{Seen, eventually};
use ipu_operator::certificates::Certificates;
use ipu_runtime::release::ReleaseOptions;
use kube::Client;
use release::guests::checkout;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::chart::admin::Admin;
use crate::chart::arguments::certificates_options;

/// Release, namespace and Application in the files.
const NAME: &str = "ipu-operator";

/// Returns the objects of a file in `examples/gitops`.
fn objects(file: &str) -> Vec<Value> {
    let path = checkout().join("examples/gitops").join(file);
    documents(&fs::read_to_string(path).unwrap())
}

/// Returns the object of this kind in a file.
fn object(file: &str, kind: &str) -> Value {
    let mut objects = objects(file).into_iter();
    objects.find(|object| object["kind"] == kind).unwrap()
}

/// Parses manifests. The separator counts only as a line of its own.
fn documents(text: &str) -> Vec<Value> {
    let text = format!("\n{text}\n");
    let documents = text.split("\n---\n").map(serde_saphyr::from_str);
    let documents = documents.map(|document: Result<Value, _>| document.unwrap());
    documents.filter(|document| !document.is_null()).collect()
}

/// Runs the process of the release that writes the caBundles and the owners, with the rights that
/// the chart grants it. Returns when all webhooks have their caBundle.
async fn operate(admin: &Admin) -> JoinHandle<()> {
    let mut options = certificates_options(None);
    options.release = ReleaseOptions {
        namespace: NAME.to_owned(),
        fullname: NAME.to_owned(),
        ..ReleaseOptions::default()
    };
    options.webhook_service = None;
    options.webhook_secret = None;
    let mut config = kubeconfig::config(&admin.kubeconfig).await.unwrap();
    let account = format!("system:serviceaccount:{NAME}:{NAME}-certificates");
    config.auth_info.impersonate = Some(account);
    let certificates = Certificates::new(Client::try_from(config).unwrap(), &options);
    let process = tokio::spawn(certificates.maintain());
    eventually("all webhooks have a caBundle", async || {
        let bundles = webhooks(admin, "{.webhooks[*].clientConfig.caBundle}");
        Seen::when(bundles, |bundles| {
            let mut counts = bundles.iter().map(|text| text.split(' ').count());
            // Jobs and Pods; jobs, the number of their instances, and Pods.
            counts.next() == Some(2) && counts.next() == Some(3)
        })
    })
    .await;
    process
}

/// Waits until the Namespace owns both webhook configurations, or none does.
async fn owned(admin: &Admin, is_owned: bool) {
    let wanted = if is_owned { NAME } else { "" };
    eventually(&format!("the owners are {wanted:?}"), async || {
        let owners = webhooks(admin, "{.metadata.ownerReferences[*].name}");
        Seen::when(owners, |owners| owners.iter().all(|owner| owner == wanted))
    })
    .await;
}

/// Returns a field of the mutating and of the validating webhook configuration.
fn webhooks(admin: &Admin, path: &str) -> [String; 2] {
    let output = format!("--output=jsonpath={path}");
    ["mutating", "validating"].map(|kind| {
        let kind = format!("{kind}webhookconfiguration");
        admin.kubectl(&["get", &kind, NAME, &output]).unwrap()
    })
}

/// Returns the cluster-scoped objects of the release, and everything in its namespace that carries
/// its label.
fn left(admin: &Admin) -> String {
    let kinds = "clusterroles,clusterrolebindings,flowschemas,prioritylevelconfigurations,\
                 mutatingwebhookconfigurations,validatingwebhookconfigurations,\
                 validatingadmissionpolicies,validatingadmissionpolicybindings,\
                 deployments,services,serviceaccounts,roles,rolebindings,configmaps,networkpolicies";
    let ours = "--selector=app.kubernetes.io/part-of=ipu-operator";
    let list = ["get", kinds, ours, "--all-namespaces", "--output=name"];
    admin.kubectl(&list).unwrap()
}

/// Creates a job as the operator does, which no webhook reviews, because none answers here.
fn create_job(admin: &Admin) {
    let file = admin.file("job.yaml", crate::chart::JOB);
    let account = admin.account("controller-manager");
    let create = ["create", "--filename", &file, &account];
    let create = [
        &create[..],
        &["--as-group=system:masters", "--namespace", NAME],
    ]
    .concat();
    admin.kubectl(&create).unwrap();
}

/// Fails unless the job is still there.
fn has_job(admin: &Admin) {
    admin
        .kubectl(&["get", "ipujob", "job", "--namespace", NAME])
        .unwrap();
}
