//! Judges whether requests concern policies. Conditions are evaluated on threads of their own, and few
//! at once: each takes a core, and a copy of the objects.

use std::sync::Arc;
use std::time::Duration;

use ipu_runtime::fair_semaphore::{Asker, FairSemaphore};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::guests::Entry;
use super::large_stack;
use super::matching::{JudgeError, Matching, Subject};

/// Conditions of policies that are evaluated at once, and those of them for questions: anybody asks as many as they like.
pub const AT_ONCE: usize = 2;
const QUESTIONS: usize = 1;

/// Longest time that a request waits for it: evaluating takes some tenths of a second at most.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a condition is judged for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A review, which waits in turn with those of other addresses.
    Review(Asker),
    /// A decision of the operator, which waits as long as it takes: nobody else decides because a queue is long.
    Decision,
    /// A question from which nothing comes.
    Question,
}

/// Evaluates conditions. Cheap to clone; all clones share the threads.
#[derive(Clone)]
pub struct Judges {
    places: FairSemaphore,
    questions: FairSemaphore,
}

impl Default for Judges {
    fn default() -> Self {
        Self {
            places: FairSemaphore::new(AT_ONCE),
            questions: FairSemaphore::new(QUESTIONS),
        }
    }
}

impl Judges {
    /// Whether a request concerns a policy.
    pub async fn concerns(
        &self,
        matching: &Arc<Matching>,
        subject: &Subject<'_>,
        purpose: Purpose,
    ) -> Result<bool, JudgeError> {
        if !matching.selects(subject)? {
            return Ok(false);
        }
        if !matching.has_conditions() {
            return Ok(true);
        }
        let judging = self.judge(matching, subject, purpose);
        if purpose == Purpose::Decision {
            return judging.await;
        }
        timeout(PATIENCE, judging).await.unwrap_or_else(|_| {
            let seconds = PATIENCE.as_secs();
            Err(failed(matching, format!("it took longer than {seconds} s")))
        })
    }

    /// The first of a seat's guests that the request concerns. Where that cannot be said of one, that one
    /// is named: what then happens is its `onError`.
    pub async fn concerned<'a>(
        &self,
        seat: &'a [Entry],
        subject: &Subject<'_>,
        purpose: Purpose,
    ) -> Option<(&'a Entry, Result<(), JudgeError>)> {
        for entry in seat {
            match self.concerns(&entry.matching, subject, purpose).await {
                Ok(true) => return Some((entry, Ok(()))),
                Ok(false) => {}
                Err(error) => return Some((entry, Err(error))),
            }
        }
        None
    }

    async fn judge(
        &self,
        matching: &Arc<Matching>,
        subject: &Subject<'_>,
        purpose: Purpose,
    ) -> Result<bool, JudgeError> {
        let asker = match purpose {
            Purpose::Review(asker) => asker,
            Purpose::Decision | Purpose::Question => None,
        };
        let question = match purpose {
            Purpose::Question => Some(self.questions.acquire(asker).await),
            Purpose::Review(_) | Purpose::Decision => None,
        };
        let place = (question, self.places.acquire(asker).await);
        let (judging, seen) = (Arc::clone(matching), subject.seen.clone());
        let (answer, answered) = oneshot::channel();
        let begun = large_stack::spawn(move || {
            // Nobody listens any more where the request was given up.
            let _ = answer.send(judging.judge(&seen));
            drop(place);
        });
        begun.map_err(|error| failed(matching, error.to_string()))?;
        let panicked = |_| {
            failed(
                matching,
                "the library that evaluates it panicked".to_owned(),
            )
        };
        answered.await.map_err(panicked)?
    }
}

fn failed(matching: &Matching, reason: String) -> JudgeError {
    let name = matching.name();
    JudgeError { name, reason }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use ipu_api::ipupolicy::Hook;
    use serde_json::{Value, json};

    use super::*;
    use crate::matching::Seen;

    fn entry(name: &str, expression: Option<&str>) -> Entry {
        let conditions = expression.map(|text| json!([{"name": "c", "expression": text}]));
        let wanted = json!({"matchConditions": conditions.unwrap_or(json!([]))});
        let matching = Matching::new(Some(&serde_json::from_value(wanted).unwrap()));
        Entry {
            name: name.into(),
            matching: Arc::new(matching.unwrap()),
            ..Entry::built_in(Hook::Validation)
        }
    }

    #[tokio::test]
    async fn what_does_not_concern_a_guest_is_left_to_the_one_whose_place_it_has() {
        let (judges, seen) = (Judges::default(), Seen::default());
        let subject = Subject {
            namespace_labels: None,
            seen: &seen,
        };
        let seat = [entry("new", Some("false")), entry("old", None)];
        let (found, judged) = judges
            .concerned(&seat, &subject, Purpose::Decision)
            .await
            .unwrap();
        assert_eq!((&*found.name, judged), ("old", Ok(())));
        let seat = [entry("broken", Some("object.x.y")), entry("old", None)];
        let (found, judged) = judges
            .concerned(&seat, &subject, Purpose::Decision)
            .await
            .unwrap();
        assert_eq!(&*found.name, "broken");
        assert!(judged.is_err());
        let seat = [entry("new", Some("false"))];
        assert!(
            judges
                .concerned(&seat, &subject, Purpose::Decision)
                .await
                .is_none()
        );
    }

    #[tokio::test]
    async fn questions_leave_a_place_for_decisions_and_one_address_does_not_hold_up_another() {
        let (judges, seen) = (Judges::default(), Seen::default());
        let subject = Subject {
            namespace_labels: None,
            seen: &seen,
        };
        let matching = entry("a", Some("true")).matching;
        let judge = |purpose| Box::pin(judges.concerns(&matching, &subject, purpose));
        let asked = judges.questions.acquire(None).await;
        let _place = judges.places.acquire(None).await;
        let mut question = judge(Purpose::Question);
        assert!(question.as_mut().now_or_never().is_none());
        assert_eq!(judge(Purpose::Decision).await, Ok(true));

        let other = judges.places.acquire(None).await;
        let many = Purpose::Review(Some([10, 0, 0, 1].into()));
        let mut flood: Vec<_> = (0..16).map(|_| judge(many)).collect();
        for waiting in &mut flood {
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        let mut one = judge(Purpose::Review(Some([10, 0, 0, 2].into())));
        assert!(one.as_mut().now_or_never().is_none());
        drop(other);
        // The first of the many has the only place, and the one comes next, before all others of them.
        let first = flood.remove(0).await;
        assert_eq!((first, one.await), (Ok(true), Ok(true)));
        drop(asked);
    }

    #[tokio::test]
    async fn other_tasks_of_the_thread_go_on_while_a_condition_is_evaluated() {
        // As much as may be evaluated at all, on a runtime of one thread.
        let expression = "object.all(a, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(b, a == a))";
        let seen = Seen {
            object: Some(Arc::new(json!(vec![Value::Null; 5_000]))),
            ..Seen::default()
        };
        let (judges, seat) = (Judges::default(), [entry("slow", Some(expression))]);
        let subject = Subject {
            namespace_labels: None,
            seen: &seen,
        };
        let mut judging = std::pin::pin!(judges.concerned(&seat, &subject, Purpose::Decision));
        let mut others = 0;
        let judged = loop {
            tokio::select! {
                biased;
                judged = &mut judging => break judged,
                () = tokio::task::yield_now() => others += 1,
            }
        };
        assert_eq!(judged.unwrap().1, Ok(()));
        assert!(others > 10, "others came {others} times");
    }
}
