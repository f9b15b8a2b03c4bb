//! Asks the guests of a webhook one after the other, and makes one answer of theirs.

mod trials;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ipu_api::ipupolicy::{BUILT_IN, Hook, OnError};
use ipu_guest_host::facts::Admission;
use ipu_guest_host::metrics::Unasked;
use ipu_guest_host::model::{Defaulted, Defaulting, Operation, Served, Slot, Verdict};
use ipu_guest_host::{GuestError, Policies};
use ipu_policies::guests::{Entry, Guests};
use ipu_policies::judging::Purpose;
use ipu_policies::matching::{Seen, Subject};
use ipu_runtime::fair_semaphore::Asker;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use self::trials::{Outcome, Step};
use super::answer::{Answer, Decision};
use super::request::AdmissionRequest;
use super::{failure, mutate, validate};

/// Longest time that all guests of one request may take together: the API server waits for ten
/// seconds, and an answer that says who was late is better than none.
pub(super) const ALL: Duration = Duration::from_secs(8);

/// The guests of one request.
pub struct Chain<'a> {
    guests: &'a Guests,
    policies: Policies,
    asker: Asker,
    request: &'a AdmissionRequest,
    told: Admission,
    about: Arc<Value>,
    /// A copy of the object as it was, once a condition may want to see it.
    old: OnceLock<Option<Arc<Value>>>,
    end: Instant,
    all: Duration,
    /// Whether policies are rolled back and promoted by what comes of it.
    counts: bool,
}

impl<'a> Chain<'a> {
    /// A request that begins now; the guests are told `told`.
    pub fn new(guests: &'a Guests, request: &'a AdmissionRequest, told: Admission) -> Self {
        let operation = match told.operation {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
        };
        Self {
            guests,
            policies: guests.policies().clone(),
            asker: None,
            request,
            about: Arc::new(json!({
                "uid": request.uid,
                "operation": operation,
                "namespace": request.namespace,
                "name": request.name,
                "dryRun": told.dry_run,
                "subResource": told.sub_resource,
                "userInfo": {"username": told.user.name, "groups": told.user.groups},
            })),
            old: OnceLock::new(),
            told,
            end: Instant::now() + ALL,
            all: ALL,
            counts: true,
        }
    }

    /// The same request, which comes from an address: addresses have their turns where requests wait.
    #[must_use]
    pub fn asked_by(self, asker: Asker) -> Self {
        Self {
            policies: self.policies.asked_by(asker),
            asker,
            ..self
        }
    }

    /// The same request, by which policies are rolled back and promoted only where it `counts`.
    #[must_use]
    pub fn counting(self, counts: bool) -> Self {
        Self { counts, ..self }
    }

    /// The same request, for which all guests together have this time from now on.
    #[must_use]
    pub fn within(self, time: Duration) -> Self {
        Self {
            end: Instant::now() + time,
            all: time,
            ..self
        }
    }

    /// The answer of the mutating webhook.
    pub async fn defaulted(&self) -> Answer {
        let roster = self.guests.roster(Hook::Defaulting);
        let mut answer = Answer::nothing_to_say();
        let mut object = Arc::new(self.request.object.clone());
        let mut steps = Vec::new();
        for seat in &roster.seats {
            let before = object.clone();
            let asked = self.ask(
                seat,
                &before,
                &mut answer,
                Slot::Defaulting,
                async |entry| {
                    default_object(&self.policies, entry, self.request, &self.told, &before).await
                },
            );
            let (after, end) = match asked.await {
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
            steps.push(Step { before, after });
            if let Some(decision) = end {
                answer.decision = decision;
                self.compare(&roster, &steps);
                return answer;
            }
        }
        let defaulted = mutate::decision(&self.request.object, &object);
        answer.decision = mutate::with_finalizer(self.request, &object, defaulted);
        steps.push(Step {
            before: object,
            after: None,
        });
        self.compare(&roster, &steps);
        answer
    }

    /// The answer of the validating webhook: every rule that any guest finds broken.
    pub async fn validated(&self) -> Answer {
        let roster = self.guests.roster(Hook::Validation);
        let mut answer = Answer::nothing_to_say();
        let object = Arc::new(self.request.object.clone());
        let (mut steps, mut all, mut failed) = (Vec::new(), Verdict::default(), None);
        for seat in &roster.seats {
            let asked = self.ask(
                seat,
                &object,
                &mut answer,
                Slot::Validation,
                async |entry| {
                    let (object, old) = (&*object, self.request.old_object.as_ref());
                    let policies = &self.policies;
                    policies
                        .validate(&entry.guest, &self.told, object, old)
                        .await
                },
            );
            let after = match asked.await {
                Ok(verdict) => verdict.inspect(|verdict| {
                    all.violations.extend(verdict.violations.iter().cloned());
                    all.warnings.extend(verdict.warnings.iter().cloned());
                }),
                Err(decision) => {
                    failed.get_or_insert(decision);
                    None
                }
            };
            steps.push(Step {
                before: object.clone(),
                after: after.map(Outcome::Verdict),
            });
        }
        steps.push(Step {
            before: object,
            after: None,
        });
        self.compare(&roster, &steps);
        (answer.decision, answer.warnings) = validate::decision(all);
        // What is wrong with the object is worth more than who could not say so.
        if let (Decision::Allowed, Some(failed)) = (&answer.decision, failed) {
            answer.decision = failed;
        }
        answer
    }

    /// Asks the guest of a seat that the request concerns. None where there is none, or where it gave
    /// no answer and the request goes on without it; an error where the request does not.
    async fn ask<T>(
        &self,
        seat: &[Entry],
        object: &Arc<Value>,
        answer: &mut Answer,
        slot: Slot,
        ask: impl AsyncFnOnce(&Entry) -> Result<Served<T>, GuestError>,
    ) -> Result<Option<T>, Decision> {
        let seen = self.seen(object, seat);
        let subject = self.subject(&seen);
        let judges = self.guests.judges();
        let judging = judges.concerned(seat, &subject, Purpose::Review(self.asker));
        let judged = timeout_at(self.end, judging).await;
        let (entry, judged) = match judged.map_err(|_| seat.first()) {
            Ok(None) | Err(None) => return Ok(None),
            Ok(Some((entry, judged))) => (entry, judged.map_err(GuestError::from)),
            Err(Some(first)) => (first, Err(GuestError::OutOfTime(self.all))),
        };
        let asked = match judged {
            Ok(()) => timeout_at(self.end, ask(entry)).await,
            Err(error) => Ok(Err(error)),
        };
        // Whether others were slow or this one is, nobody can say: it has a deadline of its own.
        match asked.unwrap_or(Err(GuestError::OutOfTime(self.all))) {
            Ok(served) => {
                entry.meter.called(false, self.counts);
                answer.asked.push((entry.name.to_string(), served.digest));
                Ok(Some(served.answer))
            }
            Err(error) => {
                if error.is_failure() {
                    entry.meter.called(true, self.counts);
                }
                let calls = self.policies.calls();
                match error {
                    GuestError::OutOfTime(_) => calls.given_up(slot, Unasked::OutOfTime),
                    GuestError::Unjudged(_) => calls.given_up(slot, Unasked::Unjudged),
                    _ => {}
                }
                self.failed(entry, answer, slot, &error)
            }
        }
    }

    /// What comes of a guest that gave no answer that lets the request go on.
    fn failed<T>(
        &self,
        entry: &Entry,
        answer: &mut Answer,
        slot: Slot,
        error: &GuestError,
    ) -> Result<Option<T>, Decision> {
        if entry.on_error != OnError::Ignore {
            let who = if &*entry.name == BUILT_IN {
                format!("the {slot} policy")
            } else {
                format!("the IPUPolicy {} ({slot})", entry.name)
            };
            return Err(Decision::Failed(failure::message(&who, error)));
        }
        tracing::warn!(
            policy = &*entry.name,
            namespace = self.request.namespace,
            name = self.request.name,
            "a request continues without a policy that gave no answer: {}",
            ipu_text::explain(error)
        );
        answer.ignored.push(entry.name.to_string());
        Ok(None)
    }

    fn subject<'s>(&'s self, seen: &'s Seen) -> Subject<'s> {
        Subject {
            namespace_labels: self.told.facts.labels.as_ref(),
            seen,
        }
    }

    /// What the conditions of these guests see.
    fn seen(&self, object: &Arc<Value>, entries: &[Entry]) -> Seen {
        let old = || self.request.old_object.clone().map(Arc::new);
        let mut entries = entries.iter();
        let is_seen = entries.any(|entry| entry.matching.has_conditions());
        Seen {
            object: Some(Arc::clone(object)),
            old_object: is_seen.then(|| self.old.get_or_init(old).clone()).flatten(),
            request: Arc::clone(&self.about),
        }
    }
}

/// Asks a defaulting guest, and holds it to what such a guest may change.
async fn default_object(
    policies: &Policies,
    entry: &Entry,
    request: &AdmissionRequest,
    told: &Admission,
    object: &Value,
) -> Result<Served<Defaulting>, GuestError> {
    let old = request.old_object.as_ref();
    let asked = policies.default_object(&entry.guest, told, object, old);
    let served = asked.await?;
    if let Defaulting::Defaulted(defaulted) = &served.answer {
        mutate::checked(request, object, &defaulted.object)
            .map_err(|overreach| GuestError::BadAnswer(overreach.to_string()))?;
    }
    Ok(served)
}
