//! Measures jobs per second, compared with mpi-operator and with a loop that sends the same writes;
//! the result of a thousand jobs at once; the operator's usage with few and with many jobs; and the
//! time of a large job.

use bench::load::{self, Contender, LargeJob, Load, ManyJobs, Race, RaceOptions, Ratios, Sizes};
use clap::Parser;

/// Measure jobs under load, on a real API server with a fake node.
#[derive(Parser)]
struct Cli {
    /// Jobs of each contender in the race. 0: no race.
    #[arg(long, default_value_t = 300)]
    jobs: usize,
    /// Run only the race.
    #[arg(long)]
    race: bool,
    /// Rounds of the race. In each, every contender runs twice: first, second, second, first.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The contenders of the race, in their order. The bare loop comes after ipu-operator.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = ALL)]
    contenders: Vec<Contender>,
    /// Have etcd flush each write to disk during the race.
    #[arg(long)]
    fsync: bool,
    /// Jobs at once on 16 V-IPU controllers with free capacity for 256 of them. 0: none.
    #[arg(long, default_value_t = 1000)]
    many_jobs: usize,
    /// Numbers of jobs for which memory and CPU are measured.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1000])]
    sizes: Vec<usize>,
    /// Numbers of workers of the large jobs: multiples of 64 up to 256.
    #[arg(long, value_delimiter = ',', default_values_t = [64, 128, 256])]
    workers: Vec<usize>,
}

/// All contenders of the race.
const ALL: [Contender; 5] = [
    Contender::MpiOperator,
    Contender::MpiOperatorAfterWorkers,
    Contender::IpuOperator,
    Contender::IpuOperatorSharedRights,
    Contender::BareLoop,
];

/// The contenders that are compared with each other one.
const OURS: [Contender; 2] = [Contender::IpuOperator, Contender::IpuOperatorSharedRights];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    if cli.jobs > 0 {
        let options = RaceOptions {
            jobs: cli.jobs,
            rounds: cli.rounds,
            contenders: cli.contenders,
            fsync: cli.fsync,
        };
        print_race(&load::race(&options, print_load).await?, &options);
    }
    if cli.race {
        return Ok(());
    }
    if cli.many_jobs > 0 {
        report_many_jobs(&load::many_jobs(cli.many_jobs).await?);
    }
    for count in cli.sizes {
        print_sizes(&load::sizes(count).await?);
    }
    if !cli.workers.is_empty() {
        print_large(&load::large_jobs(&cli.workers).await?);
    }
    Ok(())
}

/// Prints the medians of all contenders, and how this operator compares with the others.
fn print_race(race: &Race, options: &RaceOptions) {
    for contender in &options.contenders {
        println!("{}:", name(*contender));
        for (what, figure) in FIGURES {
            if let Some(figures) = race.figures(*contender, figure) {
                println!("  {what}: {}", shown(figures));
            }
        }
    }
    for ours in OURS {
        for peer in options.contenders.iter().filter(|peer| **peer != ours) {
            print_ratios(race, ours, *peer);
        }
    }
}

fn print_ratios(race: &Race, ours: Contender, peer: Contender) {
    for (what, figure) in FIGURES {
        if let Some(ratios) = race.ratios(ours, peer, figure) {
            println!("{} / {}, {what}: {}", name(ours), name(peer), shown(ratios));
        }
    }
}

/// Reads a figure of a run.
type Figure = fn(&Load) -> f64;

/// The figures of the race. The first one is judged.
const FIGURES: [(&str, Figure); 3] = [
    (
        "CPU of kube-apiserver for each job, in ms",
        Load::api_server_ms,
    ),
    ("jobs/s", Load::rate),
    ("writes for each job", Load::writes_of_each),
];

fn shown(figures: Ratios) -> String {
    let Ratios {
        median,
        lowest,
        highest,
    } = figures;
    format!("{median:.2} ({lowest:.2} to {highest:.2})")
}

fn name(contender: Contender) -> &'static str {
    match contender {
        Contender::MpiOperator => "mpi-operator",
        Contender::MpiOperatorAfterWorkers => "mpi-operator, launchers after their workers",
        Contender::IpuOperator => "ipu-operator",
        Contender::IpuOperatorSharedRights => "ipu-operator with shared rights",
        Contender::BareLoop => "the bare loop",
    }
}

fn print_load(contender: Contender, load: &Load) {
    println!(
        "{}: {} jobs in {:.1} s, {:.1} jobs/s",
        name(contender),
        load.count,
        load.took.as_secs_f64(),
        load.rate()
    );
    println!(
        "  CPU of kube-apiserver: {:.1} ms for each job",
        load.api_server_ms()
    );
    for (what, count) in &load.writes {
        println!("  {what}: {:.2} for each job", load.of_each(*count));
    }
}

fn report_many_jobs(many_jobs: &ManyJobs) {
    println!(
        "{} jobs at once on {} V-IPU controllers: completed after {:.1} s, gone {:.1} s later; partitions of each: {:?}",
        many_jobs.jobs,
        many_jobs.made.len(),
        many_jobs.completed.as_secs_f64(),
        many_jobs.gone.as_secs_f64(),
        many_jobs.made
    );
}

fn print_sizes(sizes: &Sizes) {
    for (state, used) in [("live", sizes.live), ("finished", sizes.finished)] {
        println!(
            "{} jobs, {state}: {:.1} MiB resident, {:.1} MiB at most, {:.2} ms of CPU for each",
            sizes.jobs,
            used.resident_mib(),
            used.peak_mib(),
            sizes.cpu_ms_of_each(used)
        );
    }
}

fn print_large(jobs: &[LargeJob]) {
    for job in jobs {
        println!(
            "a job of {} workers: all worker Pods made after {:.2} s, Running after {:.2} s",
            job.workers,
            job.made.as_secs_f64(),
            job.running.as_secs_f64()
        );
    }
}
