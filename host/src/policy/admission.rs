//! Asks the guests of a webhook one after the other, and makes one answer of theirs.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::compare;
use super::guests::{Entry, Guests, Roster, Tried, concerned, is_in_share};
use super::matching::{JudgeError, Subject};
use super::meter::Compared;
use crate::api::ipupolicy::{BUILT_IN, Hook, OnError};
use crate::wasm::GuestError;
use crate::wasm::facts::Admission;
use crate::wasm::model::{Defaulted, Operation, Served, Slot, Verdict};
use crate::webhook::answer::{Answer, Decision};
use crate::webhook::request::AdmissionRequest;
use crate::webhook::{failure, mutate, validate};

/// Longest time that all guests of one request may take together: the API server waits for ten
/// seconds, and an answer that says who was late is better than none.
const ALL: Duration = Duration::from_secs(8);

/// The guests of one request.
pub struct Chain<'a> {
    guests: &'a Guests,
    request: &'a AdmissionRequest,
    told: Admission,
    about: Value,
    end: Instant,
}

/// What happened in one seat.
struct Step {
    /// The object as it was before.
    before: Arc<Value>,
    /// What became of it; none where nobody was asked, or nobody gave an answer.
    after: Option<Outcome>,
}

#[derive(Clone)]
enum Outcome {
    Object(Arc<Value>),
    Verdict(Verdict),
    Refused,
}

/// A request that does not go on without the guest that was asked.
struct Stop {
    decision: Decision,
    is_refusal: bool,
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
            request,
            about: json!({
                "uid": request.uid,
                "operation": operation,
                "namespace": request.namespace,
                "name": request.name,
                "dryRun": told.dry_run,
                "subResource": told.sub_resource,
                "userInfo": {"username": told.user.name, "groups": told.user.groups},
            }),
            told,
            end: Instant::now() + ALL,
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
                    default_object(self.guests, entry, self.request, &self.told, &before).await
                },
            );
            let after = match asked.await {
                Ok(None) => None,
                Ok(Some(Defaulted {
                    object: next,
                    warnings,
                })) => {
                    answer.warnings.extend(warnings);
                    object = Arc::new(next);
                    Some(Outcome::Object(object.clone()))
                }
                Err(stop) => {
                    let after = stop.is_refusal.then_some(Outcome::Refused);
                    steps.push(Step { before, after });
                    answer.decision = stop.decision;
                    self.compare(&roster, &steps);
                    return answer;
                }
            };
            steps.push(Step { before, after });
        }
        answer.decision = mutate::decision(&self.request.object, &object);
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
                    let policies = self.guests.policies();
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
                Err(stop) => {
                    failed.get_or_insert(stop.decision);
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
    /// no answer and the request goes on without it.
    async fn ask<T>(
        &self,
        seat: &[Entry],
        object: &Value,
        answer: &mut Answer,
        slot: Slot,
        ask: impl AsyncFnOnce(&Entry) -> Result<Served<T>, GuestError>,
    ) -> Result<Option<T>, Stop> {
        let subject = self.subject(object);
        let Some((entry, judged)) = concerned(seat, &subject) else {
            return Ok(None);
        };
        if let Err(error) = judged {
            return self.failed(entry, answer, slot, &GuestError::from(error));
        }
        let asked = timeout_at(self.end, ask(entry)).await;
        match asked.unwrap_or(Err(GuestError::Deadline(ALL))) {
            Ok(served) => {
                entry.meter.called(false);
                answer.asked.push((entry.name.to_string(), served.digest));
                Ok(Some(served.answer))
            }
            Err(error) => {
                if error.is_answer() {
                    entry.meter.called(false);
                } else if error.is_failure() {
                    entry.meter.called(true);
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
    ) -> Result<Option<T>, Stop> {
        // A refusal is an answer: nobody may ignore it.
        if entry.on_error != OnError::Ignore || error.is_answer() {
            let who = if &*entry.name == BUILT_IN {
                format!("the {slot} policy")
            } else {
                format!("the IPUPolicy {} ({slot})", entry.name)
            };
            return Err(Stop {
                decision: failure::answer(&who, error).decision,
                is_refusal: error.is_answer(),
            });
        }
        tracing::warn!(
            policy = &*entry.name,
            namespace = self.request.namespace,
            name = self.request.name,
            "a request goes on without a policy that gave no answer: {}",
            crate::agent::explain(error)
        );
        answer.ignored.push(entry.name.to_string());
        Ok(None)
    }

    fn subject<'s>(&'s self, object: &'s Value) -> Subject<'s> {
        Subject {
            namespace_labels: self.told.facts.labels.as_ref(),
            object: Some(object),
            old_object: self.request.old_object.as_ref(),
            request: &self.about,
        }
    }

    /// Begins the comparisons, which nobody waits for.
    fn compare(&self, roster: &Roster, steps: &[Step]) {
        for tried in &roster.trials {
            if !is_in_share(tried.share, &self.request.uid) {
                continue;
            }
            let Some((before, counts)) = compared_with(tried, steps) else {
                continue;
            };
            match tried.entry.matching.concerns(&self.subject(&before)) {
                Ok(true) => self.compare_one(tried, before, counts),
                Ok(false) => {}
                Err(_) => tried.entry.meter.compared(Compared::Failed),
            }
        }
    }

    fn compare_one(&self, tried: &Tried, before: Arc<Value>, counts: Outcome) {
        let entry = tried.entry.clone();
        let Ok(turn) = self.guests.comparing().clone().try_acquire_owned() else {
            entry.meter.compared(Compared::Skipped);
            return;
        };
        let (guests, request, told) =
            (self.guests.clone(), self.request.clone(), self.told.clone());
        tokio::spawn(async move {
            let compared = if let Outcome::Verdict(verdict) = counts {
                let old = request.old_object.as_ref();
                let policies = guests.policies();
                let tried = policies.validate(&entry.guest, &told, &before, old).await;
                tried.map_or(Compared::Failed, |tried| {
                    compare::verdicts(&verdict, &tried.answer)
                })
            } else {
                let tried = default_object(&guests, &entry, &request, &told, &before).await;
                let tried = match tried {
                    Ok(tried) => Some(Some(tried.answer.object)),
                    Err(GuestError::Refused(_)) => Some(None),
                    Err(_) => None,
                };
                let counts = match &counts {
                    Outcome::Object(object) => Some(&**object),
                    Outcome::Verdict(_) | Outcome::Refused => None,
                };
                tried.map_or(Compared::Failed, |tried| {
                    compare::defaulted(counts, tried.as_ref())
                })
            };
            entry.meter.compared(compared);
            drop(turn);
        });
    }
}

/// Asks a defaulting guest, and holds it to what such a guest may change.
async fn default_object(
    guests: &Guests,
    entry: &Entry,
    request: &AdmissionRequest,
    told: &Admission,
    object: &Value,
) -> Result<Served<Defaulted>, GuestError> {
    let old = request.old_object.as_ref();
    let policies = guests.policies();
    let asked = policies.default_object(&entry.guest, told, object, old);
    let served = asked.await?;
    mutate::checked(request, object, &served.answer.object)
        .map_err(|overreach| GuestError::BadAnswer(overreach.to_string()))?;
    Ok(served)
}

/// The object that a tried guest is asked about, and the answer that its own is compared with. None
/// where nobody was asked in the seat that it would take.
fn compared_with(tried: &Tried, steps: &[Step]) -> Option<(Arc<Value>, Outcome)> {
    match tried.seat {
        Ok(seat) => {
            let step = steps.get(seat)?;
            Some((step.before.clone(), step.after.clone()?))
        }
        // In a seat of its own: what counts is the object as it is without it.
        Err(after) => {
            let before = steps.get(after)?.before.clone();
            let is_validation = steps
                .iter()
                .any(|step| matches!(step.after, Some(Outcome::Verdict(_))));
            let counts = if is_validation {
                Outcome::Verdict(Verdict::default())
            } else {
                Outcome::Object(before.clone())
            };
            Some((before, counts))
        }
    }
}

impl From<JudgeError> for GuestError {
    fn from(error: JudgeError) -> Self {
        Self::NotReady(error.to_string())
    }
}
