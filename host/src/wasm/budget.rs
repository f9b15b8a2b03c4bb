//! Counts what a call of a guest takes in fuel, once, before it serves anybody: an engine that counts is
//! too slow for calls that somebody waits for.

use std::path::Path;
use std::time::Duration;

use super::call::Callable;
use super::compile::{CompileError, Compiler};
use super::engine::GuestEngine;
use super::limits::Limits;
use super::load::{self, LoadError};
use super::model::Slot;
use super::samples;
use super::trial;

/// Longest time of the call. Without counting it has ended within its own deadline.
const PATIENCE: Duration = Duration::from_mins(1);

/// A guest whose calls are counted, and by whom it is compiled.
pub(super) struct Counted<'a> {
    pub(super) compiler: &'a Compiler,
    pub(super) cache_dir: Option<&'a Path>,
    pub(super) limits: Limits,
    pub(super) slot: Slot,
    pub(super) bytes: &'a [u8],
    pub(super) settings: &'a str,
}

impl Counted<'_> {
    /// Refuses a guest whose call on the sample request takes more than `budget` units of fuel, which
    /// are about as many instructions. Blocks while it compiles.
    pub(super) fn keep_within(&self, budget: u64) -> Result<(), LoadError> {
        let limits = Limits {
            deadline: PATIENCE,
            concurrent: 1,
            ..self.limits
        };
        let engine =
            GuestEngine::metered(limits, u64::MAX, self.cache_dir).map_err(CompileError::from)?;
        let component = self.compiler.compile(&engine, self.bytes)?;
        let linked = load::check(&component, self.slot)?;
        let callable = Callable::new(engine, linked, self.settings.to_owned());
        let mut call = callable.begin();
        // It has answered this request before, with a clock; how it answers is its own affair.
        let _ = trial::answer(&mut call, &samples::question(self.slot));
        let taken = call.fuel().unwrap_or_default();
        if taken > budget {
            return Err(LoadError::Fuel { taken, budget });
        }
        Ok(())
    }
}
