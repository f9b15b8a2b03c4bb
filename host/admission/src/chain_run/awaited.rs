//! Refuses a request, for repetition, while a policy that matches it is not active yet
//! (`spec.untilActive`).

use std::sync::Arc;

use ipu_policies::active_policies::HookChain;
use ipu_policies::bound_policy::AwaitedPolicy;
use ipu_policies::match_evaluator::Purpose;
use tokio::time::timeout_at;

use super::ChainRun;
use crate::answer::Decision;

impl ChainRun<'_> {
    /// Returns the refusal of a request that waits for a policy of the chain. A policy whose
    /// `spec.match` cannot be evaluated matches, because the request would otherwise pass it
    /// unseen.
    pub(super) async fn awaited(&self, chain: &HookChain) -> Option<Decision> {
        if chain.awaited.is_empty() {
            return None;
        }
        let object = Arc::new(self.request.object.clone());
        for policy in &chain.awaited {
            let input = self.match_input(&object, policy.matcher.has_conditions());
            let subject = self.subject(&input);
            let evaluator = self.active.evaluator();
            let matching =
                evaluator.matches(&policy.matcher, &subject, Purpose::Review(self.caller));
            let matched = timeout_at(self.deadline, matching).await;
            if !matches!(matched, Ok(Ok(false))) {
                return Some(Decision::Waiting(message(policy)));
            }
        }
        None
    }
}

fn message(policy: &AwaitedPolicy) -> String {
    let AwaitedPolicy { name, reason, .. } = policy;
    format!(
        "the IPUPolicy {name} is not active yet, and its spec.untilActive is Wait: {reason}. The object is not the cause. \
         Try again in some seconds; if it is refused again, ask an admin to look at `kubectl get ipupolicy {name}`"
    )
}
