//! Asks guests: each call with a permit, counted, and told to whoever listens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ipu_runtime::panics::caught_now;
use ipu_text::explain;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tracing::Instrument;

use super::Policies;
use super::permits::{Permit, Wanted};
use crate::call::{Call, GuestError};
use crate::facts::Admission;
use crate::guest::{Guest, Kind};
use crate::metrics::Unasked;
use crate::model::{
    ControllerView, Decision, Defaulting, ModuleDigest, PlaceAttempt, PlaceRequest, Served, Slot,
    Verdict,
};
use crate::question::{Answer, Placing, Question, Review};

/// What a guest is asked about, with the object and the old one as the text that it gets.
type Written = (Admission, String, Option<String>);

impl Policies {
    /// Asks a defaulting guest for the object as it should be.
    pub async fn default_object(
        &self,
        guest: &Guest,
        admission: &Admission,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<Served<Defaulting>, GuestError> {
        let asked = (Slot::Defaulting, admission, object, old);
        self.review(
            guest,
            asked,
            Question::Defaulting,
            |call, (admission, object, old)| call.default_object(&admission, object, old),
        )
        .await
    }

    /// Asks a validation guest for every rule that the object breaks.
    pub async fn validate(
        &self,
        guest: &Guest,
        admission: &Admission,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<Served<Verdict>, GuestError> {
        let asked = (Slot::Validation, admission, object, old);
        self.review(
            guest,
            asked,
            Question::Validation,
            |call, (admission, object, old)| call.validate(&admission, object, old),
        )
        .await
    }

    /// Asks a placement guest what to do next for a wanted partition.
    pub async fn place(
        &self,
        guest: &Guest,
        request: &PlaceRequest,
        controllers: &[ControllerView],
        attempts: &[PlaceAttempt],
    ) -> Result<Served<Decision>, GuestError> {
        let placing = Arc::new(Placing {
            request: request.clone(),
            controllers: controllers.to_vec(),
            attempts: attempts.to_vec(),
        });
        let asked = Arc::clone(&placing);
        let dry_run = request.facts.progress.dry_run;
        let answer = self
            .call((guest, Slot::Placement), dry_run, move |call| {
                call.place(&asked.request, &asked.controllers, &asked.attempts)
            })
            .await;
        self.tell((guest, Slot::Placement), &answer, || {
            Question::Placement(Placing::clone(&placing))
        });
        answer
    }

    /// Asks a guest about an object on its way into the API server.
    async fn review<T: Clone + Into<Answer> + Send + 'static>(
        &self,
        guest: &Guest,
        (slot, admission, object, old): (Slot, &Admission, &Value, Option<&Value>),
        question: fn(Review) -> Question,
        ask: fn(&mut Call<'_>, Written) -> Result<T, GuestError>,
    ) -> Result<Served<T>, GuestError> {
        let asked = (
            admission.clone(),
            object.to_string(),
            old.map(ToString::to_string),
        );
        let answer = self
            .call((guest, slot), false, move |call| ask(call, asked))
            .await;
        self.tell((guest, slot), &answer, || {
            question(Review::of(admission.clone(), object.clone(), old.cloned()))
        });
        answer
    }

    /// Waits for a permit and makes one call off the async threads. The permit ends when the call's
    /// instance is gone, which whoever asked does not wait for.
    async fn call<T: Send + 'static>(
        &self,
        (guest, slot): (&Guest, Slot),
        dry_run: bool,
        ask: impl FnOnce(&mut Call<'_>) -> Result<T, GuestError> + Send + 'static,
    ) -> Result<Served<T>, GuestError> {
        let policy = match &guest.0 {
            Kind::BuiltIn => None,
            Kind::Module(_, permits) => Some(permits),
            Kind::Missing(reason) => {
                let error = GuestError::NotReady(reason.to_string());
                self.calls.called(slot, None, Some(&error), Duration::ZERO);
                return Err(error);
            }
        };
        let wanted = Wanted {
            policy,
            asker: self.asker,
            dry_run,
        };
        let span = tracing::trace_span!("guest", hook = ?slot);
        let (permit, waited) = self
            .inner
            .permits
            .acquire(wanted)
            .instrument(span.clone())
            .await;
        self.calls.waited(slot, waited);
        let Some(permit) = permit else {
            self.calls.given_up(slot, Unasked::Busy);
            return Err(GuestError::Busy { slot, waited });
        };
        let began = Instant::now();
        let answer = self.run((guest, slot), permit, ask).instrument(span).await;
        let digest = self.digest_of((guest, slot), &answer);
        let digest = digest.as_ref().map(ModuleDigest::as_str);
        let error = answer.as_ref().err();
        self.calls.called(slot, digest, error, began.elapsed());
        answer
    }

    /// Tells whoever listens of a call.
    fn tell<T: Clone + Into<Answer>>(
        &self,
        called: (&Guest, Slot),
        answer: &Result<Served<T>, GuestError>,
        question: impl FnOnce() -> Question,
    ) {
        let tap = &self.inner.tap;
        if tap.is_open()
            && let Some(digest) = self.digest_of(called, answer)
        {
            let told = answer.as_ref().map(|served| served.answer.clone().into());
            tap.tell(question(), told.map_err(|error| explain(error)), digest);
        }
    }

    /// Digest of the module that gave an answer, or would have; none where there is none.
    fn digest_of<T>(
        &self,
        (guest, slot): (&Guest, Slot),
        answer: &Result<Served<T>, GuestError>,
    ) -> Option<ModuleDigest> {
        match (answer, &guest.0) {
            (Ok(served), _) => Some(served.digest.clone()),
            (_, Kind::BuiltIn) => self.built_in(slot).cloned(),
            (_, Kind::Module(module, _)) => Some(module.digest.clone()),
            (_, Kind::Missing(_)) => None,
        }
    }

    async fn run<T: Send + 'static>(
        &self,
        (guest, slot): (&Guest, Slot),
        permit: Permit,
        ask: impl FnOnce(&mut Call<'_>) -> Result<T, GuestError> + Send + 'static,
    ) -> Result<Served<T>, GuestError> {
        let module = match &guest.0 {
            Kind::BuiltIn => self.module(slot).ok_or(GuestError::Missing(slot))?.clone(),
            Kind::Module(module, _) => module.clone(),
            Kind::Missing(reason) => return Err(GuestError::NotReady(reason.to_string())),
        };
        let digest = module.digest.clone();
        let (answer, answered) = oneshot::channel();
        spawn_blocking(move || {
            let mut call = module.callable.begin();
            let said = caught_now(|| ask(&mut call));
            let said = said.unwrap_or_else(|panicked| Err(GuestError::Call(panicked.into())));
            // Nobody listens any more where the request was given up.
            let _ = answer.send(said);
            drop((call, permit));
        });
        let answer = answered
            .await
            .map_err(|error| GuestError::Call(error.into()))??;
        Ok(Served { answer, digest })
    }
}
