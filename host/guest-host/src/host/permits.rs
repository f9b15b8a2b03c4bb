//! The permits of guest calls. Built-in guests have reserved permits, and each policy has few: a
//! slow policy delays only its own callers. Waiting addresses share the permits fairly.

use std::time::{Duration, Instant};

use ipu_runtime::fair_semaphore::{Asker, FairPermit, FairSemaphore};
use tokio::time::timeout;

use crate::limits::Limits;

/// Most concurrent dry runs, which anyone can request at `/query`. The built-in guest and each
/// policy keep a permit for decisions.
const CONCURRENT_DRY_RUNS: usize = 1;

/// The permits of all guests of a process.
pub(super) struct Permits {
    built_in: FairSemaphore,
    policies: FairSemaphore,
    dry_runs: FairSemaphore,
    timeout: Duration,
}

/// Permission for one call; it ends on drop.
pub(super) struct Permit {
    _permits: [Option<FairPermit>; 3],
}

/// The kind of a call.
#[derive(Clone, Copy)]
pub(super) struct CallKind<'a> {
    /// The permits of the policy. `None` for a built-in guest.
    pub(super) policy: Option<&'a FairSemaphore>,
    /// The address of the caller.
    pub(super) caller: Asker,
    /// Whether the answer has no effect.
    pub(super) dry_run: bool,
}

impl Permits {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            built_in: FairSemaphore::new(limits.built_in()),
            policies: FairSemaphore::new(limits.concurrent - limits.built_in()),
            dry_runs: FairSemaphore::new(CONCURRENT_DRY_RUNS),
            timeout: limits.queue,
        }
    }

    /// Waits for a permit up to a timeout. Also returns the wait time.
    pub(super) async fn acquire(&self, kind: CallKind<'_>) -> (Option<Permit>, Duration) {
        let began = Instant::now();
        let permit = timeout(self.timeout, self.all(kind)).await.ok();
        (permit, began.elapsed())
    }

    /// Acquires the scarcest permit first, so that a waiting call holds no permit that others need.
    async fn all(&self, kind: CallKind<'_>) -> Permit {
        let dry_runs = kind.dry_run.then_some(&self.dry_runs);
        let shared = match kind.policy {
            Some(_) => &self.policies,
            None => &self.built_in,
        };
        let mut permits = [None, None, None];
        let semaphores = [dry_runs, kind.policy, Some(shared)];
        for (permit, semaphore) in permits.iter_mut().zip(semaphores) {
            if let Some(semaphore) = semaphore {
                *permit = Some(semaphore.acquire(kind.caller).await);
            }
        }
        Permit { _permits: permits }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use futures::FutureExt;

    use super::*;

    /// Permits without waiting calls.
    fn permits() -> Permits {
        Permits::new(&Limits::default())
    }

    fn take(permits: &Permits, policy: Option<&FairSemaphore>, dry_run: bool) -> Option<Permit> {
        let kind = CallKind {
            policy,
            caller: None,
            dry_run,
        };
        permits.all(kind).now_or_never()
    }

    fn policy() -> FairSemaphore {
        FairSemaphore::new(Limits::default().each_policy)
    }

    #[test]
    fn a_policy_leaves_the_permits_of_other_policies_and_of_built_in_guests() {
        let (permits, slow, other) = (permits(), policy(), policy());
        let mut held = Vec::new();
        while let Some(permit) = take(&permits, Some(&slow), false) {
            held.push(permit);
        }
        assert_eq!(held.len(), Limits::default().each_policy);
        assert!(take(&permits, Some(&other), false).is_some());
        assert!(take(&permits, None, false).is_some());
    }

    #[test]
    fn all_policies_together_leave_the_reserved_permits() {
        let permits = permits();
        let policies: Vec<_> = (0..100).map(|_| policy()).collect();
        let held = policies
            .iter()
            .filter_map(|one| take(&permits, Some(one), false));
        let mut held: Vec<_> = held.collect();
        while let Some(permit) = take(&permits, None, false) {
            held.push(permit);
        }
        assert_eq!(held.len(), Limits::default().concurrent);
    }

    #[tokio::test]
    async fn the_calls_of_one_address_do_not_delay_another_address() {
        let (permits, slow) = (permits(), FairSemaphore::new(1));
        let kind = |last: u8| CallKind {
            policy: Some(&slow),
            caller: Some(IpAddr::from([10, 0, 0, last]).into()),
            dry_run: false,
        };
        let held = permits.all(kind(1)).await;
        let mut flood: Vec<_> = (0..16).map(|_| Box::pin(permits.all(kind(1)))).collect();
        let mut other = Box::pin(permits.all(kind(2)));
        for waiting in flood.iter_mut().chain([&mut other]) {
            assert!(waiting.now_or_never().is_none());
        }
        drop(held);
        let first = flood[0].as_mut().now_or_never();
        assert!(first.is_some() && other.as_mut().now_or_never().is_none());
        drop(first);
        assert!(other.now_or_never().is_some());
    }

    #[test]
    fn dry_runs_leave_a_permit_for_decisions() {
        for policy in [None, Some(policy())] {
            let (permits, policy) = (permits(), policy.as_ref());
            let held = take(&permits, policy, true);
            assert!(held.is_some());
            assert!(take(&permits, policy, true).is_none());
            assert!(take(&permits, policy, false).is_some());
        }
    }
}
