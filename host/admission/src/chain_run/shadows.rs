//! Compares the answers of shadow policies with the enforced ones, in the background.

use std::sync::Arc;

use ipu_api::guest::admission::{Admission, Verdict};
use ipu_policies::active_policies::{ActivePolicies, BoundShadow, HookChain, is_sampled};
use ipu_policies::bound_policy::BoundPolicy;
use ipu_policies::call_stats::Comparison;
use ipu_policies::comparison;
use ipu_policies::match_evaluator::Purpose;
use ipu_policies::match_input::MatchInput;
use ipu_policies::matcher::MatchSubject;
use ipu_runtime::panics::caught_now;
use serde_json::Value;
use tokio::task::spawn_blocking;

use super::{ChainRun, default_object, validate_object};
use crate::request::AdmissionRequest;

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
            if shadow.selects(&self.subject(&input)) {
                let answered = || AnsweredRequest {
                    request: self.request.clone(),
                    admission: self.admission.clone(),
                    input,
                    before,
                    enforced,
                };
                let purpose = Purpose::Review(None);
                self.active.compare_in_background(
                    shadow,
                    purpose,
                    answered,
                    AnsweredRequest::subject,
                    AnsweredRequest::compare,
                );
            }
        }
    }
}

/// A request with the enforced answer of a stage, for the comparison with a shadow policy.
struct AnsweredRequest {
    request: AdmissionRequest,
    admission: Admission,
    input: MatchInput,
    /// The object before the stage.
    before: Arc<Value>,
    enforced: Outcome,
}

impl AnsweredRequest {
    fn subject(&self) -> MatchSubject<'_> {
        MatchSubject {
            namespace_labels: self.admission.context.labels.as_ref(),
            old_object: self.request.old_object.as_ref(),
            input: &self.input,
        }
    }

    /// Calls the guest of the shadow policy, and compares its answer with the enforced one.
    async fn compare(active: ActivePolicies, policy: BoundPolicy, answered: Self) -> Comparison {
        let Self {
            request,
            admission,
            before,
            enforced,
            ..
        } = answered;
        let host = active.host();
        let enforced = match enforced {
            Outcome::Verdict(verdict) => {
                let answer = validate_object(host, &policy, &request, &admission, &before).await;
                return answer.map_or_else(
                    |error| Comparison::without_answer(&error),
                    |shadow| comparison::verdicts(&verdict, &shadow.answer),
                );
            }
            Outcome::Object(object) => Some(object),
            Outcome::Refused => None,
        };
        match default_object(host, &policy, &request, &admission, &before).await {
            Ok(served) => {
                let shadow = served.answer.defaulted();
                compare_objects(enforced, shadow.map(|defaulted| defaulted.object)).await
            }
            Err(error) => Comparison::without_answer(&error),
        }
    }
}

/// Compares two objects off the async threads. `None`: the guest refused the object.
async fn compare_objects(enforced: Option<Arc<Value>>, shadow: Option<Value>) -> Comparison {
    let compare =
        move || caught_now(|| comparison::defaulted(enforced.as_deref(), shadow.as_ref()));
    let compared = spawn_blocking(compare).await.ok().and_then(Result::ok);
    compared.unwrap_or(Comparison::Failed)
}

/// Returns the object for a shadow policy, and the enforced answer for the comparison. `None` if no
/// policy answered in the stage that it would take.
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
