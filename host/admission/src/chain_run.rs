//! Runs the chain of a webhook for one request: calls its policies in order, merges their answers.

mod awaited;
mod shadows;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ipu_api::guest::admission::{Admission, Defaulted, Defaulting, Verdict};
use ipu_api::ipupolicy::{BUILT_IN, Hook, OnError};
use ipu_guest_host::metrics::SkipReason;
use ipu_guest_host::model::Served;
use ipu_guest_host::{GuestError, GuestHost};
use ipu_policies::active_policies::{ActivePolicies, HookChain};
use ipu_policies::bound_policy::BoundPolicy;
use ipu_policies::call_stats::Requester;
use ipu_policies::match_evaluator::Purpose;
use ipu_policies::match_input::{MatchInput, namespace_object, review_attributes};
use ipu_policies::matcher::MatchSubject;
use ipu_runtime::fair_semaphore::Asker;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use self::shadows::{Outcome, StageResult};
use super::answer::{Answer, Decision};
use super::request::AdmissionRequest;
use super::shared_partition::{SizeTrial, with_size};
use super::{existing, failure, mutate, validate};

/// Timeout of all policies of one request together. The API server waits for ten seconds, and an
/// answer that names the late policy is better than none.
pub(super) const TIMEOUT: Duration = Duration::from_secs(8);

/// The run of a chain for one request.
pub struct ChainRun<'a> {
    active: &'a ActivePolicies,
    host: GuestHost,
    caller: Asker,
    request: &'a AdmissionRequest,
    admission: Admission,
    request_attributes: Arc<Value>,
    namespace_object: Option<Arc<Value>>,
    /// A copy of the previous object, once a condition needs it.
    old_object: OnceLock<Option<Arc<Value>>>,
    deadline: Instant,
    timeout: Duration,
    /// Whether the API server sent the request, so that it can count for rollbacks and promotions.
    is_trusted: bool,
    /// Whether Kueue decides when a job with a queue starts.
    is_kueue_served: bool,
}

impl<'a> ChainRun<'a> {
    /// Starts the run and its timeout. `admission` is what the guests see beside the object.
    pub fn new(
        active: &'a ActivePolicies,
        request: &'a AdmissionRequest,
        admission: Admission,
    ) -> Self {
        let reviewed = request.reviewed.in_conditions();
        let attributes = review_attributes(&request.uid, &request.name, reviewed, &admission);
        let labels = admission.context.labels.as_ref();
        Self {
            active,
            host: active.host().clone(),
            caller: None,
            request,
            request_attributes: Arc::new(attributes),
            namespace_object: namespace_object(&request.namespace, labels),
            old_object: OnceLock::new(),
            admission,
            deadline: Instant::now() + TIMEOUT,
            timeout: TIMEOUT,
            is_trusted: true,
            is_kueue_served: false,
        }
    }

    /// Sets the address of the caller. Addresses share all limits fairly.
    #[must_use]
    pub fn for_caller(self, caller: Asker) -> Self {
        Self {
            host: self.host.for_caller(caller),
            caller,
            ..self
        }
    }

    /// Sets whether the API server sent it, so that it can count for rollbacks and promotions.
    #[must_use]
    pub fn trusted(self, is_trusted: bool) -> Self {
        Self { is_trusted, ..self }
    }

    /// Sets whether Kueue is installed. A new job with a queue is then suspended.
    #[must_use]
    pub fn with_kueue(self, is_kueue_served: bool) -> Self {
        Self {
            is_kueue_served,
            ..self
        }
    }

    /// Sets the timeout, from now on.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self {
            deadline: Instant::now() + timeout,
            timeout,
            ..self
        }
    }

    /// Returns the answer of the mutating webhook.
    pub async fn run_defaulting(&self) -> Answer {
        let chain = self.active.chain(Hook::Defaulting);
        let mut answer = Answer::allowed();
        let mut object = Arc::new(self.request.object.clone());
        let mut results = Vec::new();
        for stage in &chain.stages {
            let before = object.clone();
            let called = self.call_stage(
                stage,
                &before,
                &mut answer,
                Hook::Defaulting,
                async |policy| {
                    default_object(&self.host, policy, self.request, &self.admission, &before).await
                },
            );
            let (after, end) = match called.await {
                Ok(None) => (None, None),
                Ok(Some(Defaulting::Defaulted(Defaulted {
                    object: next,
                    warnings,
                }))) => {
                    answer.warnings.extend(warnings);
                    object = Arc::new(next);
                    (Some(Outcome::Object(object.clone())), None)
                }
                Ok(Some(Defaulting::Refused { violations })) => {
                    (Some(Outcome::Refused), Some(Decision::Refused(violations)))
                }
                Err(failed) => (None, Some(failed)),
            };
            results.push(StageResult { before, after });
            if let Some(decision) = end {
                answer.decision = decision;
                self.compare(&chain, &results);
                return answer;
            }
        }
        let defaulted = mutate::decision(&self.request.object, &object);
        answer.decision =
            mutate::new_job::completed(self.request, &object, defaulted, self.is_kueue_served);
        results.push(StageResult {
            before: object,
            after: None,
        });
        self.compare(&chain, &results);
        answer
    }

    /// Returns the answer of the validating webhook: the new violations of all policies.
    pub async fn run_validation(&self) -> Answer {
        let chain = self.active.chain(Hook::Validation);
        let (mut answer, mut verdict, failed) = self.verdict(&chain).await;
        if !verdict.violations.is_empty()
            && let Some(unchanged) = existing::unchanged(self.request)
        {
            let (_, earlier, _) = self.about(&unchanged).verdict(&chain).await;
            let violations = &mut verdict.violations;
            let older = existing::forgive(violations, &earlier.violations, self.request);
            verdict.warnings.extend(older.iter().map(existing::warning));
        }
        (answer.decision, answer.warnings) = validate::decision(verdict);
        // Violations come before policies that are not active yet, and these before failed guests.
        if answer.decision == Decision::Allowed
            && let Some(refusal) = self.awaited(&chain).await.or(failed)
        {
            answer.decision = refusal;
        }
        answer
    }

    /// The same run about another object, until the same deadline. It counts for nothing.
    fn about<'b>(&'b self, request: &'b AdmissionRequest) -> ChainRun<'b> {
        ChainRun {
            host: self.host.clone(),
            admission: self.admission.clone(),
            request_attributes: self.request_attributes.clone(),
            namespace_object: self.namespace_object.clone(),
            old_object: OnceLock::new(),
            request,
            is_trusted: false,
            ..*self
        }
    }

    /// Asks all validation policies. A guest that gives no answer is the third part.
    async fn verdict(&self, chain: &HookChain) -> (Answer, Verdict, Option<Decision>) {
        let mut answer = Answer::allowed();
        let object = Arc::new(self.request.object.clone());
        let (mut results, mut all, mut failed) = (Vec::new(), Verdict::default(), None);
        for stage in &chain.stages {
            let called = self.call_stage(
                stage,
                &object,
                &mut answer,
                Hook::Validation,
                async |policy| {
                    validate_object(&self.host, policy, self.request, &self.admission, &object)
                        .await
                },
            );
            let after = match called.await {
                Ok(verdict) => verdict.inspect(|verdict| {
                    all.violations.extend(verdict.violations.iter().cloned());
                    all.warnings.extend(verdict.warnings.iter().cloned());
                }),
                Err(decision) => {
                    failed.get_or_insert(decision);
                    None
                }
            };
            results.push(StageResult {
                before: object.clone(),
                after: after.map(Outcome::Verdict),
            });
        }
        results.push(StageResult {
            before: object,
            after: None,
        });
        self.compare(chain, &results);
        (answer, all, failed)
    }

    /// Calls the guest of the policy in a stage that matches the request. Returns `None` if no
    /// policy matches, or if the guest fails and `onError` ignores it.
    async fn call_stage<T>(
        &self,
        stage: &[BoundPolicy],
        object: &Arc<Value>,
        answer: &mut Answer,
        hook: Hook,
        call: impl AsyncFnOnce(&BoundPolicy) -> Result<Served<T>, GuestError>,
    ) -> Result<Option<T>, Decision> {
        let mut policies = stage.iter();
        let has_conditions = policies.any(|policy| policy.matcher.has_conditions());
        let input = self.match_input(object, has_conditions);
        let subject = self.subject(&input);
        let evaluator = self.active.evaluator();
        let matching = evaluator.first_match(stage, &subject, Purpose::Review(self.caller));
        let matched = timeout_at(self.deadline, matching).await;
        let (policy, evaluated) = match matched.map_err(|_| stage.first()) {
            Ok(None) | Err(None) => return Ok(None),
            Ok(Some((policy, evaluated))) => (policy, evaluated.map_err(GuestError::from)),
            Err(Some(first)) => (first, Err(GuestError::OutOfTime(self.timeout))),
        };
        let called = match evaluated {
            Ok(()) => timeout_at(self.deadline, call(policy)).await,
            Err(error) => Ok(Err(error)),
        };
        // The timeout does not blame this policy, which has a deadline of its own.
        match called.unwrap_or(Err(GuestError::OutOfTime(self.timeout))) {
            Ok(served) => {
                policy.stats.record_call(false, self.counts_for());
                answer.called.push((policy.name.to_string(), served.digest));
                Ok(Some(served.answer))
            }
            Err(error) => {
                if error.is_failure() {
                    policy.stats.record_call(true, self.counts_for());
                }
                let metrics = self.host.metrics();
                match error {
                    GuestError::OutOfTime(_) => metrics.count_skipped(hook, SkipReason::OutOfTime),
                    GuestError::MatchFailed(_) => {
                        metrics.count_skipped(hook, SkipReason::MatchFailed);
                    }
                    GuestError::MatchBusy(_) => metrics.count_skipped(hook, SkipReason::Busy),
                    _ => {}
                }
                self.on_error(policy, answer, hook, &error)
            }
        }
    }

    /// Applies `onError` to a policy whose guest gave no usable answer. A process that is too busy
    /// ignores no validation policy: who overloads it would open the rules.
    fn on_error<T>(
        &self,
        policy: &BoundPolicy,
        answer: &mut Answer,
        hook: Hook,
        error: &GuestError,
    ) -> Result<Option<T>, Decision> {
        let is_overload = error.is_overload();
        let is_ignored = policy.on_error == OnError::Ignore;
        if !is_ignored || (is_overload && hook == Hook::Validation) {
            let subject = if &*policy.name == BUILT_IN {
                format!("the built-in {hook} guest")
            } else {
                format!("the guest of IPUPolicy {} ({hook})", policy.name)
            };
            let message = failure::message(&subject, error);
            return Err(if is_overload {
                Decision::Busy(message)
            } else {
                Decision::Failed(message)
            });
        }
        tracing::warn!(
            policy = &*policy.name,
            namespace = self.request.namespace,
            name = self.request.name,
            "a request continues without a guest that gave no usable answer: {}",
            ipu_text::explain(error)
        );
        answer.ignored.push(policy.name.to_string());
        Ok(None)
    }

    /// Returns who caused the request, if it counts for rollbacks and promotions. Anyone can
    /// request a dry run, at any rate.
    fn counts_for(&self) -> Option<Requester<'_>> {
        let counts = self.is_trusted && !self.admission.dry_run;
        counts.then(|| Requester {
            namespace: &self.request.namespace,
            user: &self.admission.user.name,
        })
    }

    fn subject<'s>(&'s self, input: &'s MatchInput) -> MatchSubject<'s> {
        MatchSubject {
            namespace_labels: self.admission.context.labels.as_ref(),
            old_object: self.request.old_object.as_ref(),
            input,
        }
    }

    /// Builds the variables of match conditions. The previous object is copied only for conditions.
    fn match_input(&self, object: &Arc<Value>, has_conditions: bool) -> MatchInput {
        let old = || self.request.old_object.clone().map(Arc::new);
        MatchInput {
            object: Some(Arc::clone(object)),
            old_object: has_conditions
                .then(|| self.old_object.get_or_init(old).clone())
                .flatten(),
            request: Arc::clone(&self.request_attributes),
            namespace_object: self.namespace_object.clone(),
        }
    }
}

/// Calls the guest of a defaulting policy, and checks its changes.
async fn default_object(
    host: &GuestHost,
    policy: &BoundPolicy,
    request: &AdmissionRequest,
    admission: &Admission,
    object: &Value,
) -> Result<Served<Defaulting>, GuestError> {
    let old = request.old_object.as_ref();
    let called = host.default_object(&policy.guest, admission, object, old);
    let served = called.await?;
    if let Defaulting::Defaulted(defaulted) = &served.answer {
        mutate::check(request, object, &defaulted.object)
            .map_err(|overreach| GuestError::BadAnswer(overreach.to_string()))?;
    }
    Ok(served)
}

/// Calls the guest of a validation policy, also about other sizes of an object without a size.
async fn validate_object(
    host: &GuestHost,
    policy: &BoundPolicy,
    request: &AdmissionRequest,
    admission: &Admission,
    object: &Value,
) -> Result<Served<Verdict>, GuestError> {
    let old = request.old_object.as_ref();
    let called = host.validate(&policy.guest, admission, object, old);
    let Served { answer, digest } = called.await?;
    let mut trial = SizeTrial::of(answer, request);
    while let Some(ipus) = trial.next_size() {
        let old = old.map(|old| with_size(old, ipus));
        let object = with_size(object, ipus);
        let called = host.validate(&policy.guest, admission, &object, old.as_ref());
        trial.note(called.await?.answer);
    }
    Ok(Served {
        answer: trial.verdict(),
        digest,
    })
}

#[cfg(test)]
mod tests;
