//! Evaluates whether policies match requests. Match conditions run on threads of their own, and few
//! at once: each takes a core, and a copy of the objects.

use std::sync::Arc;
use std::time::Duration;

use ipu_runtime::fair_semaphore::{Asker, FairSemaphore};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::bound_policy::BoundPolicy;
use super::large_stack;
use super::matcher::{EvaluationError, Fault, MatchSubject, Matcher};

/// Most concurrent evaluations.
pub const CONCURRENT: usize = 2;

/// Most concurrent evaluations of dry runs, which anyone can request at any rate.
const CONCURRENT_DRY_RUNS: usize = 1;

/// Longest time that a request waits for an evaluation, which takes some tenths of a second at
/// most.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The purpose of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// An admission review. The addresses of the clients share the evaluator fairly.
    Review(Asker),
    /// A placement decision. It waits without a timeout: a long queue must not change which guest
    /// decides.
    Decision,
    /// A dry run, without effect.
    DryRun,
}

/// Evaluates match conditions. Cheap to clone; all clones share one limit.
#[derive(Clone)]
pub struct MatchEvaluator {
    permits: FairSemaphore,
    dry_run_permits: FairSemaphore,
}

impl Default for MatchEvaluator {
    fn default() -> Self {
        Self {
            permits: FairSemaphore::new(CONCURRENT),
            dry_run_permits: FairSemaphore::new(CONCURRENT_DRY_RUNS),
        }
    }
}

impl MatchEvaluator {
    /// Whether a policy matches a request.
    pub async fn matches(
        &self,
        matcher: &Arc<Matcher>,
        subject: &MatchSubject<'_>,
        purpose: Purpose,
    ) -> Result<bool, EvaluationError> {
        if !matcher.selects(subject)? {
            return Ok(false);
        }
        if !matcher.has_conditions() {
            return Ok(true);
        }
        let evaluation = self.evaluate(matcher, subject, purpose);
        if purpose == Purpose::Decision {
            return evaluation.await;
        }
        timeout(TIMEOUT, evaluation).await.unwrap_or_else(|_| {
            let seconds = TIMEOUT.as_secs();
            let reason = format!("it took longer than {seconds} s");
            Err(failed(matcher, reason, Fault::Overload))
        })
    }

    /// Returns the first policy of a stage that matches the request, or the first one with a failed
    /// evaluation; then its `onError` decides.
    pub async fn first_match<'a>(
        &self,
        stage: &'a [BoundPolicy],
        subject: &MatchSubject<'_>,
        purpose: Purpose,
    ) -> Option<(&'a BoundPolicy, Result<(), EvaluationError>)> {
        for policy in stage {
            match self.matches(&policy.matcher, subject, purpose).await {
                Ok(true) => return Some((policy, Ok(()))),
                Ok(false) => {}
                Err(error) => return Some((policy, Err(error))),
            }
        }
        None
    }

    async fn evaluate(
        &self,
        matcher: &Arc<Matcher>,
        subject: &MatchSubject<'_>,
        purpose: Purpose,
    ) -> Result<bool, EvaluationError> {
        let asker = match purpose {
            Purpose::Review(asker) => asker,
            Purpose::Decision | Purpose::DryRun => None,
        };
        let dry_run = match purpose {
            Purpose::DryRun => Some(self.dry_run_permits.acquire(asker).await),
            Purpose::Review(_) | Purpose::Decision => None,
        };
        let permits = (dry_run, self.permits.acquire(asker).await);
        let (evaluated, input) = (Arc::clone(matcher), subject.input.clone());
        let (result, received) = oneshot::channel();
        let started = large_stack::spawn(move || {
            // The receiver is gone if the request was cancelled.
            let _ = result.send(evaluated.evaluate(&input));
            drop(permits);
        });
        started.map_err(|error| failed(matcher, error.to_string(), Fault::Overload))?;
        received.await.map_err(|_| {
            let reason = "the library that evaluates it panicked".to_owned();
            failed(matcher, reason, Fault::Content)
        })?
    }
}

fn failed(matcher: &Matcher, reason: String, fault: Fault) -> EvaluationError {
    EvaluationError {
        name: matcher.name(),
        reason,
        fault,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use futures::FutureExt;
    use ipu_api::ipupolicy::Hook;
    use ipu_guest_host::GuestError;
    use serde_json::{Value, json};

    use super::*;
    use crate::match_input::MatchInput;

    fn policy(name: &str, expression: Option<&str>) -> BoundPolicy {
        let conditions = expression.map(|text| json!([{"name": "c", "expression": text}]));
        let wanted = json!({"matchConditions": conditions.unwrap_or(json!([]))});
        let matcher = Matcher::new(
            Hook::Validation,
            Some(&serde_json::from_value(wanted).unwrap()),
        );
        BoundPolicy {
            name: name.into(),
            matcher: Arc::new(matcher.unwrap()),
            ..BoundPolicy::built_in(Hook::Validation)
        }
    }

    #[tokio::test]
    async fn the_first_policy_of_a_stage_that_matches_is_called() {
        let (evaluator, input) = (MatchEvaluator::default(), MatchInput::default());
        let subject = MatchSubject {
            namespace_labels: None,
            old_object: None,
            input: &input,
        };
        let stage = [policy("new", Some("false")), policy("old", None)];
        let (found, result) = evaluator
            .first_match(&stage, &subject, Purpose::Decision)
            .await
            .unwrap();
        assert_eq!((&*found.name, result), ("old", Ok(())));
        let stage = [policy("broken", Some("object.x.y")), policy("old", None)];
        let (found, result) = evaluator
            .first_match(&stage, &subject, Purpose::Decision)
            .await
            .unwrap();
        assert_eq!(&*found.name, "broken");
        assert!(result.is_err());
        let stage = [policy("new", Some("false"))];
        assert!(
            evaluator
                .first_match(&stage, &subject, Purpose::Decision)
                .await
                .is_none()
        );
    }

    #[tokio::test]
    async fn dry_runs_leave_a_permit_for_decisions_and_addresses_share_fairly() {
        let (evaluator, input) = (MatchEvaluator::default(), MatchInput::default());
        let subject = MatchSubject {
            namespace_labels: None,
            old_object: None,
            input: &input,
        };
        let matcher = policy("a", Some("true")).matcher;
        let evaluate = |purpose| Box::pin(evaluator.matches(&matcher, &subject, purpose));
        let held_dry_run = evaluator.dry_run_permits.acquire(None).await;
        let _permit = evaluator.permits.acquire(None).await;
        let mut dry_run = evaluate(Purpose::DryRun);
        assert!(dry_run.as_mut().now_or_never().is_none());
        assert_eq!(evaluate(Purpose::Decision).await, Ok(true));

        let other = evaluator.permits.acquire(None).await;
        let many = Purpose::Review(Some(IpAddr::from([10, 0, 0, 1]).into()));
        let mut flood: Vec<_> = (0..16).map(|_| evaluate(many)).collect();
        for waiting in &mut flood {
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        let mut one = evaluate(Purpose::Review(Some(IpAddr::from([10, 0, 0, 2]).into())));
        assert!(one.as_mut().now_or_never().is_none());
        drop(other);
        // The first of the many gets the only permit, and the other address comes next.
        let first = flood.remove(0).await;
        assert_eq!((first, one.await), (Ok(true), Ok(true)));
        drop(held_dry_run);
    }

    #[tokio::test(start_paused = true)]
    async fn an_evaluation_without_a_turn_is_the_fault_of_a_busy_process() {
        let (evaluator, input) = (MatchEvaluator::default(), MatchInput::default());
        let subject = MatchSubject {
            namespace_labels: None,
            old_object: None,
            input: &input,
        };
        let mut held = Vec::new();
        for _ in 0..CONCURRENT {
            held.push(evaluator.permits.acquire(None).await);
        }
        let matcher = policy("a", Some("true")).matcher;
        let evaluation = evaluator.matches(&matcher, &subject, Purpose::Review(None));
        let error = evaluation.await.unwrap_err();
        assert_eq!(error.fault, Fault::Overload);
        assert!(matches!(GuestError::from(error), GuestError::MatchBusy(_)));
    }

    #[tokio::test]
    async fn other_tasks_of_the_thread_run_during_an_evaluation() {
        // The largest evaluation that is allowed, on a runtime of one thread.
        let expression = "object.all(a, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(b, a == a))";
        let input = MatchInput {
            object: Some(Arc::new(json!(vec![Value::Null; 5_000]))),
            ..MatchInput::default()
        };
        let (evaluator, stage) = (
            MatchEvaluator::default(),
            [policy("slow", Some(expression))],
        );
        let subject = MatchSubject {
            namespace_labels: None,
            old_object: None,
            input: &input,
        };
        let mut evaluation =
            std::pin::pin!(evaluator.first_match(&stage, &subject, Purpose::Decision));
        let mut others = 0;
        let result = loop {
            tokio::select! {
                biased;
                result = &mut evaluation => break result,
                () = tokio::task::yield_now() => others += 1,
            }
        };
        assert_eq!(result.unwrap().1, Ok(()));
        assert!(others > 10, "other tasks ran {others} times");
    }
}
