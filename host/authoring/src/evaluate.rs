//! `policy evaluate`: replays jobs in virtual time with placement policies, and prints what each of
//! them reaches.
//!
//! The budget of a call is fuel: the same files give the same output on every machine.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io, iter};

use clap::{Args, ValueEnum};
use ipu_api::guest::placement::PlacementRequest;
use ipu_api::ipupolicy::Hook;
use ipu_evaluation::figures::{Input, figures};
use ipu_evaluation::report::{Evaluated, Report};
use ipu_evaluation::{
    BlockChoice, Controller, Decided, Job, Order, Replay, Settings, controllers, generate, jobs,
    plot, replay,
};
use ipu_guest_host::policy_request::PolicyRequest;
use ipu_guest_host::{Budget, Limits, OfflineGuest};
use ipu_placement::serial_walk::serial_walk;

use super::document::{document, text};
use super::host_verdict::placement_verdict;
use super::settings::settings;
use super::{PolicyCliError, failed_to, no_answer, no_policy, unusable, write_json};

/// The name of the built-in serial walk.
const BUILT_IN: &str = "built-in";

/// Largest file of jobs that is read, in bytes: some ten million jobs.
const JOBS_LIMIT: u64 = 256 << 20;

/// Offered load of generated jobs, in percent.
const GENERATED_LOAD: u32 = 90;

/// The order of the waiting requests.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum OrderArg {
    /// By creation, as in the operator.
    Creation,
    /// By the IPUs that the namespace has, the fewest first.
    FairShare,
}

/// The free block that a V-IPU controller splits for a partition.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum BlockChoiceArg {
    /// The smallest that holds it.
    Smallest,
    /// The one at the lowest place.
    Lowest,
}

#[derive(Args, Clone, Debug)]
pub(super) struct EvaluateArgs {
    /// The policy: a component of world placement, such as best-fit.wasm, or `built-in` for the
    /// built-in serial walk.
    guest: String,
    /// Another policy to compare it with, named in the same way; may be repeated.
    #[arg(long, value_name = "GUEST")]
    compare: Vec<String>,
    /// CSV file of the jobs. Its first line names the columns: namespace, arrival_seconds, ipus (of
    /// a partition), duration_seconds, and optionally gang (partitions that are useful only
    /// together).
    #[arg(
        long,
        required_unless_present = "generate",
        conflicts_with = "generate"
    )]
    jobs: Option<PathBuf>,
    /// Make jobs from this seed instead: from 1 to 256 IPUs, with gangs, bursts and namespaces of
    /// different sizes. The same seed makes the same jobs.
    #[arg(long, value_name = "SEED")]
    generate: Option<u64>,
    /// Number of generated jobs.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
    /// YAML or JSON file of the V-IPU controllers: a list of {name, ipus}, or {name, ipus, count}
    /// for several equal ones.
    #[arg(long)]
    controllers: PathBuf,
    /// Move the arrivals closer together or further apart, so that the jobs need this percentage of
    /// the IPUs until the last one arrives; by default as the file has them, and 90 for generated
    /// jobs.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    load: Option<u32>,
    /// IPUs from which on a job counts as large; by default half of the largest controller.
    #[arg(long, value_name = "IPUS")]
    large: Option<u64>,
    /// Waiting time after which capacity is reserved for a request, as the value of the chart.
    #[arg(long, default_value_t = Settings::default().backfill_limit.as_secs())]
    backfill_limit_seconds: u64,
    /// Order of the waiting requests. The operator has only that by creation: compare both to find
    /// out what a fair share of the namespaces would bring.
    #[arg(long, value_enum, default_value_t = OrderArg::Creation)]
    order: OrderArg,
    /// Show the policies which blocks of IPUs are free, as V-IPU controllers that report the places
    /// of IPUs do. Compare both to find out what the knowledge is worth.
    #[arg(long)]
    exact_blocks: bool,
    /// The free block that a V-IPU controller splits for a partition. Compare both to find out what
    /// the choice is worth.
    #[arg(long, value_enum, default_value_t = BlockChoiceArg::Smallest)]
    block_choice: BlockChoiceArg,
    /// Settings for the components, as a JSON object.
    #[arg(long, default_value = "{}", value_parser = settings)]
    settings: String,
    /// Fuel that a call may spend; about one unit for each instruction.
    #[arg(long, default_value_t = 1_000_000_000)]
    fuel: u64,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Print the most important figures as a table in Markdown, with the gap behind each value.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Also draw running and waiting IPUs over time, as an SVG file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub(super) fn run(args: &EvaluateArgs, out: &mut impl io::Write) -> Result<(), PolicyCliError> {
    let controllers = read_controllers(&args.controllers)?;
    let jobs = read_jobs(args, &controllers)?;
    let half = u64::from(controllers::largest_partition(&controllers)) / 2;
    let input = Input {
        jobs: &jobs,
        controllers: &controllers,
        large: args.large.unwrap_or(half).max(1),
    };
    let (mut policies, mut timelines) = (Vec::new(), Vec::new());
    for name in iter::once(&args.guest).chain(&args.compare) {
        let (digest, replay) = replayed(name, args, input)?;
        policies.push(Evaluated {
            policy: name.clone(),
            digest,
            figures: figures(input, &replay),
        });
        timelines.push((name.as_str(), replay.timeline));
    }
    if let Some(file) = &args.svg {
        let named: Vec<_> = timelines.iter().map(|(name, one)| (*name, one)).collect();
        let drawn = plot::svg(&named, controllers::capacity(&controllers));
        fs::write(file, drawn).map_err(failed_to("write", file))?;
    }
    let report = Report::new(input, &policies);
    if args.json {
        write_json(&report, out)?;
    } else if args.markdown {
        out.write_all(report.markdown("policy").as_bytes())?;
    } else {
        out.write_all(report.table().as_bytes())?;
    }
    Ok(())
}

fn read_controllers(file: &Path) -> Result<Vec<Controller>, PolicyCliError> {
    let problem = "lists no V-IPU controllers for a replay";
    controllers::parse(document(file)?).map_err(unusable(file, problem))
}

/// Returns the jobs of the file or of the seed, at the offered load.
fn read_jobs(args: &EvaluateArgs, controllers: &[Controller]) -> Result<Vec<Job>, PolicyCliError> {
    let (mut found, load) = match (&args.jobs, args.generate) {
        (Some(file), _) => {
            let found = jobs::parse(&text(file, JOBS_LIMIT)?);
            let found = found.map_err(unusable(file, "has no jobs that can be replayed"))?;
            (found, args.load)
        }
        (None, seed) => {
            let largest = controllers::largest_partition(controllers);
            let seed = seed.unwrap_or_default();
            let found = generate::jobs(seed, args.count, largest);
            (found, args.load.or(Some(GENERATED_LOAD)))
        }
    };
    if let Some(percent) = load {
        jobs::at_load(&mut found, controllers, percent);
    }
    Ok(found)
}

/// Replays the jobs with this policy. Returns the digest of its component, too.
fn replayed(
    name: &str,
    args: &EvaluateArgs,
    input: Input<'_>,
) -> Result<(Option<String>, Replay), PolicyCliError> {
    let queue = Settings {
        order: match args.order {
            OrderArg::Creation => Order::Creation,
            OrderArg::FairShare => Order::FairShare,
        },
        backfill_limit: Duration::from_secs(args.backfill_limit_seconds),
        exact_blocks: args.exact_blocks,
        block_choice: match args.block_choice {
            BlockChoiceArg::Smallest => BlockChoice::Smallest,
            BlockChoiceArg::Lowest => BlockChoice::Lowest,
        },
        ..Settings::default()
    };
    if name == BUILT_IN {
        let replay = replay(input.jobs, input.controllers, &queue, walk);
        return Ok((None, replay));
    }
    let file = Path::new(name);
    let (limits, budget) = (Limits::for_authoring(), Budget::Fuel(args.fuel));
    let guest = OfflineGuest::open(file, Some(Hook::Placement), limits, budget);
    let guest = guest.map_err(no_policy(file))?;
    let call = guest.caller(&args.settings).map_err(no_answer(file))?;
    let place = |_: u64, placement: PlacementRequest| {
        let answer = call(&PolicyRequest::Placement(placement.clone())).answer;
        let (decision, overruled) = placement_verdict(&placement, &answer);
        Decided {
            decision,
            overruled,
        }
    };
    let replay = replay(input.jobs, input.controllers, &queue, place);
    Ok((Some(guest.digest().to_string()), replay))
}

/// Decides as the built-in serial walk.
fn walk(_: u64, placement: PlacementRequest) -> Decided {
    let PlacementRequest {
        request,
        controllers,
        attempts,
    } = placement;
    Decided {
        decision: serial_walk(&request, &controllers, &attempts),
        overruled: None,
    }
}
