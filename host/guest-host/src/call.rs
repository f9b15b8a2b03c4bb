//! Calls of one loaded module: each in a fresh instance, within limits, with errors told by type.

use ipu_runtime::bounded_json::{self, Budget};
use wasmtime::{Store, Trap};

use super::bindings::{Answered, DefaultingText, Linked};
use super::engine::GuestEngine;
use super::facts::Admission;
use super::limits::Limits;
use super::model::{
    ControllerView, Decision, Defaulted, Defaulting, PlaceAttempt, PlaceRequest, Slot, Verdict,
};
use super::store::{CallState, OverLimit, Starved};
use super::texts::{self, FromGuest};
use super::wasi::NotThere;

/// Why a policy gave no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// No module is loaded in this slot.
    #[error("no {0} policy is loaded")]
    Missing(Slot),
    /// The guest is to be asked, and is not ready.
    #[error("the policy is not ready: {0}")]
    NotReady(String),
    /// It cannot be said whether the guest is to be asked.
    #[error("it cannot be said whether the policy is to be asked: {0}")]
    Unjudged(String),
    /// Others took the time of the request.
    #[error(
        "the {0:?} that all policies of a request have together were over before this one answered, \
         though it may not have been slow itself"
    )]
    OutOfTime(std::time::Duration),
    /// As many calls were under way as may be, for too long.
    #[error(
        "the {slot} policy is busy: as many of its calls as may run at once did not end within \
         {waited:?}"
    )]
    Busy {
        /// Which policy.
        slot: Slot,
        /// How long the call waited.
        waited: std::time::Duration,
    },
    /// The call ran past its deadline.
    #[error("the policy did not answer within its deadline of {0:?}")]
    Deadline(std::time::Duration),
    /// Others had the processor for so long that nobody waited any longer.
    #[error(
        "the policy did not answer in time, and ran for much less than its deadline of {deadline:?}, since others had the \
         processor"
    )]
    Starved {
        /// The deadline of its own time.
        deadline: std::time::Duration,
        /// What it had.
        #[source]
        source: Starved,
    },
    /// The call asked for more memory than it may have.
    #[error("the policy asked for more than it may have")]
    Memory(#[source] OverLimit),
    /// The guest's code trapped.
    #[error("the policy trapped: {0}")]
    Trap(Trap),
    /// The guest called something of WASI that no policy has.
    #[error("the policy has no files, no network and no way out")]
    NotThere(#[source] NotThere),
    /// The answer is larger than allowed.
    #[error("the policy's answer has {size} bytes, more than the {limit} allowed")]
    OutputTooLarge {
        /// Size of the answer, in bytes.
        size: usize,
        /// Largest allowed size, in bytes.
        limit: usize,
    },
    /// The guest does not accept the admin's settings.
    #[error("the policy does not accept its settings: {0}")]
    Settings(String),
    /// The guest says that it failed itself.
    #[error("the policy failed: {0}")]
    Failed(String),
    /// The answer is not what the contract says.
    #[error("the policy's answer breaks the contract: {0}")]
    BadAnswer(String),
    /// The host could not make the call, or not read its answer.
    #[error("failed to call the policy")]
    Call(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl GuestError {
    /// Whether the guest is to blame.
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Deadline(_)
            | Self::Memory(_)
            | Self::Trap(_)
            | Self::NotThere(_)
            | Self::OutputTooLarge { .. }
            | Self::Settings(_)
            | Self::Failed(_)
            | Self::BadAnswer(_)
            | Self::Call(_) => true,
            Self::Missing(_)
            | Self::NotReady(_)
            | Self::Unjudged(_)
            | Self::OutOfTime(_)
            | Self::Busy { .. }
            | Self::Starved { .. } => false,
        }
    }
}

/// A module that was checked against its world and can be called.
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

    /// Begins one call, whose deadline begins now.
    pub(super) fn begin(&self) -> Call<'_> {
        Call {
            callable: self,
            store: CallState::store(&self.engine, self.linked.slot()),
        }
    }
}

/// One call: a store that the instance lives in until this is dropped. To put its memory back takes
/// about as long as to make it, which whoever waits for the answer need not wait for.
pub(super) struct Call<'a> {
    callable: &'a Callable,
    store: Store<CallState>,
}

impl Call<'_> {
    /// Asks whether the policy accepts its settings.
    pub(super) fn validate_settings(&mut self) -> Result<(), GuestError> {
        self.run(Linked::validate_settings)
    }

    /// Asks a defaulting policy; objects are JSON.
    pub(super) fn default_object(
        &mut self,
        admission: &Admission,
        object: String,
        old: Option<String>,
    ) -> Result<Defaulting, GuestError> {
        let answer = self.run(|linked, store, settings| {
            linked.default_object(store, settings, admission, object, old)
        })?;
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

    /// Asks a validation policy; objects are JSON.
    pub(super) fn validate(
        &mut self,
        admission: &Admission,
        object: String,
        old: Option<String>,
    ) -> Result<Verdict, GuestError> {
        self.run(|linked, store, settings| linked.validate(store, settings, admission, object, old))
    }

    /// Asks a placement policy.
    pub(super) fn place(
        &mut self,
        request: &PlaceRequest,
        controllers: &[ControllerView],
        attempts: &[PlaceAttempt],
    ) -> Result<Decision, GuestError> {
        self.run(|linked, store, settings| {
            linked.place(store, settings, request, controllers, attempts)
        })
    }

    /// Most memory that the instance has had so far, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.store.data().memory()
    }

    /// Fuel that was spent so far, where the engine counts it.
    pub(super) fn fuel(&self) -> Option<u64> {
        let budget = self.callable.engine.fuel?;
        Some(budget.saturating_sub(self.store.get_fuel().ok()?))
    }

    /// Runs the guest, and tells by type why it ended badly. Whatever text of the guest's is in the answer or
    /// the error fits where it is shown.
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
    if let Some(nothing) = error.downcast_ref::<NotThere>() {
        return GuestError::NotThere(nothing.clone());
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt) => GuestError::Deadline(limits.deadline),
        Some(trap) => GuestError::Trap(*trap),
        None => GuestError::Call(error.into()),
    }
}
