//! Compares the answers of shadow policies with the enforced ones in the background, for all hooks.

use std::future::Future;

use ipu_runtime::panics::caught;

use super::active_policies::{ActivePolicies, BoundShadow};
use super::bound_policy::BoundPolicy;
use super::call_stats::Comparison;
use super::match_evaluator::Purpose;
use super::matcher::MatchSubject;

impl BoundShadow {
    /// Whether the label selectors of the policy select a request. If they cannot be evaluated,
    /// that is the result of the comparison.
    pub fn selects(&self, subject: &MatchSubject<'_>) -> bool {
        self.policy
            .matcher
            .selects(subject)
            .unwrap_or_else(|error| {
                let comparison = Comparison::without_match(&error);
                self.policy.stats.record_comparison(comparison);
                false
            })
    }
}

impl ActivePolicies {
    /// Starts the comparison for a request that the label selectors of the policy select. If the
    /// match conditions hold too, `compare` calls the guest and compares its answer. `subject` is
    /// what the conditions see of the request, which `request` copies only if a permit is free:
    /// most comparisons of a busy process are skipped.
    pub fn compare_in_background<R, C>(
        &self,
        shadow: &BoundShadow,
        purpose: Purpose,
        request: impl FnOnce() -> R,
        subject: fn(&R) -> MatchSubject<'_>,
        compare: impl FnOnce(ActivePolicies, BoundPolicy, R) -> C + Send + 'static,
    ) where
        R: Send + Sync + 'static,
        C: Future<Output = Comparison> + Send + 'static,
    {
        let policy = shadow.policy.clone();
        let Ok(permit) = self.comparison_permits().clone().try_acquire_owned() else {
            policy.stats.record_comparison(Comparison::Skipped);
            return;
        };
        let (policies, evaluator) = (self.clone(), self.evaluator().clone());
        let request = request();
        tokio::spawn(caught(async move {
            let seen = subject(&request);
            let matched = evaluator.matches(&policy.matcher, &seen, purpose).await;
            let stats = policy.stats.clone();
            match matched {
                Ok(true) => stats.record_comparison(compare(policies, policy, request).await),
                Ok(false) => {}
                Err(error) => stats.record_comparison(Comparison::without_match(&error)),
            }
            drop(permit);
        }));
    }
}
