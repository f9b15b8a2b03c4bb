//! Measures jobs per second, compared with mpi-operator and with a loop that sends the same writes; the
//! result of a thousand jobs at once; the operator's usage with few and with many jobs; and the time of a
//! large job.

use bench::load::{self, LargeJob, LauncherCreation, Load, ManyJobs, Sizes};
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

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    if cli.jobs > 0 {
        race(cli.jobs).await?;
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

/// Measures all of them in one run, under the same conditions of the machine.
async fn race(jobs: usize) -> anyhow::Result<()> {
    let peer = load::mpi_operator(jobs, LauncherCreation::AtStartup).await?;
    print_load("mpi-operator", &peer);
    let waiting = load::mpi_operator(jobs, LauncherCreation::WaitForWorkersReady).await?;
    print_load("mpi-operator, launchers after their workers", &waiting);
    let (ours, objects) = load::ipu_operator(jobs).await?;
    print_load("ipu-operator", &ours);
    let (at_once, bare) = load::bare_loop(jobs, &objects, &ours).await?;
    print_load(&format!("the bare loop, {at_once} jobs at once"), &bare);
    println!(
        "ipu-operator / mpi-operator, launchers after their workers: {:.2}",
        ours.rate() / waiting.rate()
    );
    println!(
        "ipu-operator / mpi-operator: {:.2}",
        ours.rate() / peer.rate()
    );
    println!(
        "ipu-operator / the bare loop: {:.2}",
        ours.rate() / bare.rate()
    );
    Ok(())
}

fn print_load(who: &str, load: &Load) {
    println!(
        "{who}: {} jobs in {:.1} s, {:.1} jobs/s",
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
