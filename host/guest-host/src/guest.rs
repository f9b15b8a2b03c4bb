//! A guest that can be asked, and on which terms one is prepared.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ipu_runtime::fair_semaphore::FairSemaphore;

use super::limits::Limits;
use super::load::Module;
use super::model::ModuleDigest;

/// A guest that can be asked. Cheap to clone.
#[derive(Clone)]
pub struct Guest(pub(super) Kind);

/// The built-in guest of whichever slot is asked.
pub static BUILT_IN: Guest = Guest(Kind::BuiltIn);

#[derive(Clone)]
pub(super) enum Kind {
    /// The built-in module of the slot.
    BuiltIn,
    /// This module, no more of whose calls run at once than there are permits.
    Module(Arc<Module>, FairSemaphore),
    /// None: it is to be asked, and is not ready.
    Missing(Arc<str>),
}

/// On which terms a module is prepared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Given to it with each request, as JSON.
    pub settings: String,
    /// Longest time of a call; missing: as for the built-in guests, which is also the most memory
    /// and text that there may be.
    pub deadline: Option<Duration>,
    /// Most memory of an instance, in bytes.
    pub memory: Option<usize>,
    /// Largest answer, in bytes of text.
    pub output: Option<usize>,
}

impl Terms {
    /// What these leave of what there may be at most.
    pub(super) fn limits(&self, most: Limits) -> Limits {
        Limits {
            deadline: self.deadline.unwrap_or(most.deadline),
            memory: self
                .memory
                .map_or(most.memory, |memory| memory.min(most.memory)),
            output: self
                .output
                .map_or(most.output, |output| output.min(most.output)),
            ..most
        }
    }
}

impl Guest {
    /// A guest that is to be asked, and is not ready for this reason.
    pub fn missing(reason: &str) -> Self {
        Self(Kind::Missing(reason.into()))
    }

    /// Which module it is; none for a built-in one, which depends on the slot.
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
