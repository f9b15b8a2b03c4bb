//! Calls of one loaded module: each has a new instance and limits.

use ipu_api::guest::admission::{Defaulted, Defaulting, Verdict};
use ipu_api::guest::placement::{ControllerView, Decision, PartitionRequest, PlaceAttempt};
use ipu_runtime::bounded_json::{self, Budget};
use wasmtime::{Store, Trap};

use super::bindings::{Answered, DefaultingText, Linked, ReviewText};
use super::call_state::{CallState, Starved};
use super::engine::GuestEngine;
use super::guest_error::GuestError;
use super::limits::{Limits, OverLimit};
use super::texts::{self, FromGuest};
use super::wasi::UnsupportedWasi;

/// A module that was checked against its world.
pub(super) struct Callable {
    engine: GuestEngine,
    linked: Linked,
    settings: String,
}

impl Callable {
    pub(super) fn new(engine: GuestEngine, linked: Linked, settings: String) -> Self {
        Self {
            engine,
            linked,
            settings,
        }
    }

    /// Starts a call and its deadline.
    pub(super) fn begin(&self) -> Call<'_> {
        Call {
            callable: self,
            store: CallState::store(&self.engine, self.linked.hook()),
        }
    }
}

/// One call, which owns the instance. Dropping it takes about as long as instantiation, so the
/// answer is sent first.
pub(super) struct Call<'a> {
    callable: &'a Callable,
    store: Store<CallState>,
}

impl Call<'_> {
    /// Validates the settings.
    pub(super) fn validate_settings(&mut self) -> Result<(), GuestError> {
        self.run(Linked::validate_settings)
    }

    /// Calls a defaulting guest.
    pub(super) fn default_object(&mut self, review: ReviewText) -> Result<Defaulting, GuestError> {
        let answer =
            self.run(|linked, store, settings| linked.default_object(store, settings, review))?;
        let (object, warnings) = match answer {
            DefaultingText::Defaulted { object, warnings } => (object, warnings),
            DefaultingText::Refused(violations) if violations.is_empty() => {
                let why = "it refuses the object and names no rule that is broken";
                return Err(GuestError::BadAnswer(why.to_owned()));
            }
            DefaultingText::Refused(violations) => return Ok(Defaulting::Refused { violations }),
        };
        let limit = self.callable.engine.limits.tree;
        let object = bounded_json::parse(object.as_bytes(), Budget::of_memory(limit))
            .map_err(|why| GuestError::BadAnswer(format!("the object {why}")))
            .map_err(texts::sanitized)?;
        Ok(Defaulting::Defaulted(Defaulted { object, warnings }))
    }

    /// Calls a validation guest.
    pub(super) fn validate(&mut self, review: ReviewText) -> Result<Verdict, GuestError> {
        self.run(|linked, store, settings| linked.validate(store, settings, review))
    }

    /// Calls a placement guest.
    pub(super) fn place(
        &mut self,
        request: &PartitionRequest,
        controllers: &[ControllerView],
        attempts: &[PlaceAttempt],
    ) -> Result<Decision, GuestError> {
        self.run(|linked, store, settings| {
            linked.place(store, settings, request, controllers, attempts)
        })
    }

    /// Returns the peak memory of the instance, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.store.data().memory()
    }

    /// Returns the consumed fuel, if the engine counts it.
    pub(super) fn fuel(&self) -> Option<u64> {
        let budget = self.callable.engine.fuel?;
        Some(budget.saturating_sub(self.store.get_fuel().ok()?))
    }

    /// Runs the guest. All texts of the guest in the answer or the error are sanitized.
    fn run<T: FromGuest>(
        &mut self,
        call: impl FnOnce(&Linked, &mut Store<CallState>, &str) -> Answered<T>,
    ) -> Result<T, GuestError> {
        let Callable {
            engine,
            linked,
            settings,
        } = self.callable;
        let limits = &engine.limits;
        let answer = call(linked, &mut self.store, settings)
            .unwrap_or_else(|error| Err(classified(error, limits)))
            .map_err(texts::sanitized)?;
        let (size, limit) = (answer.size(), limits.output);
        if size > limit {
            return Err(GuestError::OutputTooLarge { size, limit });
        }
        Ok(answer.sanitized())
    }
}

fn classified(error: wasmtime::Error, limits: &Limits) -> GuestError {
    if let Some(over) = error.downcast_ref::<OverLimit>() {
        return GuestError::Memory(*over);
    }
    if let Some(starved) = error.downcast_ref::<Starved>() {
        return GuestError::Starved {
            deadline: limits.deadline,
            source: *starved,
        };
    }
    if let Some(function) = error.downcast_ref::<UnsupportedWasi>() {
        return GuestError::UnsupportedWasi(function.clone());
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt) => GuestError::Deadline(limits.deadline),
        Some(trap) => GuestError::Trap(*trap),
        None => GuestError::Call(error.into()),
    }
}
