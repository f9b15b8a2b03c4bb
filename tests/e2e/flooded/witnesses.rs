//! Witnesses of the load: an unloaded Pod beside each of the operator's, on the same node and with
//! the same resources.
//!
//! The node gives both the same share of its processors, for which the load competes. So the
//! additional duration of a request to a witness under load is a delay of the machine, not of the
//! operator.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};

use cluster::wait::{Seen, until};
use harness::simulator_image;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use libtest_mimic::Failed;

use super::Running;
use super::waits::{answered, get};
use crate::fixture::{Fixture, PATIENCE};

/// Label of these Pods.
const LABEL: (&str, &str) = ("app", "flood-witness");

/// The port on which a simulated V-IPU controller answers plain HTTP.
const PORT: u16 = 8091;

/// Creates a witness for each Pod of the operator, and waits until it responds. Returns the
/// addresses.
pub(super) async fn create(fixture: &Fixture, pods: &[Running]) -> Result<Vec<SocketAddr>, Failed> {
    let api: Api<Pod> = Api::namespaced(fixture.operated.client.clone(), "default");
    let mut addresses = Vec::new();
    for (number, beside) in pods.iter().enumerate() {
        let name = format!("flood-witness-{number}");
        let parameters = PostParams::default();
        api.create(&parameters, &pod(&name, beside)).await?;
        let what = format!("the witness {name} to answer");
        let address = until(what, PATIENCE, || async {
            let status = api.get(&name).await?.status.unwrap_or_default();
            let Some(ip) = status.pod_ip else {
                return Ok(Seen::NotYet(format!("{:?}", status.phase)));
            };
            let address = SocketAddr::new(ip.parse::<IpAddr>()?, PORT);
            let answered = answered(address, &get("/healthz", "")).await;
            Ok::<_, Box<dyn Error + Send + Sync>>(match answered {
                Ok(_) => Seen::Yes(address),
                Err(failed) => Seen::NotYet(format!("{failed:?}")),
            })
        });
        addresses.push(address.await?);
    }
    Ok(addresses)
}

/// Deletes them.
pub(super) async fn delete(fixture: &Fixture) -> Result<(), Failed> {
    let selector = format!("--selector={}={}", LABEL.0, LABEL.1);
    let delete = ["delete", "pod", &selector, "--wait=false"];
    fixture.kubectl(&delete).await?;
    Ok(())
}

fn pod(name: &str, beside: &Running) -> Pod {
    let (label, value) = LABEL;
    Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([(label.to_owned(), value.to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            node_name: Some(beside.node.clone()),
            automount_service_account_token: Some(false),
            termination_grace_period_seconds: Some(1),
            containers: vec![Container {
                name: "witness".to_owned(),
                image: Some(simulator_image::NAME.to_owned()),
                image_pull_policy: Some("Never".to_owned()),
                resources: Some(beside.resources.clone()),
                ..Container::default()
            }],
            ..PodSpec::default()
        }),
        ..Pod::default()
    }
}
