//! The NetworkPolicies of the chart, enforced: the operator works, and other Pods reach no other
//! port of it.

use std::fs;
use std::panic::{AssertUnwindSafe, resume_unwind};

use cluster::plan::HOST_IP;
use futures::FutureExt;
use harness::operator::{NAMESPACE, VIPU_NAMESPACE};
use k8s_openapi::api::core::v1::Pod;
use libtest_mimic::Failed;
use serde_json::{Value, json};

use crate::failing_pods::IMAGE;
use crate::firewall;
use crate::fixture::{Fixture, PATIENCE};
use crate::native_pods::{create, delete};

/// The label of the Pods that may use the proxy's plain REST API.
const CLIENT: &str = "rest-client";

/// The Pods that connect, and whether each is such a client.
const PODS: [(&str, bool); 2] = [("client", true), ("stranger", false)];

/// With the policies, a parallel job runs, the webhooks decide, and probes, metrics and both REST
/// APIs answer their clients. The ports of the probes and the plain REST API are closed to other
/// Pods.
pub(crate) fn are_enforced(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let file = fixture.settings.run.join("network-policies.json");
        fs::write(&file, values().to_string())?;
        fixture.release.upgrade_with(&[&file], &[])?;
        for (name, is_client) in PODS {
            create::<Pod>(fixture, pod(name, is_client)).await?;
        }
        let ready = [
            "wait",
            "--for=condition=Ready",
            "--timeout=120s",
            "pods",
            "--all",
        ];
        fixture.kubectl(&ready).await?;
        firewall::enforce(fixture).await?;
        let ran = AssertUnwindSafe(run(fixture)).catch_unwind().await;
        firewall::end(fixture)?;
        fixture.release.install()?;
        for (name, _) in PODS {
            delete(fixture, &format!("pod/{name}")).await?;
        }
        ran.unwrap_or_else(|panic| resume_unwind(panic))?;
        fixture.clear().await
    })
}

/// The values that close all that can be closed. The API server and the V-IPU controllers are the
/// destinations that the page of the values names.
fn values() -> Value {
    let named = |namespace: &str| json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}});
    let mut client = named("default");
    client["podSelector"] = json!({"matchLabels": {CLIENT: "true"}});
    json!({"networkPolicy": {
        "proxyClients": [client],
        "egress": [
            {"to": [{"ipBlock": {"cidr": format!("{HOST_IP}/32")}}]},
            {"to": [named(VIPU_NAMESPACE)]},
        ],
    }})
}

fn pod(name: &str, is_client: bool) -> Value {
    json!({
        "metadata": {"name": name, "labels": {CLIENT: is_client.to_string()}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [{
            "name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["sleep", "3600"],
        }]},
    })
}

async fn run(fixture: &Fixture) -> Result<(), Failed> {
    fixture.webhooks_answer().await?;
    let job = fixture.apply("02-parallel.yaml").await?;
    fixture.facts().completed(&job, PATIENCE).await?;
    fixture.delete_and_leave_nothing("02-parallel.yaml").await?;
    for (component, ports) in [
        (
            "controller",
            [(9443, true, true), (8443, true, true), (8081, false, false)],
        ),
        (
            "vipu-proxy",
            [
                (8080, true, false),
                (8443, true, true),
                (8081, false, false),
            ],
        ),
    ] {
        let address = address(fixture, component).await?;
        for (port, for_client, for_stranger) in ports {
            for (name, is_client) in PODS {
                let expected = if is_client { for_client } else { for_stranger };
                let connected = connects(fixture, name, &address, port).await;
                assert_eq!(connected, expected, "{name} to {component} {port}");
            }
        }
    }
    // The kubelet's probes pass.
    let ready = [
        "wait",
        "--for=condition=Ready",
        "--timeout=60s",
        "pods",
        "--all",
    ];
    let of_operator = ["--namespace", NAMESPACE];
    fixture
        .kubectl(&[&ready[..], &of_operator].concat())
        .await?;
    Ok(())
}

/// The address of the first Pod of a component.
async fn address(fixture: &Fixture, component: &str) -> Result<String, Failed> {
    let selector = format!("--selector=app.kubernetes.io/component={component}");
    let get = ["get", "pods", &selector, "--namespace", NAMESPACE];
    let address = "--output=jsonpath={.items[0].status.podIP}";
    Ok(fixture.kubectl(&[&get[..], &[address]].concat()).await?)
}

/// Whether a Pod can connect to an address.
async fn connects(fixture: &Fixture, pod: &str, address: &str, port: u16) -> bool {
    let script = format!("import socket; socket.create_connection(('{address}', {port}), 5)");
    let exec = ["exec", pod, "--", "python3", "-c", &script];
    fixture.kubectl(&exec).await.is_ok()
}
