//! Measures the policies: swaps under load, a guest that uses its whole deadline, memory, fuel,
//! compiling, and admission on an API server with a hundred clients.

use anyhow::ensure;
use clap::Parser;
use tests::load;
use tests::policy_load::{compiled, fuel, memory, neighbours, swaps};

/// Measure the policies under load.
#[derive(Parser)]
struct Cli {
    /// Number of swaps of the active set.
    #[arg(long, default_value_t = 10_000)]
    swaps: u32,
    /// Calls that are measured beside a guest that uses its whole deadline.
    #[arg(long, default_value_t = 4_000)]
    calls: usize,
    /// Jobs that a hundred clients create in dry runs. 0: no API server.
    #[arg(long, default_value_t = 5_000)]
    jobs: u64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let seen = memory(20).await?;
    println!(
        "memory: {} KiB for each of {} guests more; {} KiB before, {} with, {} once they have gone",
        seen.of_each(),
        seen.guests,
        seen.before,
        seen.with,
        seen.after
    );
    let seen = swaps(cli.swaps).await?;
    println!(
        "{} swaps, {} answers meanwhile: {} failed, {} mixed; from a swap to its first answer {:?}, p99 {:?}",
        seen.swaps, seen.answers, seen.failed, seen.mixed, seen.first_answer, seen.first_answer_p99
    );
    ensure!(
        (seen.failed, seen.mixed) == (0, 0),
        "no answer may fail or be mixed"
    );
    let seen = neighbours(cli.calls).await?;
    println!(
        "p99 of a call: {:?} alone, {:?} beside a guest that burnt {} deadlines: {:.2} times",
        seen.alone,
        seen.beside,
        seen.burnt,
        seen.beside.as_secs_f64() / seen.alone.as_secs_f64()
    );
    for seen in tokio::task::spawn_blocking(fuel).await?? {
        println!(
            "fuel of {}: {} at least, {} at the median, {} at most, of {} objects",
            seen.guest, seen.least, seen.median, seen.most, seen.calls
        );
    }
    for seen in tokio::task::spawn_blocking(compiled).await?? {
        println!(
            "{}: {} bytes compiled in {:?}",
            seen.language, seen.bytes, seen.took
        );
    }
    if cli.jobs > 0 {
        let rounds = ["200 a second", "as fast as they can"];
        for (how, seen) in rounds.iter().zip(load::admission(cli.jobs).await?) {
            for (kind, times) in &seen.webhooks {
                println!(
                    "{how}: {kind}: {:.2} ms at the mean, p99 within {} ms",
                    times.mean(),
                    times.p99()
                );
            }
            println!(
                "{how}: creating a job: {:.2} ms at the mean, p99 within {} ms; the webhooks' share {:.1} %",
                seen.creation.mean(),
                seen.creation.p99(),
                seen.share()
            );
        }
    }
    Ok(())
}
