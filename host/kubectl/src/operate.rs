//! Cordons, uncordons and drains V-IPU controllers, and waits until drained ones are empty.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::pin::pin;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use ipu_api::ipupartition::IPUPartition;
use ipu_api::vipu_controller::VIPUController;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use tokio::time::{Instant, sleep_until};

use crate::access::Access;
use crate::condition::shown;
use crate::connection::Connection;
use crate::controllers::{address, name};
use crate::cordon::{ControllerName, Origin, Request, change};
use crate::drain::{RemainingPartitions, changes, is_drained, remaining};
use crate::error::KubectlError;
use crate::output;
use crate::reading::{controllers, list, partitions, read_error};
use crate::store::Store;
use crate::watching::{Events, PERIOD, events, lasting};

/// Field manager of the changes.
const FIELD_MANAGER: &str = "kubectl-ipu";

/// Changes the VIPUControllers, and prints the new state of each. If one of them cannot be read,
/// none is changed.
pub(crate) async fn request(
    connection: &Connection,
    names: &[ControllerName],
    request: Request,
    reason: Option<&str>,
    out: &mut impl Write,
) -> Result<(), KubectlError> {
    let api: Api<VIPUController> = Api::all(connection.client.clone());
    let mut found = Vec::new();
    for ControllerName(name) in names {
        let controller = api.get(name).await;
        found.push(controller.map_err(|source| unread(name, source))?);
    }
    let user = match request {
        Request::Cordon | Request::Drain => user(connection).await,
        Request::Uncordon => None,
    };
    for controller in found {
        let user = user.as_deref();
        let change = change(request, &controller.spec, Origin { user, reason });
        let name = name(&controller);
        if let Some(patch) = change.patch {
            let params = PatchParams {
                field_manager: Some(FIELD_MANAGER.to_owned()),
                ..PatchParams::default()
            };
            let patched = api.patch(name, &params, &Patch::Merge(&patch)).await;
            patched.map_err(|source| unchanged(name, source))?;
        }
        let line = format!("vipucontroller.graphcore.ai/{name} {}\n", change.state);
        output::write(out, &line)?;
    }
    Ok(())
}

/// The user of the kubeconfig, as the API server reports it. A missing name is not an error,
/// because a cordon can be urgent.
async fn user(connection: &Connection) -> Option<String> {
    let api: Api<SelfSubjectReview> = Api::all(connection.client.clone());
    let review = api
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await;
    review.ok()?.status?.user_info?.username
}

fn unread(name: &str, source: kube::Error) -> KubectlError {
    match source {
        kube::Error::Api(status) if status.is_forbidden() => forbidden("get", &status.message),
        kube::Error::Api(status) if status.code == 404 => {
            KubectlError::NoController(name.to_owned())
        }
        source => read_error(&format!("the VIPUController {name}"), source),
    }
}

fn unchanged(name: &str, source: kube::Error) -> KubectlError {
    match source {
        kube::Error::Api(status) if status.is_forbidden() => forbidden("patch", &status.message),
        source => KubectlError::Change(name.to_owned(), Box::new(source)),
    }
}

fn forbidden(verb: &'static str, words: &str) -> KubectlError {
    let words = shown(words);
    KubectlError::Forbidden { verb, words }
}

/// State of the controllers during the drain.
struct Progress {
    /// Last output for each controller that still has partitions, by the name of its object.
    waiting: BTreeMap<String, RemainingPartitions>,
    controllers: Store<Option<VIPUController>>,
    partitions: Store<Option<IPUPartition>>,
    /// Whether the user may list IPUPartitions.
    shows_partitions: bool,
}

/// Waits until the V-IPU controllers are drained. Prints the remaining partitions to standard
/// error. Without a timeout it may wait for ever.
pub(crate) async fn wait(
    connection: &Connection,
    names: &[ControllerName],
    timeout: Option<Duration>,
    out: &mut impl Write,
) -> Result<(), KubectlError> {
    let (mut of_partitions, shows_partitions) = partition_events(connection).await?;
    let mut of_controllers = events(controllers(&connection.client));
    let names = names.iter().map(|one| one.0.clone());
    let mut progress = Progress {
        waiting: names.map(|name| (name, BTreeMap::new())).collect(),
        controllers: Store::default(),
        partitions: Store::default(),
        shows_partitions,
    };
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    // A timeout beyond the range of the clock means for ever.
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut due: Option<Instant> = None;
    while !progress.waiting.is_empty() {
        tokio::select! {
            _ = &mut interrupted => {
                return Err(KubectlError::Interrupted(progress.names()));
            }
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                return Err(KubectlError::DrainTimeout(progress.names()));
            }
            Some(event) = of_controllers.next() => {
                if let Some(event) = lasting("the VIPUControllers", event)? {
                    progress.controllers.apply(event, |object: DynamicObject| object.try_parse().ok());
                }
            }
            Some(event) = of_partitions.next() => {
                if let Some(event) = lasting("the IPUPartitions", event)? {
                    progress.partitions.apply(event, |object: DynamicObject| object.try_parse().ok());
                }
            }
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                due = None;
                progress.show(out)?;
                continue;
            }
        }
        if progress.is_listed() {
            due = due.or_else(|| Some(Instant::now() + PERIOD));
        }
    }
    Ok(())
}

/// The events of IPUPartitions, and whether the user may list them.
async fn partition_events(
    connection: &Connection,
) -> Result<(Events<DynamicObject>, bool), KubectlError> {
    let api = partitions(&connection.client);
    match list(&api, ListParams::default(), "IPUPartitions").await? {
        Access::Allowed(_) => Ok((events(api), true)),
        Access::Denied(words) => {
            let note =
                format!("the partitions are not shown, because you may not list them: {words}\n");
            output::write(&mut io::stderr(), &note)?;
            Ok((stream::pending().boxed(), false))
        }
    }
}

impl Progress {
    fn is_listed(&self) -> bool {
        self.controllers.is_listed() && (self.partitions.is_listed() || !self.shows_partitions)
    }

    /// The controllers that still have partitions, as arguments of a command.
    fn names(&self) -> String {
        let names: Vec<_> = self.waiting.keys().map(String::as_str).collect();
        names.join(" ")
    }

    /// Writes what has changed, and forgets the controllers that are drained.
    fn show(&mut self, out: &mut impl Write) -> Result<(), KubectlError> {
        let mut drained = Vec::new();
        for (waiting, before) in &mut self.waiting {
            let mut readable = self.controllers.values().flatten();
            let Some(controller) = readable.find(|one| name(one) == waiting) else {
                // The operator does not delete the object of a drained controller. Another client
                // has deleted it, and so ended the drain.
                return Err(KubectlError::NoController(waiting.clone()));
            };
            let address = address(controller);
            let after = remaining(self.partitions.values().flatten(), &address);
            for line in changes(&address, before, &after) {
                output::write(&mut io::stderr(), &(line + "\n"))?;
            }
            if is_drained(controller) {
                drained.push(waiting.clone());
            }
            *before = after;
        }
        for name in drained {
            self.waiting.remove(&name);
            let line = format!("vipucontroller.graphcore.ai/{name} drained\n");
            output::write(out, &line)?;
        }
        Ok(())
    }
}
