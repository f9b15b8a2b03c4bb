//! Compares what tried guests answer with what came of a request, which nobody waits for.

use std::sync::Arc;

use ipu_guest_host::model::Verdict;
use ipu_policies::compare;
use ipu_policies::guests::{Roster, Tried, is_in_share};
use ipu_policies::judging::Purpose;
use ipu_policies::matching::{Seen, Subject};
use ipu_policies::meter::Compared;
use ipu_runtime::panics::{caught, caught_now};
use serde_json::Value;
use tokio::task::spawn_blocking;

use super::{Chain, default_object};

/// What happened in one seat.
pub(super) struct Step {
    /// The object as it was before.
    pub(super) before: Arc<Value>,
    /// What became of it; none where nobody was asked, or nobody gave an answer.
    pub(super) after: Option<Outcome>,
}

#[derive(Clone)]
pub(super) enum Outcome {
    Object(Arc<Value>),
    Verdict(Verdict),
    Refused,
}

impl Chain<'_> {
    /// Begins the comparisons, which nobody waits for. What does not count is not compared.
    pub(super) fn compare(&self, roster: &Roster, steps: &[Step]) {
        if !self.counts {
            return;
        }
        for tried in &roster.trials {
            if !is_in_share(tried.share, &self.request.uid) {
                continue;
            }
            let Some((before, counts)) = compared_with(tried, steps) else {
                continue;
            };
            let seen = self.seen(&before, std::slice::from_ref(&tried.entry));
            match tried.entry.matching.selects(&self.subject(&seen)) {
                Ok(true) => self.compare_one(tried, seen, before, counts),
                Ok(false) => {}
                Err(_) => tried.entry.meter.compared(Compared::Failed),
            }
        }
    }

    fn compare_one(&self, tried: &Tried, seen: Seen, before: Arc<Value>, counts: Outcome) {
        let entry = tried.entry.clone();
        let Ok(turn) = self.guests.comparing().clone().try_acquire_owned() else {
            entry.meter.compared(Compared::Skipped);
            return;
        };
        let (guests, request, told) =
            (self.guests.clone(), self.request.clone(), self.told.clone());
        tokio::spawn(caught(async move {
            let subject = Subject {
                namespace_labels: told.facts.labels.as_ref(),
                seen: &seen,
            };
            match guests
                .judges()
                .concerns(&entry.matching, &subject, Purpose::Review(None))
                .await
            {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => return entry.meter.compared(Compared::Failed),
            }
            let compared = if let Outcome::Verdict(verdict) = counts {
                let old = request.old_object.as_ref();
                let policies = guests.policies();
                let tried = policies.validate(&entry.guest, &told, &before, old).await;
                tried.map_or(Compared::Failed, |tried| {
                    compare::verdicts(&verdict, &tried.answer)
                })
            } else {
                let tried =
                    default_object(guests.policies(), &entry, &request, &told, &before).await;
                let tried = tried.ok().map(|tried| tried.answer.defaulted());
                let tried = tried.map(|tried| tried.map(|defaulted| defaulted.object));
                let counts = match counts {
                    Outcome::Object(object) => Some(object),
                    Outcome::Verdict(_) | Outcome::Refused => None,
                };
                compare_objects(counts, tried).await
            };
            entry.meter.compared(compared);
            drop(turn);
        }));
    }
}

/// Compares two objects where it keeps no other request waiting; the second is none where there is no answer.
async fn compare_objects(counts: Option<Arc<Value>>, tried: Option<Option<Value>>) -> Compared {
    let Some(tried) = tried else {
        return Compared::Failed;
    };
    let compare = move || caught_now(|| compare::defaulted(counts.as_deref(), tried.as_ref()));
    let compared = spawn_blocking(compare).await.ok().and_then(Result::ok);
    compared.unwrap_or(Compared::Failed)
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
