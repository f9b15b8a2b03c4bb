//! Measures calls of other guests while one guest uses its whole deadline on every call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ipu_admission::chain_run::ChainRun;
use ipu_api::ipupolicy::{Hook, OnError};
use ipu_policies::active_policies::{ActivePolicies, HookChain};
use ipu_policies::bound_policy::BoundPolicy;

use super::{PolicyLoadError, creating, open, percentile, prepared, request};
use crate::guests::hostile;

/// Deadline of a call.
const DEADLINE: Duration = Duration::from_millis(250);

/// A note that makes the guest use its whole deadline.
const LARGE: usize = 5_000;

/// The duration of the other guests' calls.
#[derive(Clone, Copy, Debug)]
pub struct Neighbours {
    /// The 99th percentile without load.
    pub alone: Duration,
    /// The 99th percentile while another guest uses its whole deadline on every call.
    pub beside: Duration,
    /// The number of calls that used their whole deadline meanwhile.
    pub burnt: u64,
}

/// Measures this number of calls of the built-in defaulting guest, alone and beside a validation
/// guest that never ends. It alternates between both, so that other work of the machine affects
/// both.
pub async fn neighbours(calls: usize) -> Result<Neighbours, PolicyLoadError> {
    let (guests, _) = open(DEADLINE).await?;
    let endless = hostile::validation("(loop (br 0))");
    let endless = BoundPolicy {
        on_error: OnError::Ignore,
        ..prepared(&guests, Hook::Validation, "endless", endless).await?
    };
    let chain = HookChain {
        stages: vec![vec![endless]],
        shadows: Vec::new(),
    };
    guests.set_chain(Hook::Validation, chain);
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    let burnt = Arc::new(AtomicU64::new(0));
    let rounds = 20;
    for _ in 0..rounds {
        measure(&guests, calls / rounds, &mut alone).await?;
        let done = Arc::new(AtomicBool::new(false));
        let burning = tokio::spawn(burn(guests.clone(), done.clone(), burnt.clone()));
        measure(&guests, calls / rounds, &mut beside).await?;
        done.store(true, Ordering::Relaxed);
        let ended = burning.await;
        ended.map_err(|error| PolicyLoadError::Wrong(error.to_string()))??;
    }
    Ok(Neighbours {
        alone: percentile(&mut alone, 99),
        beside: percentile(&mut beside, 99),
        burnt: burnt.load(Ordering::Relaxed),
    })
}

async fn burn(
    guests: ActivePolicies,
    done: Arc<AtomicBool>,
    burnt: Arc<AtomicU64>,
) -> Result<(), PolicyLoadError> {
    let request = request(LARGE)?;
    while !done.load(Ordering::Relaxed) {
        let chain = ChainRun::new(&guests, &request, creating());
        let answer = chain.run_validation().await;
        if answer.ignored.len() != 1 {
            return Err(PolicyLoadError::Wrong(format!("it ended: {answer:?}")));
        }
        burnt.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

async fn measure(
    guests: &ActivePolicies,
    calls: usize,
    times: &mut Vec<Duration>,
) -> Result<(), PolicyLoadError> {
    let request = request(0)?;
    for _ in 0..calls {
        let begun = Instant::now();
        let answer = ChainRun::new(guests, &request, creating())
            .run_defaulting()
            .await;
        times.push(begun.elapsed());
        if answer.called.len() != 1 {
            return Err(PolicyLoadError::Wrong(format!("no answer: {answer:?}")));
        }
    }
    Ok(())
}
