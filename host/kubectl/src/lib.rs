//! `kubectl ipu`: a plugin of kubectl that explains why an IPUJob or a Pod waits for IPUs, shows
//! who uses them and where the IPU-hours went, and cordons and drains V-IPU controllers.
//!
//! It speaks to the API server with the kubeconfig and the rights of its user, and needs no server
//! of the operator. It names the resources that the user may not read.
//!
//! Entry points:
//! - [`cli::Arguments`] is the command line, and [`run`] carries it out.
//! - [`why`] makes a [`page::Page`] from what `gather` has read or `follow` watches; [`top`] counts
//!   what `live` has read or watches. Both are pure.
//! - [`cordon`] makes the patch of a VIPUController, [`drain`] says what is still on it, and
//!   `operate` sends and watches.
//! - [`goodput`] sums up IPUAccountings, and lists jobs for a replay. It is pure.
//! - [`nodes`] shows what the checks of nodes found, which ipu-node writes on each Node. It is
//!   pure.
//! - [`completion`] completes the command line, for shells and for kubectl.
//! - [`advice`] repeats what the operator decides and documents; `tests/suite/kubectl.rs` compares
//!   them. [`queue`], [`pods`] and [`store`] are those of the dashboard, which is a package of its
//!   own.
//!
//! It writes only the spec of VIPUControllers. It must not know guests, the V-IPU, or any other
//! package of this workspace but the API, the dashboard and the texts.
#![forbid(unsafe_code)]

pub mod access;
pub mod advice;
pub mod age;
pub mod cli;
pub mod completion;
pub mod condition;
pub mod connection;
pub mod controllers;
pub mod cordon;
pub mod drain;
pub mod error;
mod follow;
mod gather;
pub mod goodput;
mod live;
pub mod nodes;
mod operate;
pub mod output;
pub mod page;
pub mod partitions;
mod reading;
pub mod table;
pub mod top;
pub mod version;
pub mod warnings;
mod watching;
pub mod why;

use std::io::{self, Write};

pub use ipu_dashboard::{pods, queue, store};

use ipu_dashboard::Namespaces;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, ListParams};

use crate::access::Access;
use crate::cli::{Arguments, DrainOptions, GoodputOptions, Target, Task, TopOptions, WhyOptions};
use crate::connection::{Connection, ConnectionOptions};
use crate::cordon::Request;
use crate::error::KubectlError;
use crate::goodput::JobCollector;
use crate::live::View;
use crate::nodes::NodeReport;
use crate::output::GoodputFormat;
use crate::top::By;

/// Runs a command line. `is_terminal`: `out` is a terminal.
pub async fn run(
    arguments: &Arguments,
    out: &mut impl Write,
    is_terminal: bool,
) -> Result<(), KubectlError> {
    let options = &arguments.connection;
    match &arguments.task {
        Task::Why(task) => explain(&options.connect().await?, task, out, is_terminal).await,
        Task::Top(task) => count(options, task, out, is_terminal).await,
        Task::Goodput(task) if task.jobs => {
            let text = exported(options, task).await?;
            output::write(out, &text)
        }
        Task::Goodput(task) => {
            let text = summed_up(&options.connect().await?, task).await?;
            output::write(out, &text)
        }
        Task::Nodes(task) => {
            let reports = node_reports(&options.connect().await?, None).await?;
            output::write(
                out,
                &output::nodes(&reports, task.output, Timestamp::now())?,
            )
        }
        Task::Doctor(task) => {
            let reports = node_reports(&options.connect().await?, task.node.as_deref()).await?;
            output::write(
                out,
                &output::doctor(&reports, task.output, Timestamp::now())?,
            )?;
            let failed = reports.iter().filter(|report| report.has_failed());
            let failed: Vec<_> = failed.map(|report| report.node.as_str()).collect();
            if failed.is_empty() {
                return Ok(());
            }
            Err(KubectlError::ChecksFailed(failed.join(", ")))
        }
        Task::Cordon(task) => {
            let (connection, reason) = (options.connect().await?, task.reason.as_deref());
            let request = Request::Cordon;
            operate::request(&connection, &task.controllers, request, reason, out).await
        }
        Task::Uncordon(task) => {
            let (connection, request) = (options.connect().await?, Request::Uncordon);
            operate::request(&connection, &task.controllers, request, None, out).await
        }
        Task::Drain(task) => drained(&options.connect().await?, task, out).await,
        Task::Completion(task) => output::write(out, &completion::script(task.shell)),
        Task::Dashboard(task) => {
            let Connection { client, namespace } = options.connect().await?;
            let namespaces = Namespaces {
                own: &namespace,
                shown: options.namespace.as_deref(),
            };
            Ok(ipu_dashboard::run(client, namespaces, task, why::advise, out).await?)
        }
        Task::Version => {
            output::write(out, &(version::own() + "\n"))?;
            let lines = version::of_operator(&options.connect().await?).await?;
            output::write(out, &(lines.join("\n") + "\n"))
        }
    }
}

/// The page of an object, once or after each change.
async fn explain(
    connection: &Connection,
    task: &WhyOptions,
    out: &mut impl Write,
    is_terminal: bool,
) -> Result<(), KubectlError> {
    let format = task.output;
    let view = follow::View {
        format,
        is_terminal,
    };
    let page = match &task.target {
        Target::Job(name) if task.watch => return follow::job(connection, name, view, out).await,
        Target::Pod(name) if task.watch => return follow::pod(connection, name, view, out).await,
        Target::Job(name) => {
            let (job, around) = gather::job(connection, name).await?;
            why::job(&job, &around, Timestamp::now())
        }
        Target::Pod(name) => {
            let (pod, around) = gather::pod(connection, name).await?;
            why::pod(&pod, &around, Timestamp::now())
        }
    };
    output::write(out, &output::page(&page, format, Timestamp::now())?)
}

/// Drains V-IPU controllers, and waits for them.
async fn drained(
    connection: &Connection,
    task: &DrainOptions,
    out: &mut impl Write,
) -> Result<(), KubectlError> {
    let (names, reason) = (&task.cordon.controllers, task.cordon.reason.as_deref());
    operate::request(connection, names, Request::Drain, reason, out).await?;
    if !task.wait {
        return Ok(());
    }
    let timeout = (!task.timeout.is_zero()).then_some(task.timeout);
    operate::wait(connection, names, timeout, out).await
}

/// Shows the use of IPU-hours.
async fn summed_up(connection: &Connection, task: &GoodputOptions) -> Result<String, KubectlError> {
    let all = match reading::known_controllers(&connection.client).await? {
        Access::Allowed(all) => all,
        Access::Denied(words) => return Err(KubectlError::AccountingDenied(words)),
    };
    if all.is_empty() {
        return Err(KubectlError::NoControllers);
    }
    let records = match reading::known_accountings(&connection.client).await? {
        Access::Allowed(records) => records,
        Access::Denied(words) => return Err(KubectlError::AccountingDenied(words)),
    };
    let (since, now) = (task.since, Timestamp::now());
    let known = goodput::accounted(&all.readable, &records.readable);
    let mut report = goodput::goodput(&known, since, task.by, now);
    for (kind, number) in [
        ("VIPUControllers", all.unreadable),
        ("IPUAccountings", records.unreadable),
    ] {
        if number > 0 {
            let note = format!("{number} {kind} cannot be read and are not counted");
            report.notes.push(note);
        }
    }
    let lines = || goodput::csv(&known, since, now);
    output::goodput(&report, lines, task.output)
}

/// The ended jobs, for a replay.
async fn exported(
    options: &ConnectionOptions,
    task: &GoodputOptions,
) -> Result<String, KubectlError> {
    if !matches!(task.output, GoodputFormat::Table | GoodputFormat::Csv) {
        return Err(KubectlError::JobsFormat);
    }
    let client = options.connect().await?.client;
    let api = reading::jobs(&client, options.namespace.as_deref());
    let mut jobs = JobCollector::new(task.since, Timestamp::now());
    // A list of ten thousand jobs has hundreds of megabytes.
    let collect = |page: Vec<DynamicObject>| {
        for job in &page {
            jobs.add(job);
        }
    };
    let read = reading::each_page(&api, ListParams::default(), "the IPUJobs", collect);
    if let Access::Denied(words) = read.await? {
        return Err(KubectlError::JobsDenied(words));
    }
    let history = jobs.history();
    if history.left_out > 0 {
        let number = history.left_out;
        let note = format!(
            "{number} IPUJobs are left out: they have not ended, or never had partitions\n"
        );
        output::write(&mut io::stderr(), &note)?;
    }
    Ok(history.csv)
}

/// The nodes with IPUs, or one node, with the results of their checks. Without the right to list
/// VIPUControllers, only the labels of the nodes are not known.
async fn node_reports(
    connection: &Connection,
    name: Option<&str>,
) -> Result<Vec<NodeReport>, KubectlError> {
    let client = &connection.client;
    let api: Api<Node> = Api::all(client.clone());
    let selected = match name {
        Some(name) => ListParams::default().fields(&format!("metadata.name={name}")),
        None => ListParams::default(),
    };
    let nodes = match reading::list(&api, selected, "the nodes").await? {
        Access::Allowed(nodes) => nodes,
        Access::Denied(words) => return Err(KubectlError::NodesDenied(words)),
    };
    let controllers = match reading::known_controllers(client).await? {
        Access::Allowed(controllers) => controllers.readable,
        Access::Denied(_) => Vec::new(),
    };
    let Some(name) = name else {
        return Ok(nodes::reports(&nodes, &controllers));
    };
    let found = nodes
        .first()
        .ok_or_else(|| KubectlError::NoNode(name.to_owned()))?;
    Ok(vec![nodes::report(found, &controllers)])
}

/// The use of IPUs, once or after each change.
async fn count(
    options: &ConnectionOptions,
    task: &TopOptions,
    out: &mut impl Write,
    is_terminal: bool,
) -> Result<(), KubectlError> {
    if let (By::Controllers, Some(namespace)) = (task.by, &options.namespace) {
        return Err(KubectlError::NamespaceOfControllers(namespace.clone()));
    }
    let view = View {
        by: task.by,
        namespace: options.namespace.clone(),
        format: task.output,
        is_terminal,
    };
    let connection = options.connect().await?;
    // Without the right to list, nothing is watched.
    let (usage, lacks) = live::once(&connection, &view).await?;
    if task.watch {
        return live::watch(&connection, &view, lacks, out).await;
    }
    output::write(out, &output::usage(&usage, view.format)?)
}
