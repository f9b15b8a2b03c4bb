//! Runs one probe, from the creation of its Pod to its deletion.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use ipu_api::labels;
use ipu_runtime::{image_volume, requests};
use ipu_text::{explain, sanitize};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::wait::{self, await_condition, conditions};
use kube::runtime::watcher::watch_object;
use kube::{Client, Resource, ResourceExt};
use thiserror::Error;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::ProbeSettings;
use super::choice::Outcome;
use super::probe::{self, TEXT_MAX};

/// Time that a probe has for its image and its start.
const PROBE_TIME: Duration = Duration::from_mins(2);

/// Time in which the node of an earlier probe ends it. A node that does not answer never does.
const REMOVAL_TIME: Duration = Duration::from_secs(30);

/// A probe that did not run, which says nothing about its node.
#[derive(Debug, Error)]
enum ProbeError {
    /// The Pod of this process cannot be read.
    #[error("failed to read the Pod of the controller")]
    Owner(#[source] kube::Error),
    /// It is not known whether there is an earlier probe.
    #[error("failed to look for an earlier probe")]
    Read(#[source] kube::Error),
    /// Somebody else has a Pod of this name.
    #[error("Pod {0} exists and is not a probe of the operator; delete or rename it")]
    NotOurs(String),
    /// An earlier probe cannot be deleted.
    #[error("failed to delete an earlier probe")]
    Delete(#[source] kube::Error),
    /// An earlier probe cannot be followed.
    #[error("failed to await the end of an earlier probe")]
    Await(#[source] wait::Error),
    /// The API server refuses the Pod.
    #[error("failed to create its Pod")]
    Create(#[source] kube::Error),
    /// The Pod has no result.
    #[error("the Pod of the probe was deleted")]
    Deleted,
    /// The node has left, or has another version.
    #[error("its node has changed meanwhile")]
    NodeChanged,
}

/// Probes a node, until `node_changed`.
pub(super) async fn execute(
    client: Client,
    settings: &ProbeSettings,
    node: &str,
    node_changed: &CancellationToken,
) -> Outcome {
    let pods: Api<Pod> = Api::namespaced(client, &settings.namespace);
    match Box::pin(run(&pods, settings, node, node_changed)).await {
        Ok(outcome) => outcome,
        Err(error) => Outcome::NotRun(sanitize(&explain(&error), TEXT_MAX)),
    }
}

async fn run(
    pods: &Api<Pod>,
    settings: &ProbeSettings,
    node: &str,
    node_changed: &CancellationToken,
) -> Result<Outcome, ProbeError> {
    let name = settings.name();
    Box::pin(remove_earlier(pods, &name)).await?;
    let pod = probe::pod(settings, node, owner(pods, settings).await?);
    let created = pods.create(&requests::post(), &pod).await;
    let created = created.map_err(ProbeError::Create)?;
    let ended = async {
        if image_volume::is_dropped(&pod, &created) {
            let reason = "the API server has no image volumes";
            return Ok(Outcome::Refuses(reason.to_owned()));
        }
        let ended = node_changed.run_until_cancelled(once_ended(pods, &name));
        ended.await.unwrap_or(Err(ProbeError::NodeChanged))
    };
    let outcome = ended.await;
    // A Pod that stays is deleted by the next probe, or with the Pod of this process.
    if let Err(error) = delete(pods, &created, None).await {
        tracing::info!("the Pod of a probe stays: {}", explain(&error));
    }
    outcome
}

/// A process that was killed has left its Pod, and so has a probe of a node that does not answer.
async fn remove_earlier(pods: &Api<Pod>, name: &str) -> Result<(), ProbeError> {
    let found = pods.get_opt(name).await.map_err(ProbeError::Read)?;
    let Some(earlier) = found else {
        return Ok(());
    };
    let manager = earlier.labels().get(labels::MANAGED_BY_LABEL);
    if manager.is_none_or(|manager| manager != labels::MANAGED_BY) {
        return Err(ProbeError::NotOurs(name.to_owned()));
    }
    let deleted = delete(pods, &earlier, None).await;
    deleted.map_err(ProbeError::Delete)?;
    let uid = earlier.uid().unwrap_or_default();
    let gone = await_condition(pods.clone(), name, conditions::is_deleted(&uid));
    if let Ok(gone) = timeout(REMOVAL_TIME, gone).await {
        return gone.map(drop).map_err(ProbeError::Await);
    }
    // Nothing depends on its end.
    let forced = delete(pods, &earlier, Some(0)).await;
    forced.map_err(ProbeError::Delete)
}

/// Deletes this Pod, and no other of its name.
async fn delete(
    pods: &Api<Pod>,
    pod: &Pod,
    grace_period_seconds: Option<u32>,
) -> Result<(), kube::Error> {
    let mut parameters = requests::delete(pod.uid(), None);
    parameters.grace_period_seconds = grace_period_seconds;
    match pods.delete(&pod.name_any(), &parameters).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        deleted => deleted.map(drop),
    }
}

/// The Pod of this process, as the owner of its probes.
async fn owner(
    pods: &Api<Pod>,
    settings: &ProbeSettings,
) -> Result<Option<OwnerReference>, ProbeError> {
    let Some(name) = &settings.pod_name else {
        return Ok(None);
    };
    let own = pods.get_opt(name).await.map_err(ProbeError::Owner)?;
    Ok(own.and_then(|pod| pod.controller_owner_ref(&())))
}

async fn once_ended(pods: &Api<Pod>, name: &str) -> Result<Outcome, ProbeError> {
    let mut last = None;
    let ended = async {
        let mut states = pin!(watch_object(pods.clone(), name).default_backoff());
        while let Some(state) = states.next().await {
            match state {
                Ok(Some(pod)) => match probe::outcome(&pod) {
                    Some(outcome) => return Ok(outcome),
                    None => last = Some(probe::reason(&pod)),
                },
                Ok(None) => return Err(ProbeError::Deleted),
                Err(error) => last = Some(explain(&error)),
            }
        }
        Err(ProbeError::Deleted)
    };
    if let Ok(outcome) = timeout(PROBE_TIME, ended).await {
        return outcome;
    }
    let last = last.unwrap_or_else(|| "it was not seen".to_owned());
    let seconds = PROBE_TIME.as_secs();
    let reason = format!("a Pod with the image did not end within {seconds} s: {last}");
    Ok(Outcome::Refuses(sanitize(&reason, TEXT_MAX)))
}
