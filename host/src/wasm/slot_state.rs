//! The module that a slot has in use and the file that was last refused for it, seen together.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use jiff::Timestamp;
use serde::Serialize;

use super::load::Module;
use super::model::{ModuleDigest, Slot};

/// A module in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModuleInfo {
    /// Where it decides.
    pub slot: Slot,
    /// Which module it is.
    pub digest: ModuleDigest,
    /// The file that it came from.
    pub source: PathBuf,
    /// Since when it decides.
    pub since: Timestamp,
}

/// A file that was to become a policy and did not; the module before it goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where it was to decide.
    pub slot: Slot,
    /// The file.
    pub source: PathBuf,
    /// Digest of the file, where it could be read.
    pub digest: Option<ModuleDigest>,
    /// What is wrong with it, with its causes.
    pub reason: String,
    /// When it was refused.
    pub since: Timestamp,
}

/// A slot and what decides in it.
pub(super) struct SlotState {
    slot: Slot,
    /// One lock for both, so that nobody sees a mended module beside the problem that it mended.
    held: RwLock<Held>,
}

#[derive(Default)]
struct Held {
    module: Option<Arc<Module>>,
    problem: Option<Problem>,
}

impl SlotState {
    pub(super) fn new(slot: Slot) -> Self {
        Self {
            slot,
            held: RwLock::default(),
        }
    }

    pub(super) fn slot(&self) -> Slot {
        self.slot
    }

    /// The module in use.
    pub(super) fn current(&self) -> Option<Arc<Module>> {
        self.read().module.clone()
    }

    pub(super) fn info(&self) -> Option<ModuleInfo> {
        let module = self.current()?;
        Some(ModuleInfo {
            slot: self.slot,
            digest: module.digest.clone(),
            source: module.source.clone(),
            since: module.since,
        })
    }

    pub(super) fn problem(&self) -> Option<Problem> {
        self.read().problem.clone()
    }

    /// Whether this digest was refused the last time that a file was tried.
    pub(super) fn has_refused(&self, digest: &ModuleDigest) -> bool {
        let held = self.read();
        let refused = held.problem.as_ref();
        refused.is_some_and(|problem| problem.digest.as_ref() == Some(digest))
    }

    /// Whether this digest is in use already; if so, what was refused since is of the past.
    pub(super) fn keeps(&self, digest: &ModuleDigest) -> bool {
        let mut held = self.write();
        let kept = held.module.as_ref();
        let kept = kept.is_some_and(|module| module.digest == *digest);
        if kept {
            held.problem = None;
        }
        kept
    }

    /// Puts a module in the place of the one before; what was refused before is mended by it.
    pub(super) fn adopt(&self, module: Module) {
        self.put(&mut self.write(), module).problem = None;
    }

    /// Begins with the built-in module and keeps word of the one that should have been in its place.
    pub(super) fn fall_back(&self, module: Module) {
        self.put(&mut self.write(), module);
    }

    /// Notes a file that does not become the module, and says so once.
    pub(super) fn refuse(&self, source: PathBuf, digest: Option<ModuleDigest>, reason: String) {
        let mut held = self.write();
        let known = held.problem.as_ref();
        if known.is_some_and(|known| known.reason == reason && known.source == source) {
            return;
        }
        tracing::error!(
            policy = %self.slot,
            file = %source.display(),
            "a policy is refused, and the one before stays in use: {reason}"
        );
        held.problem = Some(Problem {
            slot: self.slot,
            source,
            digest,
            reason,
            since: Timestamp::now(),
        });
    }

    fn put<'held>(&self, held: &'held mut Held, module: Module) -> &'held mut Held {
        tracing::info!(
            policy = %self.slot,
            digest = %module.digest,
            file = %module.source.display(),
            "a policy is in use"
        );
        held.module = Some(Arc::new(module));
        held
    }

    fn read(&self) -> RwLockReadGuard<'_, Held> {
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Held> {
        self.held.write().unwrap_or_else(PoisonError::into_inner)
    }
}
