//! Shows the page of an IPUJob or a Pod again after each change of its inputs.

use std::fmt::Debug;
use std::future::pending;
use std::io::{self, Write};
use std::pin::pin;

use futures::stream::StreamExt;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::labels::JOB_UID_LABEL;
use ipu_api::vipu_controller::VIPUController;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, DynamicObject};
use kube::runtime::watcher::Config;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};

use crate::access::Access;
use crate::connection::Connection;
use crate::error::KubectlError;
use crate::gather;
use crate::output::{self, PageFormat};
use crate::page::Page;
use crate::reading::{controllers, jobs, partitions};
use crate::store::Store;
use crate::watching::{Events, PERIOD, events, lasting, selected};
use crate::why::{self, Around};

/// Presentation of pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) format: PageFormat,
    pub(crate) is_terminal: bool,
}

/// The object of the pages.
struct Subject<K> {
    api: Api<K>,
    /// Its kind, with an article.
    kind: &'static str,
    name: String,
    page: fn(&K, &Around, Timestamp) -> Page,
    has_ended: fn(&K) -> bool,
}

/// The objects of one watch, and what is kept of each.
struct Source<K, V> {
    what: &'static str,
    /// `None`: the user may not list them, or the page does not show them.
    events: Option<Events<K>>,
    store: Store<V>,
    keep: fn(K) -> V,
}

/// All inputs of a page.
struct Sources<K> {
    subject: Source<K, K>,
    partitions: Source<DynamicObject, Option<IPUPartition>>,
    controllers: Source<DynamicObject, Option<VIPUController>>,
    pods: Source<Pod, Pod>,
    warnings: Source<Event, Event>,
    /// The first read. Resources without a watch stay as they were.
    first: Around,
}

/// Shows the page of an IPUJob, until the job has ended or is gone, or until Ctrl-C.
pub(crate) async fn job(
    connection: &Connection,
    name: &str,
    view: View,
    out: &mut impl Write,
) -> Result<(), KubectlError> {
    let (object, around) = gather::job(connection, name).await?;
    let Connection { client, namespace } = connection;
    let subject = Subject {
        api: jobs(client, Some(namespace.as_str())),
        kind: "the IPUJob",
        name: name.to_owned(),
        page: why::job,
        has_ended: why::has_job_ended,
    };
    let uid = object.uid().unwrap_or_default();
    let of_job = Config::default().labels(&format!("{JOB_UID_LABEL}={uid}"));
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pods = around.pods.allowed().map(|_| selected(pods, of_job));
    let sources = sources(connection, &subject, pods, around);
    follow(&subject, uid, sources, view, out).await
}

/// Shows the page of a Pod, until the Pod has ended or is gone, or until Ctrl-C.
pub(crate) async fn pod(
    connection: &Connection,
    name: &str,
    view: View,
    out: &mut impl Write,
) -> Result<(), KubectlError> {
    let (object, around) = gather::pod(connection, name).await?;
    let api: Api<Pod> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let subject = Subject {
        api,
        kind: "the Pod",
        name: name.to_owned(),
        page: why::pod,
        has_ended: why::has_pod_ended,
    };
    let uid = object.uid().unwrap_or_default();
    let sources = sources(connection, &subject, None, around);
    follow(&subject, uid, sources, view, out).await
}

/// Watches the resources that the user may list, as the first read has shown.
fn sources<K>(
    connection: &Connection,
    subject: &Subject<K>,
    pods: Option<Events<Pod>>,
    first: Around,
) -> Sources<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let Connection { client, namespace } = connection;
    let of_name = Config::default().fields(&format!("metadata.name={}", subject.name));
    let of_warnings = Config::default().fields("type=Warning");
    let all_events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let watched_partitions = first.partitions.allowed();
    let watched_partitions = watched_partitions.map(|_| events(partitions(client)));
    let watched_controllers = first.controllers.allowed();
    let watched_controllers = watched_controllers.map(|_| events(controllers(client)));
    let warnings = first.events.allowed();
    let warnings = warnings.map(|_| selected(all_events, of_warnings));
    let of_subject = selected(subject.api.clone(), of_name);
    Sources {
        subject: Source::new(subject.kind, Some(of_subject), |object| object),
        partitions: Source::new("the IPUPartitions", watched_partitions, |object| {
            object.try_parse().ok()
        }),
        controllers: Source::new("the VIPUControllers", watched_controllers, |object| {
            object.try_parse().ok()
        }),
        pods: Source::new("the Pods of the job", pods, |pod| pod),
        warnings: Source::new("the events of the namespace", warnings, |event| event),
        first,
    }
}

/// Writes the page after each change. It ends without an error if nothing more can change, and with
/// one if the user loses the right to watch.
async fn follow<K>(
    subject: &Subject<K>,
    uid: String,
    mut sources: Sources<K>,
    view: View,
    out: &mut impl Write,
) -> Result<(), KubectlError>
where
    K: Resource,
{
    let mut due: Option<Instant> = None;
    let mut last: Option<Page> = None;
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    loop {
        tokio::select! {
            _ = &mut interrupted => return Ok(()),
            changed = sources.change() => changed?,
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                due = None;
                let mut found = sources.subject.store.values();
                // A new object of the same name has another UID.
                let Some(object) = found.find(|one| one.meta().uid.as_deref() == Some(&*uid)) else {
                    let (kind, name) = (subject.kind, &subject.name);
                    return output::write(&mut io::stderr(), &format!("{kind} {name} is gone\n"));
                };
                let now = Timestamp::now();
                let page = (subject.page)(object, &sources.around(), now);
                if last.as_ref() != Some(&page) {
                    let text = output::page(&page, view.format, now)?;
                    let reader = view.format.into();
                    output::write(out, &output::again(&text, reader, view.is_terminal))?;
                    last = Some(page);
                }
                if (subject.has_ended)(object) {
                    return Ok(());
                }
                continue;
            }
        }
        if sources.are_listed() {
            due = due.or_else(|| Some(Instant::now() + PERIOD));
        }
    }
}

impl<K: Resource, V> Source<K, V> {
    fn new(what: &'static str, events: Option<Events<K>>, keep: fn(K) -> V) -> Self {
        Self {
            what,
            events,
            store: Store::default(),
            keep,
        }
    }

    /// Follows the next event. Without a watch, there is none.
    async fn change(&mut self) -> Result<(), KubectlError> {
        let next = match &mut self.events {
            Some(events) => events.next().await,
            None => None,
        };
        let Some(event) = next else {
            return pending().await;
        };
        if let Some(event) = lasting(self.what, event)? {
            self.store.apply(event, self.keep);
        }
        Ok(())
    }

    fn is_listed(&self) -> bool {
        self.events.is_none() || self.store.is_listed()
    }

    /// The current state: of the watch, or without one, of the first read.
    fn known<T: Clone + FromIterator<V>>(&self, first: &Access<T>) -> Access<T>
    where
        V: Clone,
    {
        match self.events {
            Some(_) if self.store.is_listed() => {
                Access::Allowed(self.store.values().cloned().collect())
            }
            _ => first.clone(),
        }
    }
}

impl<K: Resource> Sources<K> {
    async fn change(&mut self) -> Result<(), KubectlError> {
        tokio::select! {
            changed = self.subject.change() => changed,
            changed = self.partitions.change() => changed,
            changed = self.controllers.change() => changed,
            changed = self.pods.change() => changed,
            changed = self.warnings.change() => changed,
        }
    }

    fn are_listed(&self) -> bool {
        // The API server of an earlier version of the operator does not serve the kind, so the
        // watch never lists it.
        let had_none = matches!(&self.first.controllers, Access::Allowed(all) if all.is_empty());
        let around = self.partitions.is_listed() && (had_none || self.controllers.is_listed());
        around && self.subject.is_listed() && self.pods.is_listed() && self.warnings.is_listed()
    }

    /// The current state around the object.
    fn around(&self) -> Around {
        let first = &self.first;
        Around {
            partitions: self.partitions.known(&first.partitions),
            controllers: self.controllers.known(&first.controllers),
            pods: self.pods.known(&first.pods),
            events: self.warnings.known(&first.events),
        }
    }
}
