//! The chart on a real API server: the API server accepts the rendered objects, the rights are
//! sufficient and minimal, the webhooks block no other client, and an upgrade keeps foreign data.
#![cfg(test)]

pub(crate) mod admin;
pub(crate) mod arguments;
mod certificates;
pub(crate) mod definitions;
mod documents;
mod fences;
mod quota;
mod restricted;
mod rights;
mod scope;
mod upgrade;
mod versions;

use std::process::Command;

use cluster::{
    command,
    progress::Progress,
    settings::Settings,
    tools::Tools,
    wait::{Seen, eventually},
};
use release::guests::checkout;
use release::package::previous::Previous;

use self::admin::{Admin, KUBERNETES};

#[test]
fn every_template_matches_its_suite() {
    let settings = Settings::from_env().unwrap();
    let tools = Tools::fetch_some(&settings, &Progress::start(), &["helm-unittest"]).unwrap();
    let mut unittest = Command::new(tools.program("helm-unittest"));
    unittest
        .arg("--strict")
        .arg(settings.checkout.join("charts/ipu-operator"));
    let printed = command::output(&mut unittest).unwrap();
    assert!(printed.contains("Tests:"), "{printed}");
}

#[tokio::test]
async fn the_api_server_accepts_what_helm_renders() {
    let mut admin = Admin::new("chart-rendered").await;
    let chart = admin.chart().to_owned();
    let previous = Previous::locked(checkout()).unwrap().texts(checkout());
    let previous = previous.join("charts/ipu-operator/values.yaml");
    let ours = |name| Some(format!("{chart}/tests/values/{name}.yaml"));
    for values in [
        None,
        ours("alpha-5"),
        ours("version-1.2.0"),
        Some(previous.display().to_string()),
        ours("everything"),
        Some(format!("{chart}/values-production.yaml")),
    ] {
        let mut values: Vec<&str> = values.iter().flat_map(|path| ["--values", path]).collect();
        // The API server here has no CRDs of the Prometheus operator.
        values.push(
            "--set=metrics.serviceMonitor.enabled=false,metrics.prometheusRule.enabled=false",
        );
        let lint = [&["lint", "--strict", &chart, KUBERNETES], &values[..]].concat();
        for helm in ["helm-4", "helm"] {
            admin.helm = helm;
            admin.helm(&lint).unwrap();
        }
        let template = [
            "template",
            admin.name,
            admin.chart(),
            "--include-crds",
            KUBERNETES,
        ];
        let rendered = admin.helm(&[&template, &values[..]].concat()).unwrap();
        let rendered = admin.file("rendered.yaml", &rendered);
        let taken = admin.kubectl(&[
            "apply",
            "--server-side",
            "--force-conflicts",
            "--dry-run=server",
            "--validate=strict",
            "--filename",
            &rendered,
        ]);
        let taken = taken.unwrap_or_else(|error| panic!("{values:?}: {error}"));
        assert!(taken.contains("deployment.apps/"), "{values:?}: {taken}");
        assert!(
            taken.contains("validatingwebhookconfiguration"),
            "{values:?}: {taken}"
        );
    }
}

#[tokio::test]
async fn the_operators_pods_meet_pod_security_restricted() {
    let admin = Admin::new("chart-restricted").await;
    admin
        .kubectl(&[
            "label",
            "namespace",
            admin.name,
            "pod-security.kubernetes.io/enforce=restricted",
        ])
        .unwrap();
    let template = ["template", admin.name, admin.chart(), KUBERNETES];
    for (process, file) in [
        ("controller", "controller-deployment"),
        ("vipu-proxy", "vipu-proxy-deployment"),
        ("certificates", "certificates-deployment"),
        ("verify", "verify"),
    ] {
        let show = format!("--show-only=templates/{file}.yaml");
        let rendered = admin.helm(&[&template, &[show.as_str()][..]].concat());
        let mut pod = pod_of(&rendered.unwrap());
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        pod["metadata"]["name"] = process.into();
        let create = |pod: &serde_json::Value| {
            let file = admin.file("pod.json", &pod.to_string());
            let create = ["create", "--dry-run=server", "--namespace", admin.name];
            admin.kubectl(&[&create, &["--filename", file.as_str()][..]].concat())
        };
        create(&pod).unwrap();
        // The namespace refuses Pods that are not restricted, so the check above can fail.
        pod["spec"]["hostNetwork"] = true.into();
        let refused = create(&pod).unwrap_err().to_string();
        assert!(refused.contains("violates PodSecurity"), "{refused}");
    }
}

/// Returns the Pod of a rendered file, or the one that its Deployment creates.
fn pod_of(rendered: &str) -> serde_json::Value {
    let documents = rendered.split("\n---\n").map(|document| {
        let document: serde_json::Value = serde_saphyr::from_str(document).unwrap();
        document
    });
    let mut pods = documents.filter_map(|document| match document["kind"].as_str() {
        Some("Deployment") => Some(document["spec"]["template"].clone()),
        Some("Pod") => Some(document),
        _ => None,
    });
    pods.next().expect("the file has a Pod")
}

#[tokio::test]
async fn unreachable_webhooks_block_no_other_requests() {
    let admin = Admin::new("chart-webhooks").await;
    admin.helm_upgrade(&[]);
    let ns = ["--namespace", admin.name];
    let job = admin.file("job.yaml", JOB);
    let create = [&["create", "--filename", &job], &ns[..]].concat();
    let patch = |patch: &str| {
        let merge = ["patch", "ipujob", "job", "--type=merge", "--patch", patch];
        admin.kubectl(&[&merge, &ns[..]].concat())
    };
    let operator = admin.account("controller-manager");
    let as_operator = [operator.as_str(), "--as-group=system:masters"];

    // Nothing listens behind the webhooks, so the API server refuses every client that is not
    // exempt. It follows changed configurations with a short delay.
    eventually("a new job is refused", async || {
        let answer = admin.kubectl(&[&create, &["--dry-run=server"][..]].concat());
        let refusal = answer.err().map(|error| error.to_string());
        Seen::when(refusal.unwrap_or_default(), |text| {
            text.contains("mipujob.graphcore.ai")
        })
    })
    .await;
    admin
        .kubectl(&[&create, &as_operator[..]].concat())
        .unwrap();
    patch(r#"{"spec":{"jobInstances":2}}"#).unwrap_err();

    patch(r#"{"metadata":{"labels":{"a":"b"},"annotations":{"a":"b"}}}"#).unwrap();
    let spec = r#"{"spec":{"jobInstances":2}}"#;
    let by_operator = ["patch", "ipujob", "job", "--type=merge", "--patch", spec];
    admin
        .kubectl(&[&by_operator, &ns[..], &as_operator[..]].concat())
        .unwrap();
    admin
        .kubectl(&[&["delete", "ipujob", "job", "--wait=false"], &ns[..]].concat())
        .unwrap();
    patch(r#"{"spec":{"jobInstances":3}}"#).unwrap();
    patch(r#"{"metadata":{"finalizers":null}}"#).unwrap();
    let gone = [&["get", "ipujob", "job"], &ns[..]].concat();
    assert!(
        admin
            .kubectl(&gone)
            .unwrap_err()
            .to_string()
            .contains("NotFound")
    );
}

/// A job that satisfies the CRD.
pub(crate) const JOB: &str = "
apiVersion: graphcore.ai/v1alpha1
kind: IPUJob
metadata: { name: job, finalizers: [ipu.finalizers.graphcore.ai] }
spec:
  jobInstances: 1
  ipusPerJobInstance: '1'
  workers:
    template:
      spec:
        containers: [{ name: main, image: image }]
";
