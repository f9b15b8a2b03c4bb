//! Compares the answers of shadow policies with the enforced ones, in the background.

use std::sync::Arc;

use ipu_api::guest::admission::Verdict;
use ipu_policies::active_policies::{BoundShadow, HookChain, is_sampled};
use ipu_policies::call_stats::Comparison;
use ipu_policies::comparison;
use ipu_policies::match_evaluator::Purpose;
use ipu_policies::match_input::MatchInput;
use ipu_policies::matcher::MatchSubject;
use ipu_runtime::panics::{caught, caught_now};
use serde_json::Value;
use tokio::task::spawn_blocking;

use super::{ChainRun, default_object, validate_object};

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
    /// Starts the comparisons in the background. Only a request that counts is compared.
    pub(super) fn compare(&self, chain: &HookChain, results: &[StageResult]) {
        if self.counts_for().is_none() {
            return;
        }
        for shadow in &chain.shadows {
            if !is_sampled(shadow.share_percent, &self.request.uid) {
                continue;
            }
            let Some((before, enforced)) = baseline(shadow, results) else {
                continue;
            };
            let has_conditions = shadow.policy.matcher.has_conditions();
            let input = self.match_input(&before, has_conditions);
            match shadow.policy.matcher.selects(&self.subject(&input)) {
                Ok(true) => self.compare_one(shadow, input, before, enforced),
                Ok(false) => {}
                Err(error) => {
                    let comparison = Comparison::without_match(&error);
                    shadow.policy.stats.record_comparison(comparison);
                }
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
                old_object: request.old_object.as_ref(),
                input: &input,
            };
            match active
                .evaluator()
                .matches(&policy.matcher, &subject, Purpose::Review(None))
                .await
            {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    let comparison = Comparison::without_match(&error);
                    return policy.stats.record_comparison(comparison);
                }
            }
            let compared = if let Outcome::Verdict(verdict) = enforced {
                let answer =
                    validate_object(active.host(), &policy, &request, &admission, &before).await;
                answer.map_or_else(
                    |error| Comparison::without_answer(&error),
                    |shadow| comparison::verdicts(&verdict, &shadow.answer),
                )
            } else {
                let answer =
                    default_object(active.host(), &policy, &request, &admission, &before).await;
                let enforced = match enforced {
                    Outcome::Object(object) => Some(object),
                    Outcome::Verdict(_) | Outcome::Refused => None,
                };
                match answer {
                    Ok(served) => {
                        let shadow = served.answer.defaulted();
                        compare_objects(enforced, shadow.map(|defaulted| defaulted.object)).await
                    }
                    Err(error) => Comparison::without_answer(&error),
                }
            };
            policy.stats.record_comparison(compared);
            drop(permit);
        }));
    }
}

/// Compares two objects off the async threads. `None`: the guest refused the object.
async fn compare_objects(enforced: Option<Arc<Value>>, shadow: Option<Value>) -> Comparison {
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
