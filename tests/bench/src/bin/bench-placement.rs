//! Measures placement policies and settings of the queue with the jobs of a real cluster, by the
//! command that authors use. Prints the tables of BENCHMARKS.md, and draws the plots of the
//! policies.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Context;
use clap::Parser;
use release::guests::{self, checkout};
use tempfile::TempDir;

/// 16 controllers of 64 IPUs: each serves the largest job, and the jobs keep all of them busy.
const CONTROLLERS: &str = "[{name: pod, ipus: 64, count: 16}]";

/// The built-in serial walk.
const BUILT_IN: &str = "built-in";

/// The other policies that are compared.
const POLICIES: [&str; 2] = ["fragmentation.wasm", "best-fit.wasm"];

/// A backfill limit that no request reaches, in seconds: longer than all jobs of the trace, one
/// after the other.
const NEVER: u64 = 1_000_000_000_000;

/// Measure placement. It takes a quarter of an hour.
#[derive(Parser)]
struct Cli {
    /// Offered loads in percent at which the policies are compared.
    #[arg(long, value_delimiter = ',', default_values_t = [80, 95, 110])]
    loads: Vec<u32>,
    /// Backfill limits in seconds that are compared with no reservations, at the load in the middle
    /// of the list of loads.
    #[arg(long, value_delimiter = ',', default_values_t = [600, 3_600, 43_200, 86_400, 172_800])]
    limits: Vec<u64>,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let bench = Bench::new()?;
    for load in &cli.loads {
        let load = load.to_string();
        println!("Policies at an offered load of {load} %:\n");
        println!("{}", bench.policies(&["--load", &load], &load)?);
    }
    if let Some(load) = cli.loads.get(cli.loads.len() / 2) {
        let load = load.to_string();
        println!(
            "Policies at an offered load of {load} %, if V-IPU controllers report which IPUs are free:\n"
        );
        let options = ["--load", &load, "--exact-blocks"];
        println!("{}", bench.policies(&options, "exact-blocks")?);
        println!("The serial walk at an offered load of {load} %:\n");
        println!("{}", bench.queue(&load, cli.limits)?);
    }
    println!("The plots are in {}.", bench.plots.display());
    Ok(())
}

/// The files of the replays.
struct Bench {
    /// The policies and the list of controllers. The names in tables and plots are those of files
    /// in this folder.
    folder: TempDir,
    plots: PathBuf,
}

impl Bench {
    fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("failed to create a folder")?;
        fs::write(folder.path().join("controllers.yaml"), CONTROLLERS)
            .context("failed to write the list of controllers")?;
        let built = [guests::build()?, guests::build_examples()?];
        for (built, policy) in built.iter().zip(POLICIES) {
            fs::copy(built.join(policy), folder.path().join(policy))
                .with_context(|| format!("failed to copy {policy}"))?;
        }
        // The folder of the plots is that of the documents if the user requests it.
        let plots = match std::env::var_os("UPDATE_FIGURES") {
            Some(_) => "charts/ipu-operator/docs/images",
            None => "dist/placement",
        };
        let plots = checkout().join(plots);
        fs::create_dir_all(&plots)
            .with_context(|| format!("failed to create {}", plots.display()))?;
        Ok(Self { folder, plots })
    }

    /// Returns the table of all policies with these options, and draws them.
    fn policies(&self, options: &[&str], plot: &str) -> anyhow::Result<String> {
        let plot = self.plots.join(format!("placement-{plot}.svg"));
        let mut command = self.evaluate(options);
        for policy in POLICIES {
            command.args(["--compare", policy]);
        }
        printed(command.arg("--svg").arg(plot))
    }

    /// Returns the table of the backfill limits, and of the fair share of namespaces with the
    /// default limit.
    fn queue(&self, load: &str, limits: Vec<u64>) -> anyhow::Result<String> {
        let named = |limit| (format!("backfill limit of {limit} s"), limit);
        let mut settings: Vec<_> = limits.into_iter().map(named).collect();
        settings.push(("without reservations".to_owned(), NEVER));
        let mut table = String::new();
        for (name, limit) in settings {
            let limit = limit.to_string();
            let options = ["--load", load, "--backfill-limit-seconds", &limit];
            add_row(&mut table, &name, &printed(&mut self.evaluate(&options))?);
        }
        let options = ["--load", load, "--order", "fair-share"];
        let fair_share = printed(&mut self.evaluate(&options))?;
        add_row(&mut table, "fair share of namespaces", &fair_share);
        Ok(table)
    }

    /// The command that replays all jobs with the serial walk and these options.
    fn evaluate(&self, options: &[&str]) -> Command {
        let mut command = Command::new(checkout().join("dist/ipu-operator"));
        command
            .args(["policy", "evaluate", BUILT_IN, "--markdown", "--jobs"])
            .arg(checkout().join("tests/evaluation/msr-jobs.csv"))
            // One in fifty jobs has 16 IPUs or more.
            .args(["--controllers", "controllers.yaml", "--large", "16"])
            .args(options)
            .current_dir(self.folder.path());
        command
    }
}

/// Adds the row of a table with one policy, under this name. The first row brings the two lines of
/// the head with it.
fn add_row(table: &mut String, name: &str, printed: &str) {
    let head = if table.is_empty() { 0 } else { 2 };
    for line in printed.lines().skip(head) {
        table.push_str(&line.replacen(BUILT_IN, name, 1));
        table.push('\n');
    }
}

/// Runs a replay, and returns its output.
fn printed(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.context("failed to start dist/ipu-operator; `make dist` builds it")?;
    anyhow::ensure!(
        output.status.success(),
        "the replay failed: {}",
        output.status
    );
    String::from_utf8(output.stdout).context("the table is not UTF-8")
}
