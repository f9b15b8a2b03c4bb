//! Measures the operator on real nodes: how long the program of a job takes to start, compared with
//! a batch Job and with mpi-operator, and the size and memory of the operator.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use bench::{
    figures,
    startup::{self, Pair},
};
use clap::{Parser, Subcommand};
use cluster::{
    interrupt::{self, First},
    node, post_mortem,
    progress::Progress,
    session,
    settings::Settings,
};
use harness::operator;
use release::image::compressed_size;

/// Measure the operator on a cluster of two nodes in processes, and stop the cluster.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the figures of BENCHMARKS.md that need real nodes.
    All,
    /// Print how long the program of a job takes to start.
    Start,
    /// Run as the first process of a node.
    #[command(hide = true)]
    Node {
        /// File that describes the node.
        spec: PathBuf,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::All => on_a_cluster(true),
        Command::Start => on_a_cluster(false),
        Command::Node { spec } => node::run(&spec).map_err(Into::into),
    };
    if let Err(error) = &done {
        eprintln!("bench-cluster: {error:#}");
    }
    match done {
        _ if interrupt::came() => ExitCode::from(interrupt::STATUS),
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn on_a_cluster(all: bool) -> Result<()> {
    interrupt::watch(First::EndCluster).context("failed to watch for Ctrl-C")?;
    let settings = Settings::from_env()?;
    let progress = Progress::start();
    let runtime = tokio::runtime::Runtime::new();
    let runtime = runtime.context("failed to start the asynchronous runtime")?;
    if all {
        runtime.block_on(bench(&settings, &progress))
    } else {
        runtime.block_on(bench_start(&settings, &progress))
    }
}

/// Prints the figures of BENCHMARKS.md that need real nodes. The cluster is stopped in any case.
async fn bench(settings: &Settings, progress: &Progress) -> Result<()> {
    let work = async {
        let installed = operator::up(settings, progress).await?;
        progress.stage("measure");
        post_mortem::after(settings, async {
            let image = compressed_size(&installed.image)?;
            let operated = installed.operated().await?;
            let starts = startup::measure(&installed, &operated, progress).await?;
            anyhow::Ok((image, starts, figures::measure(&operated.client).await?))
        })
        .await
    };
    let Some((image, starts, processes)) = session::run(settings, progress, Box::pin(work)).await?
    else {
        return Ok(());
    };
    progress.summary();
    print_starts(&starts);
    println!("image, compressed: {} KiB", image / 1024);
    for figures in processes {
        println!(
            "{}: {} KiB resident, ready {:.2} s after its start",
            figures.process, figures.resident_kib, figures.ready_after
        );
    }
    Ok(())
}

/// Prints how long programs take to start. The cluster is stopped in any case.
async fn bench_start(settings: &Settings, progress: &Progress) -> Result<()> {
    let work = async {
        let installed = operator::up(settings, progress).await?;
        progress.stage("measure");
        post_mortem::after(settings, async {
            let operated = installed.operated().await?;
            anyhow::Ok(startup::measure(&installed, &operated, progress).await?)
        })
        .await
    };
    if let Some(starts) = session::run(settings, progress, Box::pin(work)).await? {
        progress.summary();
        print_starts(&starts);
    }
    Ok(())
}

fn print_starts(pairs: &[Pair]) {
    for pair in pairs {
        println!("a partition forms within {} ms:", pair.forming_ms);
        for starts in [&pair.peer, &pair.ours] {
            let least = starts.program.iter().copied().fold(f64::INFINITY, f64::min);
            let most = starts.program.iter().copied().fold(0.0, f64::max);
            println!(
                "  {}: its Pod after {:.2} s, its first line after {:.2} s ({least:.2} to {most:.2})",
                starts.who,
                starts.until_pod(),
                starts.until_program()
            );
        }
        println!(
            "  {} / {}: {:.2}",
            pair.ours.who,
            pair.peer.who,
            pair.ours.until_program() / pair.peer.until_program()
        );
    }
}
