//! `ipu-operator adopt`: assigns the partitions that Graphcore's operator created to their live
//! jobs.
//!
//! An admin runs it once, in a Pod of the proxy, which reaches the V-IPU controllers. It prints its
//! plan; with `--yes` it writes the plan to the IPUPartitions. The proxy then continues as after an
//! attempt whose reply was lost.

mod plan;
mod tracker;

use std::convert::Infallible;
use std::io::Write;

use clap::Args;
use futures::future::join_all;
use futures::stream;
use ipu_api::ipujob::IPUJob;
use ipu_api::ipupartition::{ControllerRef, IPUPartition};
use ipu_api::object_ref::ObjectRef;
use ipu_ledger::status;
use ipu_placement::guest_call::values::shortened;
use ipu_runtime::clock;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::core::ApiResource;
use kube::{Client, ResourceExt};
use vipu_client::auth::AuthError;
use vipu_client::{AuthFiles, Registry};

use self::plan::{Adoption, Controller, Entry, Findings};
use crate::proxy::{ProxyArguments, ProxyOptions, deadlines};

/// Options of the command.
#[derive(Args, Clone, Debug)]
pub struct AdoptArguments {
    /// The options of the proxy, as its Pod has them.
    #[command(flatten)]
    pub proxy: ProxyArguments,
    /// Adopt the partitions. Without this option, the command only prints the plan.
    #[arg(long)]
    pub yes: bool,
}

/// Reason why no partition, or not every partition, was adopted.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// Data for the plan could not be read.
    #[error("failed to read {0}")]
    Read(String, #[source] Box<kube::Error>),
    /// The tracker contains nothing of the other operator.
    #[error(
        "the ConfigMap {0} holds this operator's own summary; name the tracker of Graphcore's operator, or \
         a copy of it, with --tracker-configmap"
    )]
    OwnSummary(String),
    /// The contents of an IPUPartition are unreadable.
    #[error(
        "IPUPartition {0} cannot be read, and may list any partition; correct or delete it first"
    )]
    Unreadable(String),
    /// An option about V-IPU controllers cannot be applied.
    #[error("failed to read the certificates or credentials for V-IPU controllers")]
    Access(#[from] AuthError),
    /// Some partitions were not adopted. The lines before name them and the reasons.
    #[error("{0} partitions were not adopted as planned; run the command again to see their state")]
    Incomplete(usize),
    /// The plan cannot be printed.
    #[error("failed to write to standard output")]
    Output(#[from] std::io::Error),
}

/// Prints the plan to `out`, and applies it if `yes` is set.
pub async fn run(
    client: Client,
    options: &ProxyOptions,
    yes: bool,
    out: &mut impl Write,
) -> Result<(), AdoptError> {
    let entries = compute_plan(&client, options).await?;
    let (mut adopted, mut failed) = (0, 0);
    for Entry { id, verdict } in &entries {
        match verdict {
            Ok(adoption) => {
                let outcome = if yes {
                    let result = adopt(&client, id, adoption).await;
                    failed += usize::from(result.is_err());
                    result.err().unwrap_or_else(|| "adopted".to_owned())
                } else {
                    "to be adopted".to_owned()
                };
                adopted += 1;
                writeln!(out, "{id}: {outcome}: {}", described(adoption))?;
            }
            Err(refusal) => writeln!(out, "{id}: left alone: {refusal}")?,
        }
    }
    if failed > 0 {
        return Err(AdoptError::Incomplete(failed));
    }
    let left = entries.len() - adopted;
    if yes {
        writeln!(out, "{adopted} adopted, {left} left alone")?;
    } else {
        writeln!(
            out,
            "{adopted} to be adopted, {left} left alone; nothing was changed: run it again with --yes"
        )?;
    }
    Ok(())
}

/// Reads all data and computes the plan.
async fn compute_plan(client: &Client, options: &ProxyOptions) -> Result<Vec<Entry>, AdoptError> {
    let controllers = controllers(client, options).await?;
    let tracker = config_map(client, options, &options.tracker_configmap).await?;
    let tracked = tracker::ids(&tracker);
    let tracked = tracked.map_err(|_| AdoptError::OwnSummary(options.tracker_configmap.clone()))?;
    // Jobs first: an IPUPartition that is read later belongs to one of them, or to a newer job.
    let jobs = Api::<IPUJob>::all(client.clone());
    let jobs = jobs.list_metadata(&ListParams::default()).await;
    let jobs = jobs.map_err(unread("the IPUJobs"))?.into_iter();
    let jobs: Vec<ObjectRef> = jobs
        .filter_map(|job| ObjectRef::of(&job.metadata))
        .collect();
    let partitions = partitions(client).await?;
    Ok(plan::plan(&Findings {
        tracked: &tracked,
        jobs: &jobs,
        partitions: &partitions,
        controllers: &controllers,
        scope: &options.release.scope,
    }))
}

/// The partitions on every V-IPU controller of the admin's list.
async fn controllers(
    client: &Client,
    options: &ProxyOptions,
) -> Result<Vec<Controller>, AdoptError> {
    let list = config_map(client, options, &options.controllers_configmap()).await?;
    let access = AuthFiles::open(options.access.clone()).await?;
    let registry = Registry::with_auth(deadlines(options), access.subscribe());
    let lists = stream::iter([Ok::<_, Infallible>(Some(list))]);
    registry.follow(lists).await;
    let known = registry.known();
    let asked = known
        .entries
        .iter()
        .map(|reference| ask(&registry, reference));
    Ok(join_all(asked).await)
}

async fn ask(registry: &Registry, reference: &ControllerRef) -> Controller {
    let (listed, account) = match registry.client(reference) {
        Ok(client) => (client.list().await, client.account()),
        Err(error) => (Err(error), None),
    };
    Controller {
        reference: reference.clone(),
        listed: listed.map_err(|error| shortened(&error.reason())),
        account,
    }
}

async fn config_map(
    client: &Client,
    options: &ProxyOptions,
    name: &str,
) -> Result<ConfigMap, AdoptError> {
    let namespace = &options.release.namespace;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let map = maps.get(name).await;
    map.map_err(unread(&format!("the ConfigMap {namespace}/{name}")))
}

async fn partitions(client: &Client) -> Result<Vec<IPUPartition>, AdoptError> {
    let kind = ApiResource::erase::<IPUPartition>(&());
    let api = Api::<DynamicObject>::all_with(client.clone(), &kind);
    let all = api.list(&ListParams::default()).await;
    let all = all.map_err(unread("the IPUPartitions"))?.into_iter();
    let read = all.map(|object| {
        let name = object.name_any();
        let read = object.try_parse::<IPUPartition>();
        read.map_err(|_| AdoptError::Unreadable(name))
    });
    read.collect()
}

fn unread(what: &str) -> impl FnOnce(kube::Error) -> AdoptError + use<> {
    let what = what.to_owned();
    move |source| AdoptError::Read(what, Box::new(source))
}

/// Records that the IPUPartition adopts partition `id`. Returns the reason if the IPUPartition has
/// changed since it was read.
async fn adopt(client: &Client, id: &str, adoption: &Adoption) -> Result<(), String> {
    let mut partition = adoption.partition.clone();
    let status = partition.status.unwrap_or_default();
    let (controller, account) = (adoption.controller.clone(), adoption.account.clone());
    let (id, now) = (id.to_owned(), clock::now());
    let requested = status::adoption_requested(&status, controller, account, id, now);
    partition.status = Some(requested);
    let written = Api::<IPUPartition>::all(client.clone())
        .replace_status(&partition.name_any(), &PostParams::default(), &partition)
        .await;
    match written {
        Ok(_) => Ok(()),
        Err(error) => Err(format!(
            "NOT adopted, because the write of the IPUPartition failed ({error})"
        )),
    }
}

fn described(adoption: &Adoption) -> String {
    let spec = &adoption.partition.spec;
    format!(
        "{} on {}, for {} {}/{}, instance {}, by IPUPartition {}",
        plan::size(spec.ipus, spec.gcds),
        adoption.controller.name,
        spec.owner.kind,
        spec.owner.namespace,
        spec.owner.name,
        spec.slot,
        adoption.partition.name_any()
    )
}
