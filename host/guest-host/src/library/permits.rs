//! Which calls of guests may run at once. Built-in guests have permits that no policy takes, and a policy
//! has few of those for policies: one that is slow makes its own callers wait, and nobody else's. Those who wait have
//! their turns by address.

use std::time::{Duration, Instant};

use ipu_runtime::fair_semaphore::{Asker, FairPermit, FairSemaphore};
use tokio::time::timeout;

use crate::limits::Limits;

/// Calls that only ask what would be decided (`/query` takes anybody's questions), at once: whatever they
/// do, a built-in guest and each policy have a permit left for decisions.
const QUESTIONS: usize = 1;

/// The permits of all guests of a process.
pub(super) struct Permits {
    built_in: FairSemaphore,
    policies: FairSemaphore,
    questions: FairSemaphore,
    patience: Duration,
}

/// Permission to make one call, until this is dropped.
pub(super) struct Permit {
    _permits: [Option<FairPermit>; 3],
}

/// Who is to be called, and what for.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// The permits of the policy; none for a built-in guest.
    pub(super) policy: Option<&'a FairSemaphore>,
    /// On whose behalf.
    pub(super) asker: Asker,
    /// Whether nothing comes of the answer.
    pub(super) dry_run: bool,
}

impl Permits {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            built_in: FairSemaphore::new(limits.built_in()),
            policies: FairSemaphore::new(limits.concurrent - limits.built_in()),
            questions: FairSemaphore::new(QUESTIONS),
            patience: limits.queue,
        }
    }

    /// Waits for a permit. None where there was none for too long. Also tells how long it waited.
    pub(super) async fn acquire(&self, wanted: Wanted<'_>) -> (Option<Permit>, Duration) {
        let began = Instant::now();
        let permit = timeout(self.patience, self.all(wanted)).await.ok();
        (permit, began.elapsed())
    }

    /// The scarcest first: who waits for one of those holds none that others wait for.
    async fn all(&self, wanted: Wanted<'_>) -> Permit {
        let questions = wanted.dry_run.then_some(&self.questions);
        let shared = match wanted.policy {
            Some(_) => &self.policies,
            None => &self.built_in,
        };
        let mut permits = [None, None, None];
        let semaphores = [questions, wanted.policy, Some(shared)];
        for (permit, semaphore) in permits.iter_mut().zip(semaphores) {
            if let Some(semaphore) = semaphore {
                *permit = Some(semaphore.acquire(wanted.asker).await);
            }
        }
        Permit { _permits: permits }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// Permits that nobody waits for: either there is one, or there is none.
    fn permits() -> Permits {
        Permits::new(&Limits::default())
    }

    fn take(permits: &Permits, policy: Option<&FairSemaphore>, dry_run: bool) -> Option<Permit> {
        let wanted = Wanted {
            policy,
            asker: None,
            dry_run,
        };
        permits.all(wanted).now_or_never()
    }

    fn policy() -> FairSemaphore {
        FairSemaphore::new(Limits::default().each_policy)
    }

    #[test]
    fn a_policy_takes_neither_the_permits_of_others_nor_those_of_built_in_guests() {
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
    fn all_policies_together_leave_the_reserve_and_no_more_calls_run_than_may() {
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
    async fn the_calls_of_one_address_wait_behind_one_another_and_not_the_one_of_another_address() {
        let (permits, slow) = (permits(), FairSemaphore::new(1));
        let wanted = |last: u8| Wanted {
            policy: Some(&slow),
            asker: Some([10, 0, 0, last].into()),
            dry_run: false,
        };
        let held = permits.all(wanted(1)).await;
        let mut flood: Vec<_> = (0..16).map(|_| Box::pin(permits.all(wanted(1)))).collect();
        let mut other = Box::pin(permits.all(wanted(2)));
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
    fn questions_leave_a_permit_for_decisions() {
        for asked in [None, Some(policy())] {
            let (permits, asked) = (permits(), asked.as_ref());
            let held = take(&permits, asked, true);
            assert!(held.is_some());
            assert!(take(&permits, asked, true).is_none());
            assert!(take(&permits, asked, false).is_some());
        }
    }
}
