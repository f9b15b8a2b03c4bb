//! Reads and watches what `kubectl ipu top` counts.

use std::io::Write;
use std::pin::pin;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use ipu_api::ipupartition::IPUPartition;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, ListParams};
use kube::runtime::{WatchStreamExt, watcher};
use tokio::time::{Instant, sleep_until};

use crate::access::Access;
use crate::connection::Connection;
use crate::error::KubectlError;
use crate::gather::readable;
use crate::output::{self, TableFormat};
use crate::reading::{list, partitions};
use crate::store::Store;
use crate::top::{By, Usage, usage};

/// Time between a change and the next output, in which further changes are gathered.
const PERIOD: Duration = Duration::from_millis(500);

/// Clears a terminal, and starts at its top.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// What is counted, and how it is shown.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) by: By,
    pub(crate) namespace: Option<String>,
    pub(crate) format: TableFormat,
    pub(crate) is_terminal: bool,
}

/// What is shown besides the rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lacks {
    /// Why the user may not list the nodes.
    nodes: Option<String>,
    unreadable: usize,
}

/// The use of IPUs now, and what it lacks.
pub(crate) async fn once(
    connection: &Connection,
    view: &View,
) -> Result<(Usage, Lacks), KubectlError> {
    let all = match readable(connection).await? {
        Access::Allowed(all) => all,
        Access::Denied(words) => return Err(KubectlError::Denied(words)),
    };
    let nodes: Api<Node> = Api::all(connection.client.clone());
    let nodes = match view.by {
        By::Controllers => list(&nodes, ListParams::default(), "the nodes").await?,
        By::Namespaces | By::Jobs => Access::Allowed(Vec::new()),
    };
    let lacks = Lacks {
        nodes: nodes.denied().map(ToOwned::to_owned),
        unreadable: all.unreadable,
    };
    let nodes = nodes
        .allowed()
        .map(|nodes| nodes.iter().collect::<Vec<_>>());
    let counted = usage(
        all.readable.iter(),
        nodes.as_deref(),
        view.by,
        view.namespace.as_deref(),
    );
    Ok((with_notes(counted, &lacks), lacks))
}

/// Writes the use of IPUs after each change, until Ctrl-C or the end of the user's rights. `lacks` is that of a first
/// read.
pub(crate) async fn watch(
    connection: &Connection,
    view: &View,
    mut lacks: Lacks,
    out: &mut impl Write,
) -> Result<(), KubectlError> {
    let mut partitions = partition_events(connection);
    let mut nodes = node_events(connection, view, &lacks);
    let mut known: Store<Option<IPUPartition>> = Store::default();
    let mut known_nodes: Store<Node> = Store::default();
    let mut due: Option<Instant> = None;
    let mut last = String::new();
    let has_nodes = watches_nodes(view, &lacks);
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    loop {
        tokio::select! {
            _ = &mut interrupted => return Ok(()),
            Some(event) = partitions.next() => {
                if let Some(event) = lasting("IPUPartitions", event)? {
                    known.apply(event, |object: DynamicObject| object.try_parse().ok());
                }
            }
            Some(event) = nodes.next() => {
                if let Some(event) = lasting("the nodes", event)? {
                    known_nodes.apply(event, |node| node);
                }
            }
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                due = None;
                lacks.unreadable = known.values().filter(|one| one.is_none()).count();
                let counted = counted(&known, &known_nodes, view, &lacks);
                show(&counted, view, &mut last, out)?;
                continue;
            }
        }
        if known.is_listed() && (known_nodes.is_listed() || !has_nodes) {
            due = due.or_else(|| Some(Instant::now() + PERIOD));
        }
    }
}

fn counted(
    known: &Store<Option<IPUPartition>>,
    nodes: &Store<Node>,
    view: &View,
    lacks: &Lacks,
) -> Usage {
    let nodes: Vec<&Node> = nodes.values().collect();
    let nodes = lacks.nodes.is_none().then_some(&*nodes);
    let readable = known.values().flatten();
    let counted = usage(readable, nodes, view.by, view.namespace.as_deref());
    with_notes(counted, lacks)
}

/// Writes the figures if they differ from the last ones.
fn show(
    usage: &Usage,
    view: &View,
    last: &mut String,
    out: &mut impl Write,
) -> Result<(), KubectlError> {
    let text = output::usage(usage, view.format)?;
    if text == *last {
        return Ok(());
    }
    let (before, after) = match view.format {
        TableFormat::Table | TableFormat::Wide if view.is_terminal => (CLEAR, ""),
        TableFormat::Table | TableFormat::Wide => ("", "\n"),
        TableFormat::Json => ("", ""),
        TableFormat::Yaml => ("---\n", ""),
    };
    output::write(out, &format!("{before}{text}{after}"))?;
    *last = text;
    Ok(())
}

fn with_notes(mut usage: Usage, lacks: &Lacks) -> Usage {
    let nodes = lacks.nodes.iter().filter(|_| usage.by == By::Controllers);
    let nodes = nodes.map(|words| {
        format!("IPUS and FREE are not known, because you may not list the nodes: {words}")
    });
    let unreadable = (lacks.unreadable > 0).then(|| {
        format!(
            "{} IPUPartitions cannot be read and are not counted",
            lacks.unreadable
        )
    });
    usage.notes = nodes.chain(unreadable).collect();
    usage
}

type Events<K> = BoxStream<'static, Result<watcher::Event<K>, watcher::Error>>;

fn partition_events(connection: &Connection) -> Events<DynamicObject> {
    let api = partitions(&connection.client);
    watcher(api, watcher::Config::default())
        .default_backoff()
        .boxed()
}

fn node_events(connection: &Connection, view: &View, lacks: &Lacks) -> Events<Node> {
    if !watches_nodes(view, lacks) {
        return stream::pending().boxed();
    }
    let api: Api<Node> = Api::all(connection.client.clone());
    watcher(api, watcher::Config::default())
        .default_backoff()
        .boxed()
}

/// Whether the figures contain the IPUs of nodes.
fn watches_nodes(view: &View, lacks: &Lacks) -> bool {
    view.by == By::Controllers && lacks.nodes.is_none()
}

/// An event. `None`: the watch was interrupted, and begins again. An error: the user has lost the right to watch.
fn lasting<K>(
    what: &'static str,
    event: Result<watcher::Event<K>, watcher::Error>,
) -> Result<Option<watcher::Event<K>>, KubectlError> {
    match event {
        Ok(event) => Ok(Some(event)),
        Err(source) if is_refused(&source) => Err(KubectlError::Watch {
            what,
            source: Box::new(source),
        }),
        Err(_) => Ok(None),
    }
}

fn is_refused(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => [401, 403].contains(&status.code),
        _ => false,
    }
}
