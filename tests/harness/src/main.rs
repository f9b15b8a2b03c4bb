//! The command line of the harness: fetches tools, starts and stops the cluster, and runs the demo.

mod publish;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use cluster::{
    interrupt::{self, First},
    lifecycle::{self, ClusterError},
    node,
    plan::{HOST_IP, bin},
    post_mortem,
    progress::Progress,
    session,
    settings::Settings,
    tools::Tools,
};
use harness::{
    demo,
    operator::{self, Installed, OperatorError},
};
use release::{
    dist::{Dist, Profile, arm64},
    image::{self, compressed_size},
    package::{Package, previous::Previous, twice::compare},
};

use self::publish::Publisher;

/// A Kubernetes cluster of two nodes in processes, to try the IPU Operator on real components.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Task(Task),
    /// Run as the first process of a node.
    #[command(hide = true)]
    Node {
        /// File that describes the node.
        spec: PathBuf,
    },
}

// The subcommands of the harness. A doc comment here would become the description of the program.
#[derive(Subcommand)]
enum Task {
    /// Start the cluster and install the operator. You can repeat it.
    Up,
    /// Stop the cluster and remove everything that it has created. You can repeat it.
    Down,
    /// Start the cluster, install the operator, run and check the jobs of the demo, and stop the
    /// cluster.
    Demo,
    /// Build the operator, the agent, the plugin of kubectl and the guests for release into `dist`.
    Dist,
    /// Build the package of a release into `dist/release`.
    Release {
        /// Also build the programs and the image for arm64.
        #[arg(long)]
        arm64: bool,
        /// Build the package again in another folder, and compare every byte.
        #[arg(long)]
        twice: bool,
        #[command(flatten)]
        publisher: Publisher,
    },
    /// Build the package of the previous release into the cache, unless it is there.
    PreviousRelease,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Task(task) => run(&task),
        Command::Node { spec } => node::run(&spec).map_err(Into::into),
    };
    if let Err(error) = &done {
        eprintln!("harness: {error:#}");
    }
    match done {
        _ if interrupt::came() => ExitCode::from(interrupt::STATUS),
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(task: &Task) -> Result<()> {
    interrupt::watch(first_signal(task)).context("failed to watch for Ctrl-C")?;
    let settings = Settings::from_env()?;
    let progress = Progress::start();
    match task {
        Task::Up => {
            let installed = runtime()?.block_on(operator::up(&settings, &progress));
            let installed = installed.inspect_err(|error| say_what_stays(&settings, error))?;
            progress.summary();
            print_usage(&installed);
        }
        Task::Down => lifecycle::down(&settings, &progress)?,
        Task::Demo => runtime()?.block_on(show_demo(&settings, &progress))?,
        Task::Dist => {
            Dist::build(&settings, Profile::Release, &progress)?;
        }
        Task::Release {
            arm64,
            twice,
            publisher,
        } => {
            publish::refuse_changes(&settings, publisher)?;
            let package = release(&settings, &progress, *arm64, *twice)?;
            publish::publish(&settings, &progress, &package, publisher)?;
        }
        Task::PreviousRelease => {
            let previous = Previous::locked(&settings.checkout)?;
            let package = previous.ensure(&settings, &progress)?;
            println!("{}", package.archive.display());
        }
    }
    Ok(())
}

/// Returns the effect of the first Ctrl-C.
fn first_signal(task: &Task) -> First {
    match task {
        Task::Demo => First::EndCluster,
        Task::Up => First::Leave("the cluster keeps running; `make down` stops it"),
        Task::Down => First::Leave("a part of the cluster remains; `make down` removes it"),
        Task::Dist | Task::Release { .. } | Task::PreviousRelease => {
            First::Leave("completed builds and downloads are kept for the next run")
        }
    }
}

/// A failed start leaves the cluster running for inspection, unless another harness uses it.
fn say_what_stays(settings: &Settings, error: &OperatorError) {
    let is_ours = !matches!(error, OperatorError::Cluster(ClusterError::Lock(_)));
    if is_ours && lifecycle::is_there(settings) {
        eprintln!("the cluster keeps running, for you to inspect it; `make down` stops it");
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Runtime::new().context("failed to start the asynchronous runtime")
}

/// Runs the demo. The cluster is stopped in any case; the logs of a failure remain in the run
/// folder.
async fn show_demo(settings: &Settings, progress: &Progress) -> Result<()> {
    let work = async {
        let installed = operator::up(settings, progress).await?;
        post_mortem::after(settings, async {
            let operated = installed.operated().await?;
            anyhow::Ok(demo::run(&operated, progress).await?)
        })
        .await
    };
    if session::run(settings, progress, Box::pin(work))
        .await?
        .is_some()
    {
        progress.summary();
    }
    Ok(())
}

/// Builds the package of a release, and prints its path and its digests.
fn release(settings: &Settings, progress: &Progress, arm64: bool, twice: bool) -> Result<Package> {
    let dist = Dist::build(settings, Profile::Release, progress)?;
    let mut programs = vec![dist.programs().clone()];
    if arm64 {
        programs.push(arm64::ensure(settings, &dist, progress)?);
    }
    let tools = Tools::of_images(settings, progress)?;
    let mut built = Vec::new();
    for programs in &programs {
        let image = image::ensure(settings, &tools, programs, progress)?;
        built.push((programs.platform, image));
    }
    let images: Vec<_> = built.iter().map(|(one, image)| (*one, image)).collect();
    let helm = Tools::fetch_some(settings, progress, &["helm"])?;
    let package = progress.run("made the package", || {
        Package::make(settings, helm.program("helm"), &dist, &programs, &images)
    })?;
    println!("{}", package.archive.display());
    for (platform, image) in images {
        let size = compressed_size(image)? / 1024;
        println!(
            "image for {}: {}, {size} KiB compressed",
            platform.architecture, image.digest
        );
    }
    if twice {
        for (file, digest) in compare(settings, &package, arm64, progress)? {
            println!("the same both times: {digest}  {file}");
        }
    }
    Ok(package)
}

/// Prints how to use the cluster. The last line is for the shell's `eval`.
fn print_usage(installed: &Installed) {
    let kubeconfig = installed.cluster.kubeconfig();
    let bin = bin(&installed.cluster.settings.run);
    println!("The operator is installed. To use it, run the last line, and then:");
    println!("  kubectl apply -f examples/01-single-worker.yaml");
    println!("  kubectl get ipujobs --watch");
    println!("  kubectl ipu top");
    println!("`make down` stops the cluster. Pods reach servers on this machine at {HOST_IP}.");
    println!(
        "export KUBECONFIG='{}' PATH='{}':\"$PATH\" HOST_IP={HOST_IP}",
        kubeconfig.display(),
        bin.display()
    );
}
