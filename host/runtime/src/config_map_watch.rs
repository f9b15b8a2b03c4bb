//! Watches one ConfigMap.

use futures::Stream;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, Client};

/// The ConfigMap of this name after each change, without end, with growing pauses after errors.
/// `None`: it does not exist.
pub fn watch_config_map(
    client: Client,
    namespace: &str,
    name: &str,
) -> impl Stream<Item = watcher::Result<Option<ConfigMap>>> {
    watch_object(Api::namespaced(client, namespace), name).default_backoff()
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use axum::http::{Request, Response};
    use futures::TryStreamExt;
    use kube::client::Body;
    use serde_json::json;
    use tower::{BoxError, service_fn};

    use super::*;

    /// An API server whose first list contains the ConfigMap, and whose watches have all expired.
    fn server() -> Client {
        let mut items = vec![json!({"metadata": {"name": "levels"}})];
        let service = service_fn(move |request: Request<Body>| {
            let is_watch = request.uri().to_string().contains("watch=");
            let body = if is_watch {
                json!({"type": "ERROR", "object": {"kind": "Status", "code": 410}})
            } else {
                let items = std::mem::take(&mut items);
                json!({"metadata": {"resourceVersion": "1"}, "items": items})
            };
            let body = Body::from(format!("{body}\n").into_bytes());
            async { Ok::<_, BoxError>(Response::new(body)) }
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn a_config_map_that_a_new_list_does_not_contain_is_gone() {
        let mut objects = pin!(watch_config_map(server(), "default", "levels"));
        let listed = objects.try_next().await.unwrap().flatten().unwrap();
        assert_eq!(listed.metadata.name.as_deref(), Some("levels"));
        assert!(objects.try_next().await.is_err(), "the watch has expired");
        assert_eq!(objects.try_next().await.unwrap(), Some(None));
    }
}
