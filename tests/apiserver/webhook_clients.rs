//! Webhooks that only the API server can call, with its client certificate: both are configured as
//! security-webhooks.md describes.

use std::fs;
use std::path::{Path, PathBuf};

use cluster::control_plane::{ControlPlane, ControlPlaneOptions, free_ports};
use cluster::pki::{Identity, Pki, cluster_ca, identity};
use http::Request;
use ipu_admission::MUTATE_PATH;
use ipu_text::explain;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, PostParams};
use kube::{Client, Config};
use release::guests::checkout;
use serde_json::{Value, json};

use crate::chart::admin::Admin;
use crate::job::single;
use crate::processes::{Given, Installation, RELEASE};

/// The document for the admin.
const DOCUMENT: &str = "charts/ipu-operator/docs/security-webhooks.md";

/// The path of the API server's files in the document.
const FOLDER: &str = "/etc/kubernetes/admission";

/// The user for the webhooks' Service in the document's kubeconfig.
const USER: &str = "ipu-operator-webhook-svc.ipu-operator.svc";

/// The variable that gives the CA to the controller.
const CLIENT_CA: &str = "IPU_OPERATOR_WEBHOOK_CLIENT_CA";

/// Writes the document's two files for the API server into a folder. The port of the Service is not
/// 443 here. Returns the path of the first file.
fn configured(folder: &Path, port: u16) -> PathBuf {
    let text = fs::read_to_string(checkout().join(DOCUMENT)).unwrap();
    for (file, kind) in [
        ("configuration.yaml", "\nkind: AdmissionConfiguration\n"),
        ("webhooks.kubeconfig", "\nkind: Config\n"),
    ] {
        let mut blocks = text.split("```yaml\n").skip(1);
        let block = blocks.find(|block| block.contains(kind) && block.contains(file));
        let block = block.unwrap_or_else(|| panic!("{DOCUMENT} has no block for {file}"));
        let (block, _) = block.split_once("```").unwrap();
        let block = block.replace(FOLDER, folder.to_str().unwrap());
        let block = block.replace(
            &format!("name: {USER}\n"),
            &format!("name: {USER}:{port}\n"),
        );
        fs::write(folder.join(file), block).unwrap();
    }
    folder.join("configuration.yaml")
}

/// Sends a review of a new job directly to the webhooks, with this certificate, if any.
async fn reviewed(port: u16, identity: Option<&Identity>) -> Result<Value, String> {
    let address = format!("https://127.0.0.1:{port}");
    let mut config = Config::new(address.parse().unwrap());
    config.accept_invalid_certs = true;
    if let Some(Identity { certificate, key }) = identity {
        let path = |path: &Path| Some(path.to_str().unwrap().to_owned());
        config.auth_info.client_certificate = path(certificate);
        config.auth_info.client_key = path(key);
    }
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "1", "operation": "CREATE", "userInfo": {"username": "jane"},
            "kind": {"group": "graphcore.ai", "version": "v1alpha1", "kind": "IPUJob"},
            "resource": {"group": "graphcore.ai", "version": "v1alpha1", "resource": "ipujobs"},
            "name": "stranger", "namespace": "default", "object": single("stranger"),
        },
    });
    let request = Request::post(MUTATE_PATH).header("content-type", "application/json");
    let request = request.body(review.to_string().into_bytes()).unwrap();
    let client = Client::try_from(config).map_err(|error| explain(&error))?;
    let answer = client.request::<Value>(request).await;
    answer.map_err(|error| explain(&error))
}

/// The admin sets the chart's value. Returns the resulting settings of the controller's Pods.
async fn given_to_the_controller(installation: &Installation, ca: &Path) -> String {
    let admin = Admin::of(RELEASE, installation.plane.kubeconfig());
    let value = format!("admissionWebhooks.clientCA={}", ca.display());
    let upgrade = ["upgrade", RELEASE, admin.chart(), "--reuse-values"];
    admin
        .helm(&[&upgrade[..], &["--set-file", &value]].concat())
        .unwrap();
    let deployments: Api<Deployment> = Api::namespaced(installation.client.clone(), RELEASE);
    let name = format!("{RELEASE}-controller-manager");
    let pod = deployments.get(&name).await.unwrap().spec.unwrap().template;
    let mut containers = pod.spec.unwrap().containers.into_iter();
    let mut variables = containers.next().unwrap().env.into_iter().flatten();
    let variable = variables.find(|variable| variable.name == CLIENT_CA);
    variable.unwrap().value.unwrap()
}

/// Checks that the API server creates a valid job and refuses an invalid one, as the webhooks
/// decide.
async fn the_api_server_is_answered(installation: &Installation, name: &str) {
    installation.submit(&single(name)).await;
    let made = installation.jobs().get(name).await.unwrap();
    assert!(made.spec.restart_policy.is_some(), "{name} is defaulted");
    let mut bad = single("bad");
    bad["spec"]["ipusPerJobInstance"] = json!("3");
    let bad = serde_json::from_value(bad).unwrap();
    let refused = installation
        .jobs()
        .create(&PostParams::default(), &bad)
        .await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("power of two"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_api_server_is_answered_where_a_ca_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path();
    // A CA for this purpose only. The document calls the API server's certificate `client`.
    let pki = Pki::make(own).unwrap();
    let client = pki.client("client", None).unwrap();
    let [port] = free_ports().unwrap();
    let options = ControlPlaneOptions {
        admission_config: Some(configured(own, port)),
        ..ControlPlaneOptions::default()
    };
    let plane = ControlPlane::start_with(&options).await.unwrap();
    let of_cluster = identity(&plane.kubeconfig().with_file_name("pki"), "admin");
    let given = Given {
        webhooks: Some(port),
        ..Given::default()
    };
    let installation = Installation::of(plane.into(), given).await;

    // All API servers are configured first, and no client is refused yet.
    let open = installation.controller("open", Vec::new()).await;
    the_api_server_is_answered(&installation, "before").await;
    for identity in [None, Some(&client), Some(&of_cluster)] {
        let answer = reviewed(open.port, identity).await.unwrap();
        assert_eq!(answer["response"]["allowed"], true, "{answer}");
    }
    drop(open);

    let ca = given_to_the_controller(&installation, &cluster_ca(own)).await;
    let guarded = installation
        .controller("guarded", vec![(CLIENT_CA, ca.into())])
        .await;
    the_api_server_is_answered(&installation, "after").await;
    let answer = reviewed(guarded.port, Some(&client)).await.unwrap();
    assert_eq!(answer["response"]["allowed"], true, "{answer}");
    for stranger in [None, Some(&of_cluster)] {
        let answer = reviewed(guarded.port, stranger).await;
        assert!(answer.is_err(), "{stranger:?} is answered: {answer:?}");
    }
    guarded.must_run();
}
