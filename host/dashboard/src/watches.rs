//! Watches the objects of the page with the rights of the user. A watch ends when these rights end.

use std::pin::pin;

use futures::StreamExt;
use ipu_api::ipuaccounting::IPUAccounting;
use ipu_api::ipujob::IPUJob;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::ipupolicy::IPUPolicy;
use ipu_api::vipu_controller::VIPUController;
use ipu_text::explain;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node as KubernetesNode;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::ApiResource;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource};

use crate::cluster::{Cluster, Collection, Kind};
use crate::projection::{Accounted, Controller, Job, Node, Partition, Policy};
use crate::shared::Shared;
use crate::shown::shown;

/// Length of a watch, in seconds. The API server checks the rights of the user only at the
/// beginning of a watch, so it still reports changes for this time after the end of the rights.
pub const WATCH_SECONDS: u32 = 30;

/// Page size of a list. A page is in memory as a whole until its objects are reduced to the stored
/// fields. An IPUAccounting may have a few hundred kilobytes.
const fn list_page(kind: Kind) -> u32 {
    match kind {
        Kind::Accountings => 8,
        // A node lists its images.
        Kind::Nodes => 50,
        Kind::Controllers | Kind::Jobs | Kind::Partitions | Kind::Policies => 200,
    }
}

/// Watches all kinds until each of them is refused. `namespace`: the namespace of the IPUJobs if
/// the user may not list all.
pub async fn follow(client: &Client, namespace: &str, shared: &Shared) {
    let controllers = watch::<VIPUController, _>(
        client,
        (Kind::Controllers, shared),
        |cluster| &mut cluster.controllers,
        Controller::of,
    );
    let accountings = watch::<IPUAccounting, _>(
        client,
        (Kind::Accountings, shared),
        |cluster| &mut cluster.accountings,
        Accounted::of,
    );
    let partitions = watch::<IPUPartition, _>(
        client,
        (Kind::Partitions, shared),
        |cluster| &mut cluster.partitions,
        Partition::of,
    );
    let policies = watch::<IPUPolicy, _>(
        client,
        (Kind::Policies, shared),
        |cluster| &mut cluster.policies,
        Policy::of,
    );
    let nodes = watch::<KubernetesNode, _>(
        client,
        (Kind::Nodes, shared),
        |cluster| &mut cluster.nodes,
        Node::of,
    );
    let jobs = async {
        let api = jobs(client, namespace, shared).await;
        watch_api(
            api,
            (Kind::Jobs, shared),
            |cluster| &mut cluster.jobs,
            Job::of,
        )
        .await;
    };
    tokio::join!(controllers, accountings, partitions, policies, nodes, jobs);
}

/// A kind of the operator, for untyped objects, so that an unreadable one does not affect the
/// others.
pub fn resource<K: Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

/// The IPUJobs of all namespaces, or of one if the user may not list all.
async fn jobs(client: &Client, namespace: &str, shared: &Shared) -> Api<DynamicObject> {
    let kind = resource::<IPUJob>();
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    match all.list_metadata(&ListParams::default().limit(1)).await {
        Err(kube::Error::Api(status)) if status.is_forbidden() => {
            let scope = (shown(namespace), shown(&status.message));
            shared.update(Kind::Jobs, |cluster| cluster.jobs_of = Some(scope));
            Api::namespaced_with(client.clone(), namespace, &kind)
        }
        _ => all,
    }
}

async fn watch<K: Resource<DynamicType = ()>, V: PartialEq>(
    client: &Client,
    to: (Kind, &Shared),
    of: fn(&mut Cluster) -> &mut Collection<V>,
    keep: fn(DynamicObject) -> Option<V>,
) {
    let api = Api::all_with(client.clone(), &resource::<K>());
    watch_api(api, to, of, keep).await;
}

/// Follows a watch until the API server refuses it. Any other error interrupts it.
async fn watch_api<V: PartialEq>(
    api: Api<DynamicObject>,
    (kind, shared): (Kind, &Shared),
    of: fn(&mut Cluster) -> &mut Collection<V>,
    keep: fn(DynamicObject) -> Option<V>,
) {
    let config = watcher::Config::default()
        .timeout(WATCH_SECONDS)
        .page_size(list_page(kind));
    let mut events = pin!(watcher(api, config).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => shared.update_if(kind, |cluster| of(cluster).apply(event, keep)),
            Err(error) => {
                if let Some(words) = refusal(&error) {
                    shared.update(kind, |cluster| of(cluster).refuse(words));
                    return;
                }
                let words = shown(&explain(&error));
                let now = Timestamp::now();
                shared.update(kind, |cluster| of(cluster).interrupt(now, words));
            }
        }
    }
}

/// The message of the API server if it has refused a list or a watch.
pub fn refusal(error: &watcher::Error) -> Option<String> {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))
    | watcher::Error::WatchFailed(kube::Error::Api(status))
    | watcher::Error::WatchError(status)) = error
    else {
        return None;
    };
    [401, 403]
        .contains(&status.code)
        .then(|| shown(&status.message))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn few_objects_are_read_at_once_if_they_are_large() {
        for (kind, largest) in [
            // Bytes of one object: accounts have 25 hours and 32 days of 33 namespaces each.
            (Kind::Accountings, 400_000),
            (Kind::Jobs, 20_000),
            (Kind::Partitions, 20_000),
            (Kind::Policies, 20_000),
            (Kind::Nodes, 60_000),
        ] {
            let page = list_page(kind) * largest;
            assert!(page <= 4 << 20, "{kind:?}: {page} bytes");
        }
    }

    #[test]
    fn only_a_refusal_ends_a_watch() {
        let status = |code: u16| {
            Box::new(Status {
                code,
                message: "pods is forbidden".to_owned(),
                ..Status::default()
            })
        };
        for (error, expected) in [
            (watcher::Error::WatchError(status(403)), true),
            (watcher::Error::WatchError(status(401)), true),
            (watcher::Error::WatchError(status(410)), false),
            (
                watcher::Error::WatchStartFailed(kube::Error::Api(status(403))),
                true,
            ),
            (
                watcher::Error::InitialListFailed(kube::Error::Api(status(404))),
                false,
            ),
            (watcher::Error::NoResourceVersion, false),
        ] {
            assert_eq!(refusal(&error).is_some(), expected, "{error}");
        }
    }
}
