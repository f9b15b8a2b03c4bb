//! What placement policies and the settings of the queue reach on jobs of a real cluster, and how the time of a decision
//! grows: prints the tables of BENCHMARKS.md, and draws the plots beside the documents.

use std::fs;

use clap::Parser;
use release::guests::checkout;
use tests::placement::{Measured, Run, evaluate, scale};

/// 16 controllers of 64 IPUs: each serves the largest job, and the jobs keep all of them busy.
const CONTROLLERS: &str = "[{name: pod, ipus: 64, count: 16}]";

/// The policies that are compared.
const POLICIES: [&str; 3] = ["built-in", "fragmentation.wasm", "best-fit.wasm"];

/// The folder of the plots.
const PLOTS: &str = "charts/ipu-operator/docs/images";

/// Measures placement. Takes minutes.
#[derive(Parser)]
struct Cli {
    /// Offered loads in percent at which the policies are compared.
    #[arg(long, value_delimiter = ',', default_values_t = [80, 95, 110])]
    loads: Vec<u32>,
    /// Backfill limits in seconds that are compared, at the load of the middle of the list of loads.
    #[arg(long, value_delimiter = ',', default_values_t = [60, 600, 3_600, 86_400])]
    limits: Vec<u64>,
    /// Numbers of waiting requests for which decisions are measured.
    #[arg(long, value_delimiter = ',', default_values_t = [2_500, 10_000])]
    waiting: Vec<usize>,
    /// Number of controllers of these decisions.
    #[arg(long, default_value_t = 256)]
    controllers: usize,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let plots = checkout().join(PLOTS);
    fs::create_dir_all(&plots)?;
    for load in &cli.loads {
        let svg = plots.join(format!("placement-{load}.svg"));
        let load = load.to_string();
        println!("Policies at an offered load of {load} %:\n");
        tell(&["--load", load.as_str()], &POLICIES, Some(svg.as_path()))?;
    }
    if let Some(load) = cli.loads.get(cli.loads.len() / 2) {
        let load = load.to_string();
        println!("The same at {load} %, if a policy could see which IPUs are free:\n");
        tell(
            &["--load", load.as_str(), "--exact-blocks"],
            &POLICIES,
            None,
        )?;
        println!(
            "The serial walk at {load} %, if the namespace with the fewest IPUs were served first:\n"
        );
        let fair_share = ["--load", load.as_str(), "--order", "fair-share"];
        tell(&fair_share, &POLICIES[..1], None)?;
        for limit in &cli.limits {
            let limit = limit.to_string();
            println!("The serial walk at {load} %, with a backfill limit of {limit} seconds:\n");
            let options = [
                "--load",
                load.as_str(),
                "--backfill-limit-seconds",
                limit.as_str(),
            ];
            tell(&options, &POLICIES[..1], None)?;
        }
    }
    let measured = cli
        .waiting
        .iter()
        .map(|&waiting| scale(cli.controllers, waiting));
    tell_scale(&measured.collect::<Result<Vec<_>, _>>()?);
    Ok(())
}

/// Prints the table of one replay.
fn tell(options: &[&str], policies: &[&str], svg: Option<&std::path::Path>) -> anyhow::Result<()> {
    let run = Run {
        policies,
        controllers: CONTROLLERS,
        options,
        svg,
    };
    println!("{}", evaluate(&run)?);
    Ok(())
}

/// Prints the times, and the exponents of their growth.
fn tell_scale(measured: &[Measured]) {
    println!("| controllers | waiting requests | one decision | all of them | peak memory |");
    println!("| --- | --- | --- | --- | --- |");
    for one in measured {
        println!(
            "| {} | {} | {:.2} ms | {:.1} s | {} MiB |",
            one.controllers,
            one.waiting,
            one.decision.as_secs_f64() * 1_000.0,
            one.pass.as_secs_f64(),
            one.memory_kib / 1_024
        );
    }
    if let [first, .., last] = measured {
        println!(
            "\nTime of a decision grows with the power {:.2} of the number of requests, that of a pass with {:.2}.",
            exponent(
                (first, first.decision.as_secs_f64()),
                (last, last.decision.as_secs_f64())
            ),
            exponent(
                (first, first.pass.as_secs_f64()),
                (last, last.pass.as_secs_f64())
            )
        );
    }
}

/// The exponent of the growth between two measurements.
#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of requests are far below 2^52"
)]
fn exponent(first: (&Measured, f64), last: (&Measured, f64)) -> f64 {
    let sizes = last.0.waiting as f64 / first.0.waiting as f64;
    (last.1 / first.1).ln() / sizes.ln()
}
