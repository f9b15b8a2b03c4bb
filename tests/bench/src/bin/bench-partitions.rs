//! Measures the vipu-proxy: partitions per second, compared with a loop that sends the same writes
//! and calls; its decisions over many controllers and many waiting requests; its usage and the
//! duration of its sweep with many partitions; and its work beside thousands of waiting requests.

use std::time::Duration;

use bench::load::{self, Backlog, Decided, Load, Many, Period, Size, Waiting};
use clap::Parser;

/// Measure partitions under load, on a real API server with simulated V-IPU controllers.
#[derive(Parser)]
struct Cli {
    /// Partitions in the race with the bare loop. 0: no race.
    #[arg(long, default_value_t = 300)]
    partitions: usize,
    /// Numbers of controllers for which decisions are measured. 0: none.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 256])]
    controllers: Vec<usize>,
    /// Numbers of waiting requests for which decisions are measured.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 2_500, 5_000, 10_000])]
    waiting: Vec<usize>,
    /// Requests to `/query` over HTTP. 0: none.
    #[arg(long, default_value_t = 301)]
    queries: usize,
    /// Numbers of partitions for which memory and the sweep are measured. 0: none.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000])]
    sizes: Vec<usize>,
    /// Requests that wait on an API server, on 256 controllers. 0: none.
    #[arg(long, default_value_t = 10_000)]
    backlog: usize,
    /// Numbers of nodes for which this is measured.
    #[arg(long, value_delimiter = ',', default_values_t = [256, 1_000])]
    nodes: Vec<usize>,
    /// Seconds of each of its periods.
    #[arg(long, default_value_t = 120)]
    seconds: usize,
    /// Releases of IPUs beside the waiting requests.
    #[arg(long, default_value_t = 100)]
    releases: usize,
}

/// Controllers beside which requests wait.
const CONTROLLERS: usize = 256;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    if cli.partitions > 0 {
        race(cli.partitions).await?;
    }
    let mut decided = Vec::new();
    for count in cli.controllers.into_iter().filter(|count| *count > 0) {
        decided.push(load::decisions(count).await?);
    }
    print_decisions(&decided);
    for requests in cli.waiting {
        print_waiting(&load::waiting(requests, false));
        print_waiting(&load::waiting(requests, true));
    }
    if cli.queries > 0 {
        let mut took = load::queries(cli.queries).await?;
        took.sort_unstable();
        println!(
            "/query over HTTP with 16 controllers: {:.2} ms in the middle, {:.2} ms at most",
            milliseconds(took[took.len() / 2]),
            milliseconds(took[took.len() - 1])
        );
    }
    for count in cli.sizes.into_iter().filter(|count| *count > 0) {
        print_many(&load::many_partitions(count).await?);
    }
    for nodes in cli.nodes {
        let size = Size {
            controllers: CONTROLLERS,
            requests: cli.backlog,
            nodes,
            seconds: cli.seconds,
            releases: cli.releases,
        };
        if cli.backlog > 0 {
            print_backlog(&load::backlog(size).await?);
        }
    }
    Ok(())
}

/// Measures both in one run, under the same conditions of the machine.
async fn race(count: usize) -> anyhow::Result<()> {
    let ours = load::record_partitions(count).await?;
    print_load("vipu-proxy", &ours.load);
    for (what, calls) in [
        ("CreatePartition", ours.calls.creates),
        ("GetPartitionStatus", ours.calls.statuses),
        ("GetPartitionIpuofConfig", ours.calls.configs),
    ] {
        println!("  {what}: {:.2} for each", ours.load.of_each(calls));
    }
    let (at_once, bare) = load::bare_partitions(&ours).await?;
    print_load(&format!("the bare loop, {at_once} at once"), &bare);
    println!(
        "vipu-proxy / the bare loop: {:.2}",
        ours.load.rate() / bare.rate()
    );
    Ok(())
}

fn print_load(who: &str, load: &Load) {
    println!(
        "{who}: {} partitions in {:.1} s, {:.1} partitions/s",
        load.count,
        load.took.as_secs_f64(),
        load.rate()
    );
    for (what, count) in &load.writes {
        println!("  {what}: {:.2} for each", load.of_each(*count));
    }
}

fn print_decisions(decided: &[Decided]) {
    type Time = fn(&Decided) -> Duration;
    let kinds: [(&str, Time); 5] = [
        ("capacity, nobody waits before", |one| one.capacity),
        ("capacity, 1,000 wait before", |one| {
            one.capacity_behind_1000
        }),
        ("placement, native", |one| one.native),
        ("placement, guest", |one| one.guest),
        ("/query, once the inventories are known", |one| one.query),
    ];
    for (kind, time) in kinds {
        println!("{kind}:");
        for (index, one) in decided.iter().enumerate() {
            let now = milliseconds(time(one)) * 1000.0;
            print!("  {} controllers: {now:.1} µs", one.controllers);
            match index.checked_sub(1).and_then(|before| decided.get(before)) {
                Some(before) => println!(
                    ", {:.1} times that of {}",
                    time(one).as_secs_f64() / time(before).as_secs_f64(),
                    before.controllers
                ),
                None => println!(),
            }
        }
    }
}

fn print_waiting(waiting: &Waiting) {
    let nodes = if waiting.is_half_cordoned {
        ", half of whose nodes are cordoned"
    } else {
        ""
    };
    println!(
        "{} waiting requests on {} controllers{nodes}: {:.2} ms for one decision, {:.2} of them the queue (goal: at \
         most 0.2), {:.1} s for one on each",
        waiting.requests,
        waiting.controllers,
        milliseconds(waiting.decision),
        milliseconds(waiting.queue),
        waiting.round.as_secs_f64()
    );
}

fn print_many(many: &Many) {
    for (when, used) in [
        ("once the first is ready", many.one),
        ("once all are ready", many.ready),
        ("in the minutes after", many.idle),
        ("after a sweep", many.swept),
    ] {
        println!(
            "{} partitions, {when}: {:.1} MiB resident, {:.1} of them files, {:.1} MiB at most, {:.1} s of CPU",
            many.count,
            used.resident_mib(),
            used.of_files_mib(),
            used.peak_mib(),
            used.cpu.as_secs_f64()
        );
    }
    println!(
        "{} partitions, a sweep: {:.2} s",
        many.count,
        many.sweep.as_secs_f64()
    );
}

fn print_backlog(backlog: &Backlog) {
    let size = backlog.size;
    println!(
        "{} requests wait on {} controllers, {} nodes; all had their reason after {:.0} s",
        size.requests,
        size.controllers,
        size.nodes,
        backlog.settled.as_secs_f64()
    );
    print_period("one small partition a second, alone", &backlog.alone);
    print_period("the same beside the requests", &backlog.beside);
    let goals = [
        (
            "kB/s into etcd because of the requests",
            backlog.bytes_a_second() / 1000.0,
            50.0,
        ),
        (
            "% of a core for the leader",
            100.0 * backlog.beside.cpu,
            20.0,
        ),
        (
            "ms from a release to the next request of a partition there, p99",
            milliseconds(backlog.reaction(99)),
            250.0,
        ),
        (
            "refused calls a minute to one controller, which has free IPUs for two sizes",
            backlog.refused_a_minute,
            2.0,
        ),
        ("MiB resident at most", backlog.after.peak_mib(), 128.0),
    ];
    for (what, seen, goal) in goals {
        let verdict = if seen <= goal { "met" } else { "missed" };
        println!("  {seen:.1} {what} (goal: at most {goal}, {verdict})");
    }
    println!(
        "  {} releases, p50: {:.0} ms; {:.1} MiB resident before the requests, {:.1} at the end",
        backlog.reactions.len(),
        milliseconds(backlog.reaction(50)),
        backlog.before.resident_mib(),
        backlog.after.resident_mib()
    );
}

fn print_period(what: &str, period: &Period) {
    let mut ready = period.ready.clone();
    ready.sort_unstable();
    println!(
        "  {what}: {:.1} kB/s into etcd, {:.1} % of a core, ready after {:.0} ms in the middle, {:.0} ms at most",
        period.bytes_a_second / 1000.0,
        100.0 * period.cpu,
        milliseconds(ready[ready.len() / 2]),
        milliseconds(ready[ready.len() - 1])
    );
    for (kind, count) in &period.writes {
        println!("    {kind}: {count}");
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
