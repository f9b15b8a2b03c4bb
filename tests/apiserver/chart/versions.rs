//! Helm 3 and Helm 4 handle the chart, and the Helm repository of a release, in the same way.

use std::fs;

use axum::Router;
use axum::routing::get;
use release::guests;
use release::package::{VERSION, archive, chart};
use tokio::net::TcpListener;

use super::admin::{Admin, KUBERNETES};

/// A caBundle in Base64, instead of the operator's. The API server reads it only when it calls.
const CA_BUNDLE: &str = "Y2VydGlmaWNhdGU=";

/// The objects that the operator writes into.
const WEBHOOKS: [&str; 2] = [
    "mutatingwebhookconfiguration",
    "validatingwebhookconfiguration",
];

#[tokio::test]
async fn helm_4_leads_from_install_to_uninstall() {
    from_install_to_uninstall("chart-helm-4", "helm-4", "helm-4").await;
}

#[tokio::test]
async fn helm_4_upgrades_an_installation_of_helm_3() {
    from_install_to_uninstall("chart-helm-3-to-4", "helm", "helm-4").await;
}

/// Installs with one version of Helm and upgrades with the other. Data of other writers stays until
/// the uninstallation.
async fn from_install_to_uninstall(name: &'static str, first: &'static str, then: &'static str) {
    let mut admin = Admin::new(name).await;
    admin.helm = first;
    admin.helm_upgrade(&[]);
    write_what_others_write(&admin);
    check_preserved(&admin, "at first");

    admin.helm = then;
    admin.helm_upgrade(&[
        "--set",
        "controller.replicas=3,admissionWebhooks.timeoutSeconds=7",
    ]);
    assert_eq!(replicas(&admin), "3");
    check_preserved(&admin, "after an upgrade");
    admin.helm(&["rollback", admin.name, "1"]).unwrap();
    assert_eq!(replicas(&admin), "2");
    check_preserved(&admin, "after a rollback");

    assert!(left(&admin).contains("deployment.apps/"));
    admin.helm(&["uninstall", admin.name]).unwrap();
    assert_eq!(left(&admin), "");
}

/// Returns the number of Pods of the controller in the release.
pub(super) fn replicas(admin: &Admin) -> String {
    let name = format!("{}-controller-manager", admin.name);
    let ask = ["get", "deployment", &name, "--namespace", admin.name];
    let ask = [&ask[..], &["--output=jsonpath={.spec.replicas}"]].concat();
    admin.kubectl(&ask).unwrap()
}

/// Returns the objects of the release that remain.
fn left(admin: &Admin) -> String {
    let of_release = format!("--selector=app.kubernetes.io/instance={}", admin.name);
    let kinds = "deployments,services,configmaps,serviceaccounts,roles,rolebindings,clusterroles,\
                 clusterrolebindings,mutatingwebhookconfigurations,validatingwebhookconfigurations";
    let ask = ["get", kinds, &of_release, "--output=name"];
    admin
        .kubectl(&[&ask[..], &["--namespace", admin.name]].concat())
        .unwrap()
}

/// The certificate and the owner of the webhooks, which the operator writes, and the list, which
/// admins edit.
fn write_what_others_write(admin: &Admin) {
    for kind in WEBHOOKS {
        let bundle = "/webhooks/0/clientConfig/caBundle";
        let owner = format!(
            r#"{{"apiVersion":"v1","kind":"Namespace","name":"{}","uid":"a-uid"}}"#,
            admin.name
        );
        let patch = format!(
            r#"[{{"op":"add","path":"{bundle}","value":"{CA_BUNDLE}"}},
                {{"op":"add","path":"/metadata/ownerReferences","value":[{owner}]}}]"#
        );
        let patch = ["patch", kind, admin.name, "--type=json", "--patch", &patch];
        admin.kubectl(&patch).unwrap();
    }
    let list = r#"{"data":{"controllers.yaml":"pod9:8090:a=b"}}"#;
    let name = format!("{}-vipu-controllers", admin.name);
    let edit = ["patch", "configmap", &name, "--type=merge", "--patch", list];
    admin
        .kubectl(&[&edit, &["--namespace", admin.name][..]].concat())
        .unwrap();
}

fn check_preserved(admin: &Admin, when: &str) {
    let written =
        "jsonpath={.webhooks[0].clientConfig.caBundle} {.metadata.ownerReferences[0].name}";
    for kind in WEBHOOKS {
        let bundle = admin.kubectl(&["get", kind, admin.name, "--output", written]);
        let expected = format!("{CA_BUNDLE} {}", admin.name);
        assert_eq!(bundle.unwrap(), expected, "{kind} {when}");
    }
    let name = format!("{}-vipu-controllers", admin.name);
    let list = ["get", "configmap", &name, "--namespace", admin.name];
    let list = admin.kubectl(&[&list, &["--output=jsonpath={.data}"][..]].concat());
    assert_eq!(
        list.unwrap(),
        r#"{"controllers.yaml":"pod9:8090:a=b"}"#,
        "{when}"
    );
}

#[tokio::test]
async fn both_render_the_same() {
    let mut admin = Admin::new("chart-versions").await;
    for values in ["alpha-5.yaml", "version-1.2.0.yaml", "everything.yaml"] {
        let values = format!("{}/tests/values/{values}", admin.chart());
        let chart = admin.chart().to_owned();
        let template = ["template", admin.name, &chart, "--include-crds", KUBERNETES];
        let template = [&template[..], &["--values", &values]].concat();
        let [by_3, by_4] = ["helm", "helm-4"].map(|helm| {
            admin.helm = helm;
            documents(&admin.helm(&template).unwrap())
        });
        assert!(by_3.iter().any(|made| made.contains("kind: Deployment")));
        assert_eq!(by_3.len(), by_4.len(), "{values}");
        let mut pairs = by_3.iter().zip(&by_4);
        let other = pairs.find(|(by_3, by_4)| by_3 != by_4);
        assert_eq!(other, None, "{values}");
    }
}

/// The rendered objects, sorted. Helm 4 puts webhooks before kinds that it does not know, Helm 3
/// among them. Helm 4 also writes an empty line between two files.
fn documents(rendered: &str) -> Vec<String> {
    let documents = rendered.split("\n---\n").map(str::trim);
    let mut documents: Vec<_> = documents.map(ToOwned::to_owned).collect();
    documents.sort();
    documents
}

#[tokio::test(flavor = "multi_thread")]
async fn both_install_from_the_repository_of_a_release() {
    let mut admin = Admin::new("chart-repository").await;
    let files = chart::files(guests::checkout()).unwrap();
    let packed = archive::tar_gz(&files, "ipu-operator/", 1_767_225_600).unwrap();
    let index = chart::index(&files, &packed, 1_767_225_600).unwrap();
    let file = admin.file("chart.tgz", "");
    fs::write(&file, &packed).unwrap();
    let routes = Router::new()
        .route("/index.yaml", get(|| async { index }))
        .route(
            &format!("/{}", chart::file(VERSION)),
            get(|| async { packed }),
        );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, routes).await });
    for helm in ["helm", "helm-4"] {
        admin.helm = helm;
        let rendered = |chart: &[&str]| {
            let template = ["template", admin.name, KUBERNETES, "--include-crds"];
            admin.helm(&[&template[..], chart].concat()).unwrap()
        };
        let from_folder = rendered(&[admin.chart()]);
        assert_eq!(from_folder, rendered(&[&file]), "{helm}");
        let repository = ["ipu-operator", "--repo", &address, "--version", VERSION];
        assert_eq!(from_folder, rendered(&repository), "{helm}");
    }
}
