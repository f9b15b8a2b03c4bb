//! Reads and watches the inputs of `kubectl ipu top`.

use std::io::Write;
use std::pin::pin;

use futures::stream::{self, StreamExt};
use ipu_api::ipupartition::IPUPartition;
use ipu_api::vipu_controller::VIPUController;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, ListParams};
use tokio::time::{Instant, sleep_until};

use crate::access::Access;
use crate::connection::Connection;
use crate::error::KubectlError;
use crate::output::{self, TableFormat};
use crate::reading::{controllers, known_controllers, list, objects, partitions};
use crate::store::Store;
use crate::top::{By, Capacities, Usage, usage};
use crate::watching::{Events, PERIOD, events, lasting};

/// The selected figures and their format.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) by: By,
    pub(crate) namespace: Option<String>,
    pub(crate) format: TableFormat,
    pub(crate) is_terminal: bool,
}

/// Source of the IPUs of V-IPU controllers. The rights of the user decide it at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Source {
    Controllers,
    Nodes,
    /// Rows of another kind need no source, or the user may list neither.
    #[default]
    Nothing,
}

/// Content that is shown besides the rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Footer {
    source: Source,
    /// Notes about missing rights of the user.
    rights: Vec<String>,
    partitions: usize,
    controllers: usize,
}

/// The current use of IPUs, and the missing rights.
pub(crate) async fn once(
    connection: &Connection,
    view: &View,
) -> Result<(Usage, Footer), KubectlError> {
    let api = partitions(&connection.client);
    let all = match objects::<IPUPartition>(&api, "IPUPartitions").await? {
        Access::Allowed(all) => all,
        Access::Denied(words) => return Err(KubectlError::Denied(words)),
    };
    let mut footer = Footer {
        partitions: all.unreadable,
        ..Footer::default()
    };
    let mut known = Vec::new();
    let mut nodes = Vec::new();
    if view.by == By::Controllers {
        known = listed_controllers(connection, &mut footer).await?;
        if footer.source == Source::Nothing {
            nodes = listed_nodes(connection, &mut footer).await?;
        }
    }
    let counted = counted(
        all.readable.iter(),
        &known.iter().collect::<Vec<_>>(),
        &nodes.iter().collect::<Vec<_>>(),
        view,
        &footer,
    );
    Ok((counted, footer))
}

/// The objects of the V-IPU controllers, if there are any and the user may list them.
async fn listed_controllers(
    connection: &Connection,
    footer: &mut Footer,
) -> Result<Vec<VIPUController>, KubectlError> {
    match known_controllers(&connection.client).await? {
        Access::Allowed(all) => {
            footer.controllers = all.unreadable;
            if !all.readable.is_empty() {
                footer.source = Source::Controllers;
            }
            Ok(all.readable)
        }
        Access::Denied(words) => {
            footer.rights.push(format!(
                "STATUS, OTHERS and LARGEST-FREE are not known, because you may not list the VIPUControllers: {words}"
            ));
            Ok(Vec::new())
        }
    }
}

async fn listed_nodes(
    connection: &Connection,
    footer: &mut Footer,
) -> Result<Vec<Node>, KubectlError> {
    let nodes: Api<Node> = Api::all(connection.client.clone());
    match list(&nodes, ListParams::default(), "the nodes").await? {
        Access::Allowed(nodes) => {
            footer.source = Source::Nodes;
            Ok(nodes)
        }
        Access::Denied(words) => {
            footer.rights.push(format!(
                "IPUS and FREE are not known, because you may not list the nodes: {words}"
            ));
            Ok(Vec::new())
        }
    }
}

/// Writes the use of IPUs after each change, until Ctrl-C or until the user loses a right. `footer`
/// comes from the first read.
pub(crate) async fn watch(
    connection: &Connection,
    view: &View,
    mut footer: Footer,
    out: &mut impl Write,
) -> Result<(), KubectlError> {
    let mut of_partitions = events(partitions(&connection.client));
    let mut of_controllers = controller_events(connection, &footer);
    let mut of_nodes = node_events(connection, &footer);
    let mut known: Store<Option<IPUPartition>> = Store::default();
    let mut known_controllers: Store<Option<VIPUController>> = Store::default();
    let mut known_nodes: Store<Node> = Store::default();
    let mut due: Option<Instant> = None;
    let mut last = String::new();
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    loop {
        tokio::select! {
            _ = &mut interrupted => return Ok(()),
            Some(event) = of_partitions.next() => {
                if let Some(event) = lasting("IPUPartitions", event)? {
                    known.apply(event, |object: DynamicObject| object.try_parse().ok());
                }
            }
            Some(event) = of_controllers.next() => {
                if let Some(event) = lasting("the VIPUControllers", event)? {
                    known_controllers.apply(event, |object: DynamicObject| object.try_parse().ok());
                }
            }
            Some(event) = of_nodes.next() => {
                if let Some(event) = lasting("the nodes", event)? {
                    known_nodes.apply(event, |node| node);
                }
            }
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                due = None;
                footer.partitions = known.values().filter(|one| one.is_none()).count();
                footer.controllers = known_controllers.values().filter(|one| one.is_none()).count();
                let objects: Vec<_> = known_controllers.values().flatten().collect();
                let nodes: Vec<_> = known_nodes.values().collect();
                let counted = counted(known.values().flatten(), &objects, &nodes, view, &footer);
                show(&counted, view, &mut last, out)?;
                continue;
            }
        }
        let is_complete = match footer.source {
            Source::Controllers => known_controllers.is_listed(),
            Source::Nodes => known_nodes.is_listed(),
            Source::Nothing => true,
        };
        if known.is_listed() && is_complete {
            due = due.or_else(|| Some(Instant::now() + PERIOD));
        }
    }
}

fn counted<'a>(
    partitions: impl Iterator<Item = &'a IPUPartition> + Clone,
    controllers: &[&VIPUController],
    nodes: &[&Node],
    view: &View,
    footer: &Footer,
) -> Usage {
    let capacities = match footer.source {
        Source::Controllers => Capacities::Controllers(controllers),
        Source::Nodes => Capacities::Nodes(nodes),
        Source::Nothing => Capacities::Unknown,
    };
    let mut usage = usage(partitions, capacities, view.by, view.namespace.as_deref());
    let unreadable = [
        (footer.partitions, "IPUPartitions"),
        (footer.controllers, "VIPUControllers"),
    ];
    let unreadable = unreadable.into_iter().filter(|(number, _)| *number > 0);
    let unreadable = unreadable
        .map(|(number, kind)| format!("{number} {kind} cannot be read and are not counted"));
    usage.notes = footer.rights.iter().cloned().chain(unreadable).collect();
    usage
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
    let shown = output::again(&text, view.format.into(), view.is_terminal);
    output::write(out, &shown)?;
    *last = text;
    Ok(())
}

fn controller_events(connection: &Connection, footer: &Footer) -> Events<DynamicObject> {
    if footer.source != Source::Controllers {
        return stream::pending().boxed();
    }
    events(controllers(&connection.client))
}

fn node_events(connection: &Connection, footer: &Footer) -> Events<Node> {
    if footer.source != Source::Nodes {
        return stream::pending().boxed();
    }
    let nodes: Api<Node> = Api::all(connection.client.clone());
    events(nodes)
}
