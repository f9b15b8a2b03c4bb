//! Follows the IPUPartitions once for the whole process: for REST and the summary in every replica, and
//! for the reconciler in the one that leads.

use std::sync::Arc;

use futures::{Stream, StreamExt, TryStreamExt, stream};
use kube::api::Api;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::reconcile::Guarded;
use crate::namespaces::Namespaces;
use crate::scope::Scope;

/// Changes that a slow listener may be behind before it is shown everything again.
const BEHIND: usize = 4_096;

/// The IPUPartitions, as the watch last saw them.
#[derive(Clone)]
pub struct Watched {
    store: Store<Guarded>,
    changes: broadcast::Sender<Change>,
}

/// What keeps [`Watched`] up to date.
pub struct PartitionWatch {
    writer: Writer<Guarded>,
    changes: broadcast::Sender<Change>,
    namespaces: Namespaces,
    scope: Scope,
}

#[derive(Clone, Debug)]
enum Change {
    /// One object was made, changed or deleted.
    Of(ObjectRef<Guarded>),
    /// All were listed anew.
    All,
}

/// The IPUPartitions of owners that a release serves, of which nothing is known until the watch is
/// followed. Those of all owners are counted in `namespaces`.
pub fn watched(namespaces: Namespaces, scope: Scope) -> (Watched, PartitionWatch) {
    let (store, writer) = reflector::store();
    let changes = broadcast::Sender::new(BEHIND);
    let watch = PartitionWatch {
        writer,
        changes: changes.clone(),
        namespaces,
        scope,
    };
    (Watched { store, changes }, watch)
}

impl Watched {
    /// The IPUPartitions.
    pub fn store(&self) -> &Store<Guarded> {
        &self.store
    }

    /// Every object, and then each again when it changes; without end.
    pub(super) fn objects(&self) -> impl Stream<Item = Arc<Guarded>> + Send + use<> {
        // Subscribed to before the store is read, so that no change falls in between.
        let changes = self.changes.subscribe();
        let store = self.store.clone();
        let first = stream::iter(self.store.state());
        let later = stream::unfold((changes, store), |(mut changes, store)| async move {
            let changed = match changes.recv().await {
                Ok(Change::Of(object)) => store.get(&object).into_iter().collect(),
                Ok(Change::All) | Err(broadcast::error::RecvError::Lagged(_)) => store.state(),
                Err(broadcast::error::RecvError::Closed) => return None,
            };
            Some((stream::iter(changed), (changes, store)))
        });
        first.chain(later.flatten())
    }
}

impl PartitionWatch {
    /// Follows the IPUPartitions until `stop`.
    pub async fn follow(self, client: Client, stop: CancellationToken) {
        let (changes, namespaces, scope) = (self.changes, self.namespaces, self.scope);
        let events = watcher(Api::<Guarded>::all(client), watcher::Config::default())
            .default_backoff()
            .modify(|object| object.meta_mut().managed_fields = None)
            .inspect_ok(|event| namespaces.hear(event))
            .try_filter_map(|event| std::future::ready(Ok(of_scope(event, &scope))));
        reflector::reflector(self.writer, events)
            .take_until(stop.cancelled_owned())
            .for_each(async |event| {
                let change = match event {
                    Ok(watcher::Event::Apply(object) | watcher::Event::Delete(object)) => {
                        Change::Of(ObjectRef::from_obj(&object))
                    }
                    Ok(watcher::Event::InitDone) => Change::All,
                    Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => return,
                    Err(error) => {
                        tracing::warn!(%error, "failed to watch IPUPartitions; trying again");
                        return;
                    }
                };
                // Nobody listens while this replica does not lead.
                let _ = changes.send(change);
            })
            .await;
    }
}

/// What an event says to a release with this scope. Whom one belongs to that cannot be read is not known:
/// everybody may tell of it, until it is seen to be somebody else's.
fn of_scope(event: watcher::Event<Guarded>, scope: &Scope) -> Option<watcher::Event<Guarded>> {
    let is_mine = |object: &Guarded| {
        let partition = object.0.as_ref();
        partition.map_or(true, |partition| {
            scope.contains(&partition.spec.owner.namespace)
        })
    };
    match event {
        watcher::Event::InitApply(object) if !is_mine(&object) => None,
        watcher::Event::Apply(object) if !is_mine(&object) => Some(watcher::Event::Delete(object)),
        event => Some(event),
    }
}
