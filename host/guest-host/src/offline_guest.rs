//! A guest outside of the operator, for the commands for authors: calls a component and measures
//! each call.

use std::path::Path;
use std::time::{Duration, Instant};

use ipu_api::guest::digest::{ModuleDigest, digest_of};
use ipu_api::ipupolicy::Hook;

use super::bindings::{self, Linked};
use super::call::{Call, Callable};
use super::capabilities::check_format;
use super::compile::Compiler;
use super::engine::GuestEngine;
use super::guest_error::GuestError;
use super::inspect::{InspectError, explained, no_world};
use super::limits::Limits;
use super::load::{self, LoadError};
use super::policy_request::{Answer, PolicyRequest, Review};
use super::samples;

/// The budget of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// A deadline, as in the operator.
    Time,
    /// Units of fuel. A call ends after the same instruction on every machine. Calls are slower.
    Fuel(u64),
}

/// Deadline of a call with a fuel budget. A guest cannot wait without consuming fuel, so no call
/// reaches it.
const FUEL_DEADLINE: Duration = Duration::from_mins(10);

/// A component, compiled and checked against its world.
pub struct OfflineGuest {
    engine: GuestEngine,
    linked: Linked,
    hook: Hook,
    digest: ModuleDigest,
}

/// Result of one call.
#[derive(Debug)]
pub struct CallResult {
    /// The answer.
    pub answer: Result<Answer, GuestError>,
    /// Duration of the call.
    pub time: Duration,
    /// Peak memory of the instance, in bytes.
    pub memory: usize,
    /// Consumed fuel, if it was counted.
    pub fuel: Option<u64>,
}

impl OfflineGuest {
    /// Compiles the file and checks it against the world of `hook`. Without a hook, its exports
    /// decide.
    pub fn open(
        file: &Path,
        hook: Option<Hook>,
        limits: Limits,
        budget: Budget,
    ) -> Result<Self, InspectError> {
        let engine = match budget {
            Budget::Time => GuestEngine::compiling(limits),
            Budget::Fuel(fuel) => {
                let limits = Limits {
                    deadline: FUEL_DEADLINE,
                    ..limits
                };
                GuestEngine::metered(limits, fuel)
            }
        }?;
        let bytes = load::read(file, limits.module)?;
        check_format(&bytes)?;
        let compiled = Compiler::InProcess.compile(&engine, &bytes);
        let component = compiled.map_err(LoadError::from)?.component;
        let hook = hook
            .or_else(|| bindings::exported_hook(&component))
            .ok_or_else(|| no_world(&component))?;
        let linked =
            load::check(&component, hook).map_err(|error| explained(error, hook, &bytes))?;
        Ok(Self {
            engine,
            linked,
            hook,
            digest: digest_of(&bytes),
        })
    }

    /// Returns the hook of its world.
    pub fn hook(&self) -> Hook {
        self.hook
    }

    /// Returns the digest of the file.
    pub fn digest(&self) -> &ModuleDigest {
        &self.digest
    }

    /// Returns the sample request with which the operator tests a policy of this world.
    pub fn sample_request(&self) -> PolicyRequest {
        samples::request(self.hook)
    }

    /// Calls it once, in a new instance with these settings (JSON).
    pub fn call(&self, settings: &str, request: &PolicyRequest) -> CallResult {
        match self.caller(settings) {
            Ok(call) => call(request),
            Err(error) => CallResult {
                answer: Err(error),
                time: Duration::ZERO,
                memory: 0,
                fuel: None,
            },
        }
    }

    /// Validates the settings, and returns a function that calls it with them.
    pub fn caller(
        &self,
        settings: &str,
    ) -> Result<impl Fn(&PolicyRequest) -> CallResult, GuestError> {
        let (engine, linked) = (self.engine.clone(), self.linked.clone());
        let callable = Callable::new(engine, linked, settings.to_owned());
        callable.begin().validate_settings()?;
        Ok(move |request: &PolicyRequest| measured(&callable, request))
    }
}

fn measured(callable: &Callable, request: &PolicyRequest) -> CallResult {
    let begin = Instant::now();
    let mut call = callable.begin();
    let answer = answer(&mut call, request);
    CallResult {
        answer,
        time: begin.elapsed(),
        memory: call.memory(),
        fuel: call.fuel(),
    }
}

/// Returns the answer to a request of any world.
pub(super) fn answer(call: &mut Call<'_>, request: &PolicyRequest) -> Result<Answer, GuestError> {
    let texts = |value: &Review| {
        let old = value.old_object.as_ref().map(ToString::to_string);
        (value.admission(), value.object.to_string(), old)
    };
    match request {
        PolicyRequest::Defaulting(review) => {
            call.default_object(texts(review)).map(Answer::Defaulting)
        }
        PolicyRequest::Validation(review) => call.validate(texts(review)).map(Answer::Verdict),
        PolicyRequest::Placement(placement) => call
            .place(
                &placement.request,
                &placement.controllers,
                &placement.attempts,
            )
            .map(Answer::Decision),
    }
}
