//! The release of a command as the API server reports it, which is up to a second earlier than the
//! kubelet's file: a watch of this Pod.

use std::fs;
use std::path::Path;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, WatchEvent, WatchParams};
use kube::{Client, Config, ResourceExt};

use super::is_release;

/// Annotation of a launcher: `held`, and from its release on the time of it.
pub const START_ANNOTATION: &str = "graphcore.ai/start";

/// Longest time of one watch. The API server ends it after five minutes; a connection whose other
/// end has vanished does not end by itself.
const LONGEST_WATCH: Duration = Duration::from_secs(310);

/// Pause after a watch that the API server has ended: a proxy before it may end each at once.
const PAUSE: Duration = Duration::from_secs(1);

/// Names of the files with the name and the UID of this Pod, beside that of the release. Without
/// them, the launcher has no right to follow its Pod.
pub const FILES: [&str; 2] = ["name", "uid"];

/// The Pod of this process.
#[derive(Clone, Debug)]
pub struct OwnPod {
    /// Its name.
    pub name: String,
    /// Its UID: a Pod that has taken its place has the same name.
    pub uid: String,
}

/// A watch that has not reported the release.
#[derive(Debug, thiserror::Error)]
enum WatchError {
    /// This Pod has no service account.
    #[error("failed to read the service account of this Pod")]
    Config(#[source] kube::config::InClusterError),
    /// The client could not be created.
    #[error("failed to make a client of the API server")]
    Client(#[source] kube::Error),
    /// The API server refuses the watch, or has ended it with an error.
    #[error("failed to watch this Pod")]
    Watch(#[source] kube::Error),
    /// The connection seems to be dead.
    #[error("the watch of this Pod was silent for too long")]
    Silent,
}

impl OwnPod {
    /// Reads the files in a folder. `None`: this Pod is not followed.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        let [name, uid] = FILES.map(|file| {
            let text = fs::read_to_string(folder.join(file)).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        });
        Some(Self {
            name: name?,
            uid: uid?,
        })
    }
}

/// Waits until the annotation releases the command. The file of the kubelet releases it in any
/// case, so an error is not reported.
pub(super) async fn release(pod: &OwnPod) {
    loop {
        let watched = || async { in_time(pod).await };
        // The builder repeats a failed watch without end.
        if watched.retry(patience()).await.unwrap_or(false) {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// A right, or its news, may arrive a moment after the launcher. Later, thousands of launchers must
/// not call at the same time.
fn patience() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_secs(30))
        .without_max_times()
        .with_jitter()
}

async fn in_time(pod: &OwnPod) -> Result<bool, WatchError> {
    let mut config = Config::incluster().map_err(WatchError::Config)?;
    // Each watch is repeated anyway.
    config.default_retry = false;
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).map_err(WatchError::Client)?;
    let watched = tokio::time::timeout(LONGEST_WATCH, is_released(client, &namespace, pod));
    let watched = watched.await.map_err(|_| WatchError::Silent)?;
    watched.map_err(WatchError::Watch)
}

/// Reads one watch with a given client until the release. False: the API server has ended it
/// before.
pub async fn is_released(
    client: Client,
    namespace: &str,
    pod: &OwnPod,
) -> Result<bool, kube::Error> {
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let own = WatchParams::default().fields(&format!("metadata.name={}", pod.name));
    // Without a version, the watch begins with the Pod as it is now.
    let mut events = pods.watch(&own, "").await?.boxed();
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(found) | WatchEvent::Modified(found) if releases(&found, pod) => {
                return Ok(true);
            }
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            _ => {}
        }
    }
    Ok(false)
}

/// Whether this Pod is released. Its kubelet must have reported its start, so that everybody knows
/// that a command may have run here, and a Pod that ends starts nothing.
fn releases(found: &Pod, own: &OwnPod) -> bool {
    let is_own = found.metadata.uid.as_ref() == Some(&own.uid);
    let phase = found
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let value = found.annotations().get(START_ANNOTATION);
    is_own
        && found.metadata.deletion_timestamp.is_none()
        && phase == Some("Running")
        && value.is_some_and(|value| is_release(value))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(change: impl FnOnce(&mut Value)) -> Pod {
        let mut pod = json!({
            "metadata": {
                "name": "job-launcher", "uid": "own",
                "annotations": {START_ANNOTATION: "2026-01-01T00:00:00Z"},
            },
            "status": {"phase": "Running"},
        });
        change(&mut pod);
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn only_the_release_of_this_pod_counts() {
        let own = OwnPod {
            name: "job-launcher".to_owned(),
            uid: "own".to_owned(),
        };
        assert!(releases(&pod(|_| {}), &own));
        let others: [fn(&mut Value); 5] = [
            |pod| pod["metadata"]["annotations"] = json!({START_ANNOTATION: "held"}),
            |pod| pod["metadata"]["annotations"] = json!({}),
            // This Pod was replaced, and its node has not noticed it yet.
            |pod| pod["metadata"]["uid"] = json!("other"),
            |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            // A node that ends before it reports the start would leave a command of which nobody
            // knows.
            |pod| pod["status"]["phase"] = json!("Pending"),
        ];
        for change in others {
            let pod = pod(change);
            assert!(!releases(&pod, &own), "{pod:?}");
        }
    }

    #[test]
    fn a_pod_without_its_name_and_uid_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(folder.path().join(file), text).unwrap();
        assert!(OwnPod::read(folder.path()).is_none());
        write("name", "job-launcher");
        write("uid", "\n");
        assert!(OwnPod::read(folder.path()).is_none());
        write("uid", "own\n");
        let own = OwnPod::read(folder.path()).unwrap();
        assert_eq!((&*own.name, &*own.uid), ("job-launcher", "own"));
    }
}
