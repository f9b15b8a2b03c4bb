//! Follows objects of all namespaces that a release serves, as one watch.

use std::fmt::Debug;

use futures::stream::{self, BoxStream, SelectAll};
use futures::{Stream, StreamExt};
use k8s_openapi::NamespaceResourceScope;
use kube::api::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use super::Scope;

/// One for each namespace that is served, or one for all of them.
pub fn apis<K>(client: &Client, scope: &Scope) -> Vec<Api<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match scope {
        Scope::Cluster => vec![Api::all(client.clone())],
        Scope::Namespaces(names) => names
            .iter()
            .map(|name| Api::namespaced(client.clone(), name))
            .collect(),
    }
}

/// What a watch of all these would tell, though there may be no right to one: a whole list at first and
/// after every interruption, and each change between. Interrupted watches begin again at growing intervals.
pub fn watch<K>(
    client: &Client,
    scope: &Scope,
    config: watcher::Config,
) -> BoxStream<'static, watcher::Result<Event<K>>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let apis = apis::<K>(client, scope);
    let open = move || -> Vec<Watch<K>> {
        let watches = apis.iter().map(|api| {
            let watch = watcher(api.clone(), config.clone());
            watch.default_backoff().boxed()
        });
        watches.collect()
    };
    match scope {
        // As it comes: a long list is not collected.
        Scope::Cluster => stream::iter(open()).flatten().boxed(),
        Scope::Namespaces(_) => merged(open).boxed(),
    }
}

/// One watch of some namespaces.
type Watch<K> = BoxStream<'static, watcher::Result<Event<K>>>;

/// Where a merged watch stands.
enum Stage<K> {
    /// The watches have to be opened.
    Closed,
    /// One is listed after the other.
    Listing(Listing<K>),
    /// All are listed, and followed at once.
    Following(SelectAll<Watch<K>>),
}

struct Listing<K> {
    /// What changes here meanwhile waits in the watch, since a list has no word for what was deleted.
    done: Vec<Watch<K>>,
    now: Watch<K>,
    /// What `now` has named; it may be interrupted, and begins again then.
    named: Vec<K>,
    next: std::vec::IntoIter<Watch<K>>,
}

/// What is told at once.
type Told<K> = Vec<watcher::Result<Event<K>>>;

/// Makes one watch of many. A list stands for all objects there are: where one of the watches has to list
/// anew, all of them do.
fn merged<K: Send + 'static>(
    open: impl Fn() -> Vec<Watch<K>> + Send + 'static,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send {
    stream::unfold((Stage::Closed, open), |(stage, open)| async move {
        let (next, told) = match stage {
            Stage::Closed => begin(open()),
            Stage::Listing(listing) => list(listing).await,
            Stage::Following(watches) => follow(watches).await,
        }?;
        Some((stream::iter(told), (next, open)))
    })
    .flatten()
}

fn begin<K>(watches: Vec<Watch<K>>) -> Option<(Stage<K>, Told<K>)> {
    let mut next = watches.into_iter();
    let listing = Listing {
        done: Vec::new(),
        now: next.next()?,
        named: Vec::new(),
        next,
    };
    Some((Stage::Listing(listing), vec![Ok(Event::Init)]))
}

/// None once a watch has ended, which they never do.
async fn list<K>(mut listing: Listing<K>) -> Option<(Stage<K>, Told<K>)> {
    let mut told = Vec::new();
    match listing.now.next().await? {
        Ok(Event::Init) => listing.named.clear(),
        Ok(Event::InitApply(object) | Event::Apply(object)) => listing.named.push(object),
        Ok(Event::Delete(_)) => {}
        Ok(Event::InitDone) => {
            let named = std::mem::take(&mut listing.named).into_iter();
            told.extend(named.map(|object| Ok(Event::InitApply(object))));
            let Some(next) = listing.next.next() else {
                listing.done.push(listing.now);
                told.push(Ok(Event::InitDone));
                return Some((Stage::Following(stream::select_all(listing.done)), told));
            };
            let listed = std::mem::replace(&mut listing.now, next);
            listing.done.push(listed);
        }
        Err(error) => told.push(Err(error)),
    }
    Some((Stage::Listing(listing), told))
}

async fn follow<K>(mut watches: SelectAll<Watch<K>>) -> Option<(Stage<K>, Told<K>)> {
    Some(match watches.next().await? {
        Ok(Event::Init) => (Stage::Closed, Vec::new()),
        told => (Stage::Following(watches), vec![told]),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn watch(events: &[Event<&'static str>]) -> Watch<&'static str> {
        let events: Vec<_> = events.iter().cloned().map(Ok).collect();
        // A real watch has no end: it waits.
        stream::iter(events).chain(stream::pending()).boxed()
    }

    async fn told(
        watch: impl Stream<Item = watcher::Result<Event<&'static str>>>,
        count: usize,
    ) -> Vec<String> {
        let events = watch.take(count).collect::<Vec<_>>().await;
        let shown = events.into_iter().map(|event| match event.unwrap() {
            Event::Init => "begin".to_owned(),
            Event::InitApply(name) => format!("list {name}"),
            Event::InitDone => "end".to_owned(),
            Event::Apply(name) => format!("change {name}"),
            Event::Delete(name) => format!("delete {name}"),
        });
        shown.collect()
    }

    #[tokio::test]
    async fn two_lists_are_one_and_changes_wait_for_its_end() {
        let open = || {
            vec![
                watch(&[
                    Event::Init,
                    Event::InitApply("a/1"),
                    Event::InitDone,
                    Event::Delete("a/1"),
                ]),
                watch(&[Event::Init, Event::InitApply("b/1"), Event::InitDone]),
            ]
        };
        assert_eq!(
            told(merged(open), 5).await,
            ["begin", "list a/1", "list b/1", "end", "delete a/1"]
        );
    }

    #[tokio::test]
    async fn where_one_lists_anew_all_do() {
        let opened = Arc::new(AtomicUsize::new(0));
        let count = opened.clone();
        let open = move || {
            let (other, again): (&[_], _) = match count.fetch_add(1, Ordering::SeqCst) {
                0 => (
                    &[Event::Init, Event::InitApply("b/1"), Event::InitDone],
                    true,
                ),
                _ => (&[Event::Init, Event::InitDone], false),
            };
            let first = [Event::Init, Event::InitApply("a/1"), Event::InitDone];
            let anew = [&first[..], &[Event::Init, Event::InitApply("a/1")]].concat();
            vec![watch(if again { &anew } else { &first }), watch(other)]
        };
        assert_eq!(
            told(merged(open), 7).await,
            [
                "begin", "list a/1", "list b/1", "end", "begin", "list a/1", "end"
            ],
            "what is gone from b is not in the second list"
        );
        assert_eq!(opened.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn what_goes_while_a_list_begins_again_is_not_told() {
        let open = || {
            vec![watch(&[
                Event::Init,
                Event::InitApply("a/gone"),
                Event::Init,
                Event::InitApply("a/1"),
                Event::InitDone,
            ])]
        };
        assert_eq!(told(merged(open), 3).await, ["begin", "list a/1", "end"]);
    }
}
