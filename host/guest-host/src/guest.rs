//! A guest, and the configuration with which it is prepared.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ipu_api::guest::digest::ModuleDigest;
use ipu_runtime::fair_semaphore::FairSemaphore;

use super::limits::Limits;
use super::load::Module;

/// A guest that the host can call. Cheap to clone.
#[derive(Clone)]
pub struct Guest(pub(super) Kind);

/// The built-in guest of every hook.
pub static BUILT_IN: Guest = Guest(Kind::BuiltIn);

#[derive(Clone)]
pub(super) enum Kind {
    /// The built-in module of the hook.
    BuiltIn,
    /// A module, with the permits for its concurrent calls.
    Module(Arc<Module>, FairSemaphore),
    /// A module that is not ready, for this reason.
    Missing(Arc<str>),
}

/// Configuration of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleConfig {
    /// Its settings, as JSON.
    pub settings: String,
    /// Deadline of a call. By default that of the built-in guests.
    pub deadline: Option<Duration>,
    /// Memory limit of an instance, in bytes. At most that of the built-in guests.
    pub memory: Option<usize>,
    /// Size limit of an answer, in bytes of text. At most that of the built-in guests.
    pub output: Option<usize>,
}

impl ModuleConfig {
    /// Applies the configuration to the limits of the host.
    pub fn limits(&self, maximum: Limits) -> Limits {
        Limits {
            deadline: self.deadline.unwrap_or(maximum.deadline),
            memory: self
                .memory
                .map_or(maximum.memory, |memory| memory.min(maximum.memory)),
            output: self
                .output
                .map_or(maximum.output, |output| output.min(maximum.output)),
            ..maximum
        }
    }
}

impl Guest {
    /// Creates a guest that is not ready, for this reason.
    pub fn missing(reason: &str) -> Self {
        Self(Kind::Missing(reason.into()))
    }

    /// Returns the digest of its module. `None` for a built-in guest, whose module depends on the
    /// hook.
    pub fn digest(&self) -> Option<&ModuleDigest> {
        match &self.0 {
            Kind::Module(module, _) => Some(&module.digest),
            Kind::BuiltIn | Kind::Missing(_) => None,
        }
    }
}

impl fmt::Debug for Guest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::BuiltIn => formatter.write_str("built-in"),
            Kind::Module(module, _) => write!(formatter, "{}", module.digest),
            Kind::Missing(reason) => write!(formatter, "missing: {reason}"),
        }
    }
}
