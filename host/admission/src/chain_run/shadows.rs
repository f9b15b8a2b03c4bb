//! Compares the answers of shadow policies with the enforced ones, in the background.

use std::sync::Arc;

use ipu_guest_host::model::Verdict;
use ipu_policies::active_policies::{BoundShadow, HookChain, is_sampled};
use ipu_policies::call_stats::Comparison;
use ipu_policies::comparison;
use ipu_policies::match_evaluator::Purpose;
use ipu_policies::match_input::MatchInput;
use ipu_policies::matcher::MatchSubject;
use ipu_runtime::panics::{caught, caught_now};
use serde_json::Value;
use tokio::task::spawn_blocking;

use super::{ChainRun, default_object};

/// Result of one stage.
pub(super) struct StageResult {
    /// The object before the stage.
    pub(super) before: Arc<Value>,
    /// The answer of the stage. `None` if no policy matched or answered.
    pub(super) after: Option<Outcome>,
}

#[derive(Clone)]
pub(super) enum Outcome {
    Object(Arc<Value>),
    Verdict(Verdict),
    Refused,
}

impl ChainRun<'_> {
    /// Starts the comparisons in the background. An untrusted request is not compared.
    pub(super) fn compare(&self, chain: &HookChain, results: &[StageResult]) {
        if !self.is_trusted {
            return;
        }
        for shadow in &chain.shadows {
            if !is_sampled(shadow.share_percent, &self.request.uid) {
                continue;
            }
            let Some((before, enforced)) = baseline(shadow, results) else {
                continue;
            };
            let input = self.match_input(&before, std::slice::from_ref(&shadow.policy));
            match shadow.policy.matcher.selects(&self.subject(&input)) {
                Ok(true) => self.compare_one(shadow, input, before, enforced),
                Ok(false) => {}
                Err(_) => shadow.policy.stats.record_comparison(Comparison::Failed),
            }
        }
    }

    fn compare_one(
        &self,
        shadow: &BoundShadow,
        input: MatchInput,
        before: Arc<Value>,
        enforced: Outcome,
    ) {
        let policy = shadow.policy.clone();
        let Ok(permit) = self.active.comparison_permits().clone().try_acquire_owned() else {
            policy.stats.record_comparison(Comparison::Skipped);
            return;
        };
        let (active, request) = (self.active.clone(), self.request.clone());
        let admission = self.admission.clone();
        tokio::spawn(caught(async move {
            let subject = MatchSubject {
                namespace_labels: admission.context.labels.as_ref(),
                input: &input,
            };
            match active
                .evaluator()
                .matches(&policy.matcher, &subject, Purpose::Review(None))
                .await
            {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => return policy.stats.record_comparison(Comparison::Failed),
            }
            let compared = if let Outcome::Verdict(verdict) = enforced {
                let old = request.old_object.as_ref();
                let host = active.host();
                let answer = host.validate(&policy.guest, &admission, &before, old).await;
                answer.map_or(Comparison::Failed, |shadow| {
                    comparison::verdicts(&verdict, &shadow.answer)
                })
            } else {
                let answer =
                    default_object(active.host(), &policy, &request, &admission, &before).await;
                let answer = answer.ok().map(|served| served.answer.defaulted());
                let shadow = answer.map(|answer| answer.map(|defaulted| defaulted.object));
                let enforced = match enforced {
                    Outcome::Object(object) => Some(object),
                    Outcome::Verdict(_) | Outcome::Refused => None,
                };
                compare_objects(enforced, shadow).await
            };
            policy.stats.record_comparison(compared);
            drop(permit);
        }));
    }
}

/// Compares two objects off the async threads. `shadow` is `None` if the shadow policy failed.
async fn compare_objects(
    enforced: Option<Arc<Value>>,
    shadow: Option<Option<Value>>,
) -> Comparison {
    let Some(shadow) = shadow else {
        return Comparison::Failed;
    };
    let compare =
        move || caught_now(|| comparison::defaulted(enforced.as_deref(), shadow.as_ref()));
    let compared = spawn_blocking(compare).await.ok().and_then(Result::ok);
    compared.unwrap_or(Comparison::Failed)
}

/// Returns the object for a shadow policy, and the enforced answer for the comparison. `None` if no policy answered in the
/// stage that it would take.
fn baseline(shadow: &BoundShadow, results: &[StageResult]) -> Option<(Arc<Value>, Outcome)> {
    match shadow.stage {
        Ok(stage) => {
            let result = results.get(stage)?;
            Some((result.before.clone(), result.after.clone()?))
        }
        // In a stage of its own, it is compared with the unchanged object.
        Err(index) => {
            let before = results.get(index)?.before.clone();
            let is_validation = results
                .iter()
                .any(|result| matches!(result.after, Some(Outcome::Verdict(_))));
            let enforced = if is_validation {
                Outcome::Verdict(Verdict::default())
            } else {
                Outcome::Object(before.clone())
            };
            Some((before, enforced))
        }
    }
}
