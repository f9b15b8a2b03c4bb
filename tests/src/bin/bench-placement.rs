//! Measures placement policies and settings of the queue with the jobs of a real cluster, and the growth of the time of
//! a decision. Prints the tables of BENCHMARKS.md, and draws the plots.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use ipu_evaluation::{Order, Settings};
use release::guests::checkout;
use tests::placement::{Measured, RealJobs, Replayed, Run, evaluate, exponent, scale};

/// 16 controllers of 64 IPUs: each serves the largest job, and the jobs keep all of them busy.
const CONTROLLERS: &str = "[{name: pod, ipus: 64, count: 16}]";

/// The policies that are compared.
const POLICIES: [&str; 3] = ["built-in", "fragmentation.wasm", "best-fit.wasm"];

/// A backfill limit that no request reaches, in seconds: longer than all jobs of the trace, one after the other.
const NEVER: u64 = 1_000_000_000_000;

/// Numbers of controllers and of waiting requests for which decisions are measured. One fit is over the scales with
/// the first number of controllers, the other over those with the last number of requests.
const SCALES: [(usize, usize); 6] = [
    (256, 1_000),
    (256, 2_500),
    (256, 5_000),
    (256, 10_000),
    (16, 2_500),
    (64, 2_500),
];

/// Measure placement. It takes a quarter of an hour.
#[derive(Parser)]
struct Cli {
    /// Offered loads in percent at which the policies are compared.
    #[arg(long, value_delimiter = ',', default_values_t = [80, 95, 110])]
    loads: Vec<u32>,
    /// Backfill limits in seconds that are compared with the default and with no reservations, at the load in the middle
    /// of the list of loads.
    #[arg(long, value_delimiter = ',', default_values_t = [60, 3_600, 86_400])]
    limits: Vec<u64>,
    /// Measure one scale only, and print it as JSON. The program starts itself in this way, because earlier work of a
    /// process distorts its memory.
    #[arg(long, hide = true, num_args = 2, value_names = ["CONTROLLERS", "WAITING"])]
    scale: Option<Vec<usize>>,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    if let Some(&[controllers, waiting]) = cli.scale.as_deref() {
        println!("{}", serde_json::to_string(&scale(controllers, waiting)?)?);
        return Ok(());
    }
    print_scales()?;
    let plots = plots()?;
    for load in &cli.loads {
        let name = load.to_string();
        println!("Policies at an offered load of {load} %:\n");
        print_policies(&["--load", name.as_str()], &plots, &name)?;
    }
    if let Some(&load) = cli.loads.get(cli.loads.len() / 2) {
        println!("Policies at an offered load of {load} %, if they saw which IPUs are free:\n");
        let percent = load.to_string();
        let options = ["--load", percent.as_str(), "--exact-blocks"];
        print_policies(&options, &plots, "exact-blocks")?;
        print_queue(load, cli.limits, &plots)?;
    }
    println!("The plots are in {}.", plots.display());
    Ok(())
}

/// The folder of the plots: that of the documents if the user requests it.
fn plots() -> anyhow::Result<PathBuf> {
    let folder = match std::env::var_os("UPDATE_FIGURES") {
        Some(_) => "charts/ipu-operator/docs/images",
        None => "dist/placement",
    };
    let folder = checkout().join(folder);
    fs::create_dir_all(&folder)
        .with_context(|| format!("failed to create {}", folder.display()))?;
    Ok(folder)
}

fn plot(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("placement-{name}.svg"))
}

/// Prints the table of the policies with these options, and draws them.
fn print_policies(options: &[&str], plots: &Path, name: &str) -> anyhow::Result<()> {
    let svg = plot(plots, name);
    let run = Run {
        policies: &POLICIES,
        controllers: CONTROLLERS,
        options,
        svg: Some(svg.as_path()),
    };
    println!("{}", evaluate(&run)?);
    Ok(())
}

/// Prints the tables of the backfill limits and of the orders of the queue, and draws them.
fn print_queue(load: u32, mut limits: Vec<u64>, plots: &Path) -> anyhow::Result<()> {
    let defaults = Settings::default();
    let default = defaults.backfill_limit.as_secs();
    limits.extend([default, NEVER]);
    limits.sort_unstable();
    limits.dedup();
    let jobs = RealJobs::at_load(CONTROLLERS, load)?;
    let with_limit = |&limit: &u64| {
        let settings = Settings {
            backfill_limit: Duration::from_secs(limit),
            ..defaults
        };
        (limit, jobs.replayed(&settings))
    };
    let replayed: Vec<_> = limits.iter().map(with_limit).collect();
    let names = limits.iter().map(|&limit| limit_name(limit, default));
    let names: Vec<_> = names.collect();
    let replays = replayed.iter().map(|(_, replayed)| replayed);
    let named: Vec<_> = names.iter().map(String::as_str).zip(replays).collect();
    println!("Backfill limits at an offered load of {load} %, with the serial walk:\n");
    print_replays(&jobs, "backfill limit", &named, &plot(plots, "limits"))?;
    let fair_share = Settings {
        order: Order::FairShare,
        ..defaults
    };
    let fair_share = jobs.replayed(&fair_share);
    let creation = replayed.iter().find(|(limit, _)| *limit == default);
    let creation = creation.map(|(_, replayed)| ("by creation", replayed));
    let orders: Vec<_> = creation
        .into_iter()
        .chain([("fair share of namespaces", &fair_share)])
        .collect();
    println!("Orders of the queue at an offered load of {load} %, with the serial walk:\n");
    print_replays(&jobs, "order", &orders, &plot(plots, "orders"))
}

fn limit_name(seconds: u64, default: u64) -> String {
    match seconds {
        NEVER => "without reservations".to_owned(),
        _ if seconds == default => format!("{seconds} s, the default"),
        _ => format!("{seconds} s"),
    }
}

/// Prints the table of replays that differ in one setting, and draws them.
fn print_replays(
    jobs: &RealJobs,
    compared: &str,
    replays: &[(&str, &Replayed)],
    plot: &Path,
) -> anyhow::Result<()> {
    println!("{}", jobs.markdown(compared, replays));
    fs::write(plot, jobs.svg(replays))
        .with_context(|| format!("failed to write {}", plot.display()))
}

/// Prints times and memory of decisions, and the exponents of their growth.
fn print_scales() -> anyhow::Result<()> {
    let measured = SCALES.iter().map(|&scale| alone(scale));
    let measured: Vec<Measured> = measured.collect::<Result<_, _>>()?;
    println!("Decisions of the native serial walk, with the queue, without the call of a guest:\n");
    println!(
        "| V-IPU controllers | waiting requests | one decision | one on each request | memory before, at most |"
    );
    println!("| --- | --- | --- | --- | --- |");
    for one in &measured {
        println!(
            "| {} | {} | {:.2} ms | {:.1} s | {:.1}, {:.1} MiB |",
            one.controllers,
            one.waiting,
            one.decision.as_secs_f64() * 1_000.0,
            one.pass.as_secs_f64(),
            mebibytes(one.before_kib),
            mebibytes(one.most_kib)
        );
    }
    let [(controllers, _), .., (_, waiting)] = SCALES;
    let mut by_requests = measured.clone();
    by_requests.retain(|one| one.controllers == controllers);
    let mut by_controllers = measured;
    by_controllers.retain(|one| one.waiting == waiting);
    println!("\nExponents of the growth, by least squares over the logarithms:\n");
    println!("| | one decision | one on each request | additional memory |");
    println!("| --- | --- | --- | --- |");
    println!(
        "| with the number of waiting requests, {controllers} controllers | {} |",
        growth(&by_requests, |one| one.waiting)
    );
    println!(
        "| with the number of controllers, {waiting} waiting requests | {} |\n",
        growth(&by_controllers, |one| one.controllers)
    );
    Ok(())
}

/// Measures one scale in a process of its own.
fn alone((controllers, waiting): (usize, usize)) -> anyhow::Result<Measured> {
    let program = std::env::current_exe().context("failed to find this program")?;
    let sizes = [controllers, waiting].map(|size| size.to_string());
    let mut command = Command::new(program);
    command.arg("--scale").args(sizes).stderr(Stdio::inherit());
    let output = command.output().context("failed to start this program")?;
    anyhow::ensure!(
        output.status.success(),
        "measuring {waiting} requests on {controllers} controllers failed: {}",
        output.status
    );
    serde_json::from_slice(&output.stdout).context("failed to read the measurement")
}

/// Returns the cells with the exponents of the growth with a size.
fn growth(measured: &[Measured], size: impl Fn(&Measured) -> usize) -> String {
    let values: [fn(&Measured) -> f64; 3] = [
        |one| one.decision.as_secs_f64(),
        |one| one.pass.as_secs_f64(),
        |one| mebibytes(one.most_kib.saturating_sub(one.before_kib)),
    ];
    let cells = values.map(|value| {
        let points = measured.iter().map(|one| (float(size(one)), value(one)));
        let points: Vec<_> = points.collect();
        exponent(&points).map_or_else(|| "–".to_owned(), |power| format!("{power:.2}"))
    });
    cells.join(" | ")
}

fn mebibytes(kib: u64) -> f64 {
    let kib = u32::try_from(kib).unwrap_or(u32::MAX);
    f64::from(kib) / 1_024.0
}

fn float(size: usize) -> f64 {
    f64::from(u32::try_from(size).unwrap_or(u32::MAX))
}
