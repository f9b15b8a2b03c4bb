//! One component that is tried: asked many times, with what each call took, and never in use.

use std::path::Path;
use std::time::{Duration, Instant};

use super::bindings::{self, Linked};
use super::call::{Call, Callable, GuestError};
use super::capabilities::recognize;
use super::compile::Compiler;
use super::engine::GuestEngine;
use super::inspect::{InspectError, explained, no_world};
use super::limits::Limits;
use super::load::{self, LoadError};
use super::model::{ModuleDigest, Slot};
use super::question::{Answer, Question, Review};
use super::samples;

/// What calls are measured and ended by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meter {
    /// The clock alone, as in the operator.
    Time,
    /// Instructions: a call ends when it has spent this many units of fuel, on every machine at the
    /// same one. Calls are slower.
    Fuel(u64),
}

/// Most time of a call whose end is told by fuel; only a guest that waits without spending any
/// would meet it, and there is nothing that it could wait for.
const FUEL_TIME: Duration = Duration::from_mins(10);

/// A component, compiled and checked against its world. It was not asked anything yet.
pub struct Trial {
    engine: GuestEngine,
    linked: Linked,
    slot: Slot,
    digest: ModuleDigest,
}

/// What became of one request.
#[derive(Debug)]
pub struct Asked {
    /// The answer.
    pub answer: Result<Answer, GuestError>,
    /// Time from the beginning of the call to its answer.
    pub time: Duration,
    /// Most memory that the instance had, in bytes.
    pub memory: usize,
    /// Fuel that was spent, where it was counted.
    pub fuel: Option<u64>,
}

impl Trial {
    /// Compiles the file and checks it against the world of `slot`, or the one that its exports
    /// tell.
    pub fn open(
        file: &Path,
        slot: Option<Slot>,
        limits: Limits,
        meter: Meter,
    ) -> Result<Self, InspectError> {
        let engine = match meter {
            Meter::Time => GuestEngine::compiling(limits),
            Meter::Fuel(budget) => {
                let limits = Limits {
                    deadline: FUEL_TIME,
                    ..limits
                };
                GuestEngine::metered(limits, budget)
            }
        }?;
        let bytes = load::read(file, limits.module)?;
        recognize(&bytes)?;
        let component = Compiler::Here
            .compile(&engine, &bytes)
            .map_err(LoadError::from)?;
        let slot = slot
            .or_else(|| bindings::exported_slot(&component))
            .ok_or_else(|| no_world(&component))?;
        let linked =
            load::check(&component, slot).map_err(|error| explained(error, slot, &bytes))?;
        Ok(Self {
            engine,
            linked,
            slot,
            digest: load::digest(&bytes),
        })
    }

    /// The slot whose world it implements.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// Digest of the file.
    pub fn digest(&self) -> &ModuleDigest {
        &self.digest
    }

    /// The request that the operator tries a policy of this world on.
    pub fn sample(&self) -> Question {
        samples::question(self.slot)
    }

    /// Asks once, in a fresh instance with these settings (JSON).
    pub fn ask(&self, settings: &str, question: &Question) -> Asked {
        match self.asking(settings) {
            Ok(asking) => asking(question),
            Err(error) => Asked {
                answer: Err(error),
                time: Duration::ZERO,
                memory: 0,
                fuel: None,
            },
        }
    }

    /// What asks again and again with the same settings, once they are accepted.
    pub fn asking(&self, settings: &str) -> Result<impl Fn(&Question) -> Asked, GuestError> {
        let (engine, linked) = (self.engine.clone(), self.linked.clone());
        let callable = Callable::new(engine, linked, settings.to_owned());
        callable.begin().validate_settings()?;
        Ok(move |question: &Question| asked(&callable, question))
    }
}

fn asked(callable: &Callable, question: &Question) -> Asked {
    let begin = Instant::now();
    let mut call = callable.begin();
    let answer = answer(&mut call, question);
    Asked {
        answer,
        time: begin.elapsed(),
        memory: call.memory(),
        fuel: call.fuel(),
    }
}

/// The answer to one request, whichever world it is of.
pub(super) fn answer(call: &mut Call<'_>, question: &Question) -> Result<Answer, GuestError> {
    let texts = |value: &Review| {
        let old = value.old_object.as_ref().map(ToString::to_string);
        (value.object.to_string(), old)
    };
    match question {
        Question::Defaulting(review) => {
            let (object, old) = texts(review);
            call.default_object(&review.admission(), object, old)
                .map(Answer::Defaulting)
        }
        Question::Validation(review) => {
            let (object, old) = texts(review);
            call.validate(&review.admission(), object, old)
                .map(Answer::Verdict)
        }
        Question::Placement(placing) => call
            .place(&placing.request, &placing.controllers, &placing.attempts)
            .map(Answer::Decision),
    }
}
