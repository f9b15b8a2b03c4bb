//! `ipu-operator`: reads the command line, starts the log, and calls the library.

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use ipu_authoring::PolicyCliError;
use ipu_node::options::NodeOptions;
use ipu_operator::adopt;
use ipu_operator::adopt::AdoptArguments;
use ipu_operator::certificates;
use ipu_operator::cli::{Arguments, Task};
use ipu_operator::controller;
use ipu_operator::node;
use ipu_operator::process_runtime;
use ipu_operator::proxy;
use ipu_operator::support;
use ipu_operator::support::SupportOptions;
use ipu_operator::verify;
use ipu_operator::verify::VerifyOptions;
use ipu_runtime::panics;
use ipu_runtime::release::Process;
use ipu_runtime::telemetry;
use ipu_runtime::telemetry::LogArguments;
use ipu_runtime::telemetry::level::LogLevel;
use ipu_runtime::telemetry::trace::Traces;
use ipu_text::{explain, sanitize_lines};
use tokio::runtime::Runtime;

/// The process allocates and frees many small objects for thousands of jobs. The allocator of the C
/// library needs half as much memory again for each job, and more time. `_RJEM_MALLOC_CONF`
/// configures this one.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Longest line of a printed error, in bytes. Lists of violations are long.
const ERROR_LINE_MAX: usize = 16 << 10;

/// Prints an error with its causes and without a backtrace, even if the environment enables
/// backtraces of panics: an error names what to change. Causes can contain text of an API server or
/// a registry.
fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = exit_code(&error);
            let error = sanitize_lines(&explain(error.as_ref()), ERROR_LINE_MAX);
            eprintln!("Error: {error}");
            code
        }
    }
}

/// The commands for policy authors have exit codes of their own, for pipelines.
fn exit_code(error: &anyhow::Error) -> ExitCode {
    let of_policy = error.downcast_ref::<PolicyCliError>();
    of_policy.map_or(ExitCode::FAILURE, |error| error.exit_code().into())
}

fn run(task: Task) -> anyhow::Result<()> {
    // An error means that a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match task {
        Task::Controller(options) => within_runtime(|runtime| {
            let (log, _traces) = start_log(&options.log, Process::Controller.name())?;
            Ok(runtime.block_on(controller::run(*options, log))?)
        })?,
        Task::VipuProxy(arguments) => within_runtime(|runtime| {
            let (log, _traces) = start_log(&arguments.log, Process::VipuProxy.name())?;
            Ok(runtime.block_on(proxy::run(arguments.proxy, log))?)
        })?,
        Task::Certificates(options) => within_runtime(|runtime| {
            let (_log, _traces) = start_log(&options.log, certificates::NAME)?;
            Ok(runtime.block_on(certificates::run(*options))?)
        })?,
        Task::Node(arguments) => within_runtime(|runtime| {
            let (_log, _traces) = start_log(&arguments.log, node::NAME)?;
            Ok(runtime.block_on(node::run(&arguments))?)
        })?,
        Task::Doctor(options) => within_runtime(|runtime| runtime.block_on(examined(&options)))?,
        Task::Verify(options) => within_runtime(|runtime| runtime.block_on(verified(&options)))?,
        Task::SupportBundle(options) => within_runtime(|runtime| {
            eprintln!("{}", runtime.block_on(bundled(&options))?);
            Ok(())
        })?,
        Task::Adopt(arguments) => within_runtime(|runtime| runtime.block_on(adopted(&arguments)))?,
        Task::Policy(arguments) => ipu_authoring::run(arguments, &mut std::io::stdout().lock())?,
        Task::Crd => print!("{}", ipu_api::crd::render()),
    }
    Ok(())
}

async fn verified(options: &VerifyOptions) -> anyhow::Result<()> {
    Ok(verify::run(client().await?, options, &mut std::io::stdout()).await?)
}

async fn examined(options: &NodeOptions) -> anyhow::Result<()> {
    // Without an API server, the other checks still say what is wrong with the node.
    let client = client().await.ok();
    Ok(node::examine(client.as_ref(), options, &mut std::io::stdout()).await?)
}

async fn adopted(arguments: &AdoptArguments) -> anyhow::Result<()> {
    let (options, yes) = (&arguments.proxy.proxy, arguments.yes);
    Ok(adopt::run(client().await?, options, yes, &mut std::io::stdout()).await?)
}

async fn bundled(options: &SupportOptions) -> anyhow::Result<String> {
    let mut config = config().await?;
    // A service without endpoints, such as that of a release that does not run, is answered with
    // 503. By default, kube repeats such a request for minutes.
    config.default_retry = false;
    let client = kube::Client::try_from(config)?;
    Ok(support::run(client, options).await?)
}

async fn client() -> anyhow::Result<kube::Client> {
    Ok(kube::Client::try_from(config().await?)?)
}

async fn config() -> anyhow::Result<kube::Config> {
    let config = kube::Config::infer().await;
    config
        .context("failed to find the API server; is there a kubeconfig, or does this run in a Pod?")
}

/// Starts the log and the traces. They end when the result is dropped.
fn start_log(
    log: &LogArguments,
    process: &'static str,
) -> anyhow::Result<(LogLevel, Option<Traces>)> {
    let traces = log.traces(process)?;
    let level = telemetry::start(log.log_format, &log.log_level, traces.as_ref())?;
    panics::install();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "starting");
    Ok((level, traces))
}

fn within_runtime(work: impl FnOnce(&Runtime) -> anyhow::Result<()>) -> anyhow::Result<()> {
    process_runtime::run(work).context("failed to start the asynchronous runtime")?
}
