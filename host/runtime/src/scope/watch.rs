//! Watches objects of the namespaces that a release serves.

use std::fmt::Debug;
use std::pin::pin;

use futures::channel::mpsc::{self, UnboundedSender};
use futures::{Stream, StreamExt, TryStreamExt, future};
use ipu_api::ipupartition::IPUPartition;
use k8s_openapi::NamespaceResourceScope;
use kube::api::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::Scope;
use crate::panics;
use crate::trimmed::{self, Guarded, Trimmed};
use crate::{wait, watch_store};

/// Time in seconds after which the API server ends a watch, which then continues where it was. A
/// connection whose other end has vanished without a word is noticed a few seconds later.
const LONGEST_WATCH: u32 = 60;

/// A watch of all objects of a kind. An interrupted watch restarts with exponential back-off.
pub fn cluster_wide<K>(
    client: &Client,
    config: watcher::Config,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + use<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    // On the heap: the futures that contain it stay small.
    let events = watcher(Api::all(client.clone()), config.timeout(LONGEST_WATCH));
    events.default_backoff().boxed()
}

/// A watch of the whole cluster that returns only objects of served namespaces. It is for kinds
/// that every release may read in all namespaces.
pub fn everywhere<K>(
    client: &Client,
    scope: &Scope,
    config: watcher::Config,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + use<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let scope = scope.clone();
    let is_served = move |event: &Event<K>| future::ready(is_served(&scope, event));
    cluster_wide::<K>(client, config).try_filter(is_served)
}

/// A watch of the IPUPartitions of served namespaces. It drops those of other releases, because
/// IPUPartitions are cluster-scoped, and unreadable ones.
pub fn partitions(
    client: &Client,
    scope: &Scope,
    config: watcher::Config,
) -> impl Stream<Item = watcher::Result<Event<IPUPartition>>> + Send + use<> {
    let scope = scope.clone();
    let served = move |Trimmed(object): Guarded<IPUPartition>| {
        let partition = object.0.ok()?;
        let is_served = scope.contains(&partition.spec.owner.namespace);
        is_served.then_some(partition)
    };
    let events = cluster_wide::<Guarded<IPUPartition>>(client, config);
    events.try_filter_map(move |event| future::ready(Ok(trimmed::filter_map(event, &served))))
}

/// Drops unreadable objects from a watch, and logs them.
pub fn readable<K: Resource<DynamicType = ()>>(
    events: impl Stream<Item = watcher::Result<Event<Guarded<K>>>>,
) -> impl Stream<Item = watcher::Result<Event<K>>> {
    events.try_filter_map(|event| future::ready(Ok(trimmed::readable(event))))
}

/// HTTP status of the API server's refusal of a list, or of the start of a watch.
pub fn refused(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

/// One watch for each served namespace, or one for all namespaces. It is for kinds that a release
/// for some namespaces may read only there. The name of the namespace is empty in a watch for all
/// of them.
pub fn in_each<K>(
    client: &Client,
    scope: &Scope,
    config: &watcher::Config,
) -> Vec<(
    String,
    impl Stream<Item = watcher::Result<Event<K>>> + Send + use<K>,
)>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let apis = match scope {
        Scope::Cluster => vec![(String::new(), Api::all(client.clone()))],
        Scope::Namespaces(names) => names
            .iter()
            .map(|name| (name.clone(), Api::namespaced(client.clone(), name)))
            .collect(),
    };
    let watches = apis.into_iter().map(|(namespace, api)| {
        let events = watcher(api, config.clone().timeout(LONGEST_WATCH)).default_backoff();
        (namespace, events)
    });
    watches.collect()
}

/// The first lists of several watches. Reconciliation starts after all of them are complete.
#[derive(Debug)]
pub struct FirstLists {
    missing: watch::Sender<usize>,
}

impl FirstLists {
    /// Waits for the first lists of this number of watches.
    pub fn new(watches: usize) -> Self {
        let missing = watch::Sender::new(watches);
        Self { missing }
    }

    /// Records that the first list of a watch is complete. Each watch calls it once.
    pub fn complete_one(&self) {
        self.missing.send_modify(|missing| *missing -= 1);
    }

    /// Waits until all are complete.
    pub async fn wait_synced(&self) {
        wait::until(self.missing.subscribe(), |missing| *missing == 0).await;
    }
}

fn is_served<K: Resource>(scope: &Scope, event: &Event<K>) -> bool {
    watch_store::object(event).is_none_or(|object| {
        let namespace = object.meta().namespace.as_deref();
        namespace.is_some_and(|namespace| scope.contains(namespace))
    })
}

/// Reads one watch until it is dropped, and sends the keys that `apply` returns to `triggers`.
/// Calls `synced` once, when the first list is complete. An object that makes `apply` panic is
/// skipped.
pub async fn follow<W: Resource<DynamicType = ()>, T, I: IntoIterator<Item = T>>(
    events: impl Stream<Item = watcher::Result<Event<W>>>,
    mut apply: impl FnMut(Event<W>) -> I,
    synced: impl FnOnce(),
    triggers: &UnboundedSender<T>,
) {
    let kind: &str = &W::kind(&());
    let (mut events, mut synced) = (pin!(events), Some(synced));
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                let (object, is_complete) = (object_name(&event), matches!(event, Event::InitDone));
                let applied = panics::caught_now(|| apply(event));
                if is_complete && let Some(synced) = synced.take() {
                    synced();
                }
                let Ok(keys) = applied else {
                    tracing::error!(
                        kind,
                        object,
                        "an object that the watch reported is left out"
                    );
                    continue;
                };
                for key in keys {
                    // The receiver is gone when the reconciler stops.
                    let _ = triggers.unbounded_send(key);
                }
            }
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, kind, "a watch was interrupted, and begins again");
            }
        }
    }
}

/// Reads one watch until it is dropped. An object that makes `apply` panic is skipped.
pub async fn observe<W: Resource<DynamicType = ()>>(
    events: impl Stream<Item = watcher::Result<Event<W>>>,
    mut apply: impl FnMut(Event<W>),
) {
    let (nobody, _) = mpsc::unbounded::<()>();
    let apply = |event| {
        apply(event);
        None
    };
    follow(events, apply, || {}, &nobody).await;
}

fn object_name<W: Resource>(event: &Event<W>) -> Option<String> {
    let object = watch_store::object(event)?;
    let namespace = object.namespace().unwrap_or_default();
    Some(format!("{namespace}/{}", object.name_any()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures::stream;
    use http::{Request, Response};
    use http_body_util::StreamBody;
    use hyper::body::{Bytes, Frame};
    use k8s_openapi::api::core::v1::Pod;
    use kube::client::Body;
    use tower::{BoxError, service_fn};

    use super::*;

    fn pod(namespace: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.namespace = Some(namespace.to_owned());
        pod
    }

    #[test]
    fn events_of_other_namespaces_are_dropped_and_no_list_is() {
        let some: Scope = "a,b".parse().unwrap();
        for event in [Event::Apply, Event::InitApply, Event::Delete] {
            assert!(is_served(&some, &event(pod("b"))));
            assert!(!is_served(&some, &event(pod("c"))));
            assert!(is_served(&Scope::Cluster, &event(pod("c"))));
        }
        for event in [Event::<Pod>::Init, Event::InitDone] {
            assert!(is_served(&some, &event));
        }
    }

    /// An API server that lists no Pod, and whose watches send nothing: as one that has lost its
    /// power.
    fn silent(watches: &Arc<AtomicUsize>) -> Client {
        let watches = Arc::clone(watches);
        let api_server = service_fn(move |request: Request<Body>| {
            let is_watch = request
                .uri()
                .query()
                .is_some_and(|query| query.contains("watch=true"));
            let list = r#"{"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": []}"#;
            let frames = if is_watch {
                watches.fetch_add(1, Ordering::Relaxed);
                stream::pending().boxed()
            } else {
                let frame = Frame::data(Bytes::from(list));
                stream::iter([Ok::<_, BoxError>(frame)]).boxed()
            };
            let body = StreamBody::new(frames);
            future::ready(Ok::<_, BoxError>(Response::new(body)))
        });
        Client::new(api_server, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_says_nothing_begins_again_within_a_minute_and_some_seconds() {
        let watches = Arc::new(AtomicUsize::new(0));
        let client = silent(&watches);
        let all = cluster_wide::<Pod>(&client, watcher::Config::default());
        let in_one = in_each::<Pod>(&client, &"a".parse().unwrap(), &watcher::Config::default());
        let in_one = in_one.into_iter().map(|(_, events)| events.boxed());
        for mut events in in_one.chain([all.boxed()]) {
            watches.store(0, Ordering::Relaxed);
            let follow = async { while events.next().await.is_some() {} };
            let _ = tokio::time::timeout(Duration::from_secs(90), follow).await;
            assert_eq!(watches.load(Ordering::Relaxed), 2);
        }
    }
}
