//! Calls guests: each call has a permit, metrics and a recording.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ipu_api::guest::admission::{Admission, Defaulting, Verdict};
use ipu_api::guest::digest::ModuleDigest;
use ipu_api::guest::placement::{
    ControllerView, Decision, PartitionRequest, PlaceAttempt, PlacementRequest,
};
use ipu_api::ipupolicy::Hook;
use ipu_runtime::panics::caught_now;
use ipu_text::explain;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tracing::Instrument;

use super::GuestHost;
use super::permits::{CallKind, Permit};
use crate::bindings::ReviewText;
use crate::call::Call;
use crate::guest::{Guest, Kind};
use crate::guest_error::GuestError;
use crate::metrics::SkipReason;
use crate::model::Served;
use crate::policy_request::{Answer, PolicyRequest, Review};

impl GuestHost {
    /// Calls a defaulting guest.
    pub async fn default_object(
        &self,
        guest: &Guest,
        admission: &Admission,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<Served<Defaulting>, GuestError> {
        let review = (Hook::Defaulting, admission, object, old);
        self.review(guest, review, PolicyRequest::Defaulting, |call, text| {
            call.default_object(text)
        })
        .await
    }

    /// Calls a validation guest.
    pub async fn validate(
        &self,
        guest: &Guest,
        admission: &Admission,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<Served<Verdict>, GuestError> {
        let review = (Hook::Validation, admission, object, old);
        self.review(guest, review, PolicyRequest::Validation, |call, text| {
            call.validate(text)
        })
        .await
    }

    /// Calls a placement guest.
    pub async fn place(
        &self,
        guest: &Guest,
        request: &PartitionRequest,
        controllers: &[ControllerView],
        attempts: &[PlaceAttempt],
    ) -> Result<Served<Decision>, GuestError> {
        let placement = Arc::new(PlacementRequest {
            request: request.clone(),
            controllers: controllers.to_vec(),
            attempts: attempts.to_vec(),
        });
        let called = Arc::clone(&placement);
        let dry_run = request.context.progress.dry_run;
        let answer = self
            .call((guest, Hook::Placement), dry_run, move |call| {
                call.place(&called.request, &called.controllers, &called.attempts)
            })
            .await;
        self.record((guest, Hook::Placement), &answer, || {
            PolicyRequest::Placement(PlacementRequest::clone(&placement))
        });
        answer
    }

    /// Calls an admission guest.
    async fn review<T: Clone + Into<Answer> + Send + 'static>(
        &self,
        guest: &Guest,
        (hook, admission, object, old): (Hook, &Admission, &Value, Option<&Value>),
        request: fn(Review) -> PolicyRequest,
        call: fn(&mut Call<'_>, ReviewText) -> Result<T, GuestError>,
    ) -> Result<Served<T>, GuestError> {
        let texts = (
            admission.clone(),
            object.to_string(),
            old.map(ToString::to_string),
        );
        let answer = self
            .call((guest, hook), false, move |guest_call| {
                call(guest_call, texts)
            })
            .await;
        self.record((guest, hook), &answer, || {
            request(Review::of(admission.clone(), object.clone(), old.cloned()))
        });
        answer
    }

    /// Waits for a permit and makes one call off the async threads. The caller gets the answer
    /// before the instance and its permit are released.
    async fn call<T: Send + 'static>(
        &self,
        (guest, hook): (&Guest, Hook),
        dry_run: bool,
        call: impl FnOnce(&mut Call<'_>) -> Result<T, GuestError> + Send + 'static,
    ) -> Result<Served<T>, GuestError> {
        let policy = match &guest.0 {
            Kind::BuiltIn => None,
            Kind::Module(_, permits) => Some(permits),
            Kind::Missing(reason) => {
                let error = GuestError::NotReady(reason.to_string());
                self.metrics
                    .record_call(hook, None, Some(&error), Duration::ZERO);
                return Err(error);
            }
        };
        let kind = CallKind {
            policy,
            caller: self.caller,
            dry_run,
        };
        let span = tracing::trace_span!("guest", hook = ?hook);
        let (permit, waited) = self
            .inner
            .permits
            .acquire(kind)
            .instrument(span.clone())
            .await;
        self.metrics.record_wait(hook, waited);
        let Some(permit) = permit else {
            self.metrics.count_skipped(hook, SkipReason::Busy);
            return Err(GuestError::Busy { hook, waited });
        };
        let began = Instant::now();
        let answer = self.run((guest, hook), permit, call).instrument(span).await;
        let digest = self.digest_of((guest, hook), &answer);
        let digest = digest.as_ref().map(ModuleDigest::as_str);
        let error = answer.as_ref().err();
        self.metrics
            .record_call(hook, digest, error, began.elapsed());
        answer
    }

    /// Records a call, if a recording is under way.
    fn record<T: Clone + Into<Answer>>(
        &self,
        called: (&Guest, Hook),
        answer: &Result<Served<T>, GuestError>,
        request: impl FnOnce() -> PolicyRequest,
    ) {
        let recorder = &self.inner.recorder;
        if recorder.is_active()
            && let Some(digest) = self.digest_of(called, answer)
        {
            let answer = answer.as_ref().map(|served| served.answer.clone().into());
            recorder.record(request(), answer.map_err(|error| explain(error)), digest);
        }
    }

    /// Returns the digest of the called module. `None` if no module is loaded.
    fn digest_of<T>(
        &self,
        (guest, hook): (&Guest, Hook),
        answer: &Result<Served<T>, GuestError>,
    ) -> Option<ModuleDigest> {
        match (answer, &guest.0) {
            (Ok(served), _) => Some(served.digest.clone()),
            (_, Kind::BuiltIn) => self.built_in(hook).cloned(),
            (_, Kind::Module(module, _)) => Some(module.digest.clone()),
            (_, Kind::Missing(_)) => None,
        }
    }

    async fn run<T: Send + 'static>(
        &self,
        (guest, hook): (&Guest, Hook),
        permit: Permit,
        call: impl FnOnce(&mut Call<'_>) -> Result<T, GuestError> + Send + 'static,
    ) -> Result<Served<T>, GuestError> {
        let module = match &guest.0 {
            Kind::BuiltIn => self.module(hook).ok_or(GuestError::Missing(hook))?.clone(),
            Kind::Module(module, _) => module.clone(),
            Kind::Missing(reason) => return Err(GuestError::NotReady(reason.to_string())),
        };
        let digest = module.digest.clone();
        let (sender, receiver) = oneshot::channel();
        spawn_blocking(move || {
            let mut instance = module.callable.begin();
            let answer = caught_now(|| call(&mut instance));
            let answer = answer.unwrap_or_else(|panicked| Err(GuestError::Call(panicked.into())));
            // The receiver is gone if the request was cancelled.
            let _ = sender.send(answer);
            drop((instance, permit));
        });
        let answer = receiver
            .await
            .map_err(|error| GuestError::Call(error.into()))??;
        Ok(Served { answer, digest })
    }
}
