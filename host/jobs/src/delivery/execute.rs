//! Runs one probe, from the creation of its Pod to its deletion.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use ipu_runtime::{image_volume, requests};
use ipu_text::explain;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::wait::{self, await_condition, conditions};
use kube::runtime::watcher::watch_object;
use kube::{Client, Resource, ResourceExt};
use thiserror::Error;
use tokio::time::timeout;

use super::ProbeSettings;
use super::probe;

/// Time that a probe has for its image and its start.
const PROBE_TIME: Duration = Duration::from_mins(2);

/// Time for the end of an earlier probe on a node that answers.
const REMOVAL_TIME: Duration = Duration::from_mins(1);

/// The failure of a probe to run, which says nothing about its node.
#[derive(Debug, Error)]
enum ProbeError {
    /// The Pod of this process cannot be read.
    #[error("failed to read the Pod of the controller")]
    Owner(#[source] kube::Error),
    /// An earlier probe cannot be deleted.
    #[error("failed to delete an earlier probe")]
    Delete(#[source] kube::Error),
    /// An earlier probe cannot be followed.
    #[error("failed to await the end of an earlier probe")]
    Await(#[source] wait::Error),
    /// An earlier probe does not end.
    #[error("an earlier probe was deleted, and its node does not end it")]
    Stays,
    /// The API server refuses the Pod.
    #[error("failed to create its Pod")]
    Create(#[source] kube::Error),
}

/// Probes a node. Returns why it does not mount the image, as far as that is known.
pub(super) async fn execute(
    client: Client,
    settings: &ProbeSettings,
    node: &str,
) -> Result<(), String> {
    let pods: Api<Pod> = Api::namespaced(client, &settings.namespace);
    let result = match Box::pin(create(&pods, settings, node)).await {
        Ok(result) => result,
        Err(error) => Err(format!("the probe did not run: {}", explain(&error))),
    };
    // A Pod that stays is deleted by the next probe, or with the Pod of this process.
    if let Err(error) = delete(&pods, &settings.name()).await {
        tracing::info!("the Pod of a probe stays: {}", explain(&error));
    }
    result
}

/// Creates the Pod and awaits its end.
async fn create(
    pods: &Api<Pod>,
    settings: &ProbeSettings,
    node: &str,
) -> Result<Result<(), String>, ProbeError> {
    let name = settings.name();
    remove_earlier(pods, &name).await?;
    let pod = probe::pod(settings, node, owner(pods, settings).await?);
    let created = pods.create(&requests::post(), &pod).await;
    let created = created.map_err(ProbeError::Create)?;
    if image_volume::is_dropped(&pod, &created) {
        return Ok(Err("the API server has no image volumes".to_owned()));
    }
    Ok(once_ended(pods, &name).await)
}

/// Of a process that was killed there may be a Pod.
async fn remove_earlier(pods: &Api<Pod>, name: &str) -> Result<(), ProbeError> {
    let earlier = pods.get_opt(name).await.map_err(ProbeError::Delete)?;
    let Some(uid) = earlier.and_then(|pod| pod.uid()) else {
        return Ok(());
    };
    delete(pods, name).await.map_err(ProbeError::Delete)?;
    let gone = await_condition(pods.clone(), name, conditions::is_deleted(&uid));
    match timeout(REMOVAL_TIME, gone).await {
        Ok(gone) => gone.map(|_| ()).map_err(ProbeError::Await),
        Err(_) => Err(ProbeError::Stays),
    }
}

async fn delete(pods: &Api<Pod>, name: &str) -> Result<(), kube::Error> {
    match pods.delete(name, &DeleteParams::background()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        deleted => deleted.map(|_| ()),
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
    Ok(own.and_then(|pod| pod.owner_ref(&())))
}

async fn once_ended(pods: &Api<Pod>, name: &str) -> Result<(), String> {
    let mut last = None;
    let ended = async {
        let mut states = pin!(watch_object(pods.clone(), name).default_backoff());
        while let Some(state) = states.next().await {
            let Ok(state) = state else { continue };
            let Some(pod) = state else {
                return Err("the Pod of the probe was deleted".to_owned());
            };
            if let Some(result) = probe::result(&pod) {
                return result;
            }
            last = Some(probe::why(&pod));
        }
        Err("the Pod of the probe was not followed".to_owned())
    };
    if let Ok(result) = timeout(PROBE_TIME, ended).await {
        return result;
    }
    let last = last.unwrap_or_else(|| "it has no status".to_owned());
    let seconds = PROBE_TIME.as_secs();
    Err(format!(
        "a Pod with the image did not start within {seconds} s: {last}"
    ))
}
