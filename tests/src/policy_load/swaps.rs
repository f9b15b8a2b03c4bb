//! Swaps active sets under load: no call may fail, and no request may get answers of two sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ipu_admission::answer::Decision;
use ipu_admission::chain_run::ChainRun;
use ipu_api::ipupolicy::Hook;
use ipu_policies::active_policies::{ActivePolicies, HookChain};
use ipu_policies::bound_policy::BoundPolicy;

use super::{PolicyLoadError, creating, open, percentile, prepared, read, request, version};

/// Callers that send requests without a pause.
const CALLERS: usize = 4;

/// The results of the requests.
#[derive(Clone, Copy, Debug)]
pub struct Swaps {
    /// Number of replacements of the active set.
    pub swaps: u32,
    /// Number of requests meanwhile.
    pub answers: u64,
    /// Number of failed requests.
    pub failed: u64,
    /// Number of requests with answers of guests of two active sets.
    pub mixed: u64,
    /// From a swap to the end of the first request after it: the median.
    pub first_answer: Duration,
    /// The same: the 99th percentile.
    pub first_answer_p99: Duration,
}

#[derive(Default)]
struct Counts {
    answers: AtomicU64,
    failed: AtomicU64,
    mixed: AtomicU64,
}

/// Replaces an active set of two guests by two other guests, this number of times.
pub async fn swaps(swaps: u32) -> Result<Swaps, PolicyLoadError> {
    let (guests, folder) = open(Duration::from_secs(5)).await?;
    let module = read(&folder, "validation.wasm")?;
    let mut active_sets = Vec::new();
    for number in 0..2 {
        let mut stages = Vec::new();
        for name in ["first", "second"] {
            let bytes = version(&module, b'a' + number);
            stages.push(vec![
                prepared(&guests, Hook::Validation, name, bytes).await?,
            ]);
        }
        active_sets.push(stages);
    }
    put(&guests, &active_sets[0]);
    let (counts, done) = (
        Arc::new(Counts::default()),
        Arc::new(AtomicBool::new(false)),
    );
    let mut callers = Vec::new();
    for _ in 0..CALLERS {
        let (guests, counts, done) = (guests.clone(), counts.clone(), done.clone());
        callers.push(tokio::spawn(async move {
            while !done.load(Ordering::Relaxed) {
                ask(&guests, &counts).await?;
            }
            Ok::<_, PolicyLoadError>(())
        }));
    }
    let mut times = Vec::new();
    for number in 1..=swaps {
        let begun = Instant::now();
        put(&guests, &active_sets[number as usize % 2]);
        ask(&guests, &counts).await?;
        times.push(begun.elapsed());
    }
    done.store(true, Ordering::Relaxed);
    for caller in callers {
        let ended = caller.await;
        ended.map_err(|error| PolicyLoadError::Wrong(error.to_string()))??;
    }
    Ok(Swaps {
        swaps,
        answers: counts.answers.load(Ordering::Relaxed),
        failed: counts.failed.load(Ordering::Relaxed),
        mixed: counts.mixed.load(Ordering::Relaxed),
        first_answer: percentile(&mut times, 50),
        first_answer_p99: percentile(&mut times, 99),
    })
}

fn put(guests: &ActivePolicies, stages: &[Vec<BoundPolicy>]) {
    let chain = HookChain {
        stages: stages.to_vec(),
        shadows: Vec::new(),
    };
    guests.set_chain(Hook::Validation, chain);
}

async fn ask(guests: &ActivePolicies, counts: &Counts) -> Result<(), PolicyLoadError> {
    let request = request(0)?;
    let answer = ChainRun::new(guests, &request, creating())
        .run_validation()
        .await;
    counts.answers.fetch_add(1, Ordering::Relaxed);
    if answer.decision != Decision::Allowed || answer.called.len() != 2 {
        counts.failed.fetch_add(1, Ordering::Relaxed);
    }
    let mut digests = answer.called.iter().map(|(_, digest)| digest);
    let first = digests.next();
    if digests.any(|digest| Some(digest) != first) {
        counts.mixed.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
