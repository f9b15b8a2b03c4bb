//! The release of a command as the API server reports it, which is up to a second earlier than the
//! kubelet's file: a watch of this Pod.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, WatchEvent, WatchParams};
use kube::core::PartialObjectMeta;
use kube::{Client, Config, ResourceExt};

use super::is_release;

/// Annotation of a launcher: `held`, and from its release on the time of it.
pub const START_ANNOTATION: &str = "graphcore.ai/start";

/// Pause after the first watch that failed. Each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The Pod of this process.
#[derive(Clone, Debug)]
pub struct OwnPod {
    /// Its name.
    pub name: String,
    /// File with its UID: a Pod that has taken its place has the same name.
    pub uid_file: PathBuf,
}

/// Waits until the annotation releases the command. The file of the kubelet releases it in any
/// case, so a failure here is none of the launcher, and only delays it.
pub(super) async fn release(pod: &OwnPod) {
    let mut pause = FIRST_PAUSE;
    while !is_released(pod).await.unwrap_or(false) {
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

/// Reads one watch until the release. False: the watch has ended before. None: it failed.
async fn is_released(pod: &OwnPod) -> Option<bool> {
    let uid = read_uid(&pod.uid_file)?;
    let config = Config::incluster().ok()?;
    let namespace = config.default_namespace.clone();
    let pods: Api<Pod> = Api::namespaced(Client::try_from(config).ok()?, &namespace);
    let own = WatchParams::default().fields(&format!("metadata.name={}", pod.name));
    // Without a version, the watch begins with the Pod as it is now.
    let mut events = pods.watch_metadata(&own, "").await.ok()?.boxed();
    while let Some(event) = events.try_next().await.ok()? {
        if releases(&event, &uid) {
            return Some(true);
        }
    }
    Some(false)
}

fn read_uid(file: &Path) -> Option<String> {
    let uid = std::fs::read_to_string(file).ok()?;
    Some(uid.trim().to_owned()).filter(|uid| !uid.is_empty())
}

fn releases(event: &WatchEvent<PartialObjectMeta<Pod>>, uid: &str) -> bool {
    let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event else {
        return false;
    };
    let is_own = pod.metadata.uid.as_deref() == Some(uid);
    let value = pod.annotations().get(START_ANNOTATION);
    is_own && value.is_some_and(|value| is_release(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, uid: &str, start: Option<&str>) -> WatchEvent<PartialObjectMeta<Pod>> {
        let annotations = start.map(|start| json!({START_ANNOTATION: start}));
        let pod = json!({
            "apiVersion": "meta.k8s.io/v1",
            "kind": "PartialObjectMetadata",
            "metadata": {"name": "job-launcher", "uid": uid, "annotations": annotations},
        });
        serde_json::from_value(json!({"type": kind, "object": pod})).unwrap()
    }

    #[test]
    fn only_the_release_of_this_pod_counts() {
        let time = Some("2026-01-01T00:00:00Z");
        for (kind, uid, start, expected) in [
            ("ADDED", "own", time, true),
            ("MODIFIED", "own", time, true),
            ("MODIFIED", "own", Some("held"), false),
            ("MODIFIED", "own", None, false),
            // This Pod was replaced, and its node has not noticed it yet.
            ("ADDED", "other", time, false),
            ("DELETED", "own", time, false),
        ] {
            let event = event(kind, uid, start);
            assert_eq!(releases(&event, "own"), expected, "{event:?}");
        }
    }
}
