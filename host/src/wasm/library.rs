//! The policies in use: one module for each slot, asked by every part of the operator, swapped in
//! one step.

mod asking;
mod permits;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::broadcast;
use tokio::task::spawn_blocking;

use self::permits::Permits;
use super::compile::Compiler;
use super::engine::{EngineError, GuestEngine};
use super::guest::{Guest, Kind, Terms};
use super::limits::Limits;
use super::load::{self, LoadError, Module};
use super::model::Slot;
use super::slot_state::{ModuleInfo, Problem, SlotState};
use super::tap::{Heard, Tap};
use crate::agent::explain;
use crate::fair_semaphore::{Asker, FairSemaphore};
use crate::metrics::guests::GuestCalls;
use crate::panics::{Panicked, caught_now};

/// Where policies come from and what they are told.
#[derive(Clone, Debug)]
pub struct PolicyOptions {
    /// Folder of the built-in modules.
    pub guests_dir: PathBuf,
    /// Folder whose files take the place of built-in ones of the same name.
    pub policies_dir: Option<PathBuf>,
    /// Folder for compiled modules, which nobody else may write to.
    pub compile_cache_dir: Option<PathBuf>,
    /// The operator's program. With it modules are compiled in a process of their own, which has limits; otherwise
    /// in this one.
    pub compiler: Option<PathBuf>,
    /// Settings for every policy: a JSON object such as `{"maxIpusPerJob": 64}`.
    pub settings: Value,
    /// The slots that this process asks; others are not loaded.
    pub slots: Vec<Slot>,
    /// How much a policy may take.
    pub limits: Limits,
}

/// No slot is asked, so that no module is looked for.
impl Default for PolicyOptions {
    fn default() -> Self {
        Self {
            guests_dir: PathBuf::new(),
            policies_dir: None,
            compile_cache_dir: None,
            compiler: None,
            settings: Value::Object(serde_json::Map::new()),
            slots: Vec::new(),
            limits: Limits::default(),
        }
    }
}

/// Why there are no policies to begin with.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No engine.
    #[error("failed to start the WebAssembly host")]
    Engine(#[from] EngineError),
    /// A slot has no module that works.
    #[error("failed to load the {slot} policy from {path}")]
    Module {
        /// The slot.
        slot: Slot,
        /// The file.
        path: String,
        /// What is wrong with it.
        #[source]
        source: LoadError,
    },
    /// Loading ended in a panic.
    #[error("failed to wait for the policies to load")]
    Join(#[from] tokio::task::JoinError),
}

/// The policies in use. Cheap to clone; all clones see the same modules.
#[derive(Clone)]
pub struct Policies {
    inner: Arc<Inner>,
    calls: GuestCalls,
    asker: Asker,
}

struct Inner {
    engine: GuestEngine,
    compiler: Compiler,
    options: PolicyOptions,
    settings: String,
    permits: Permits,
    tap: Tap,
    slots: Vec<SlotState>,
    /// Held while modules are loaded: two refreshes never undo each other, and two modules do not take the memory
    /// of two.
    loading: Mutex<()>,
}

impl Policies {
    /// Loads a module for every slot. A broken file in the policies' folder does not stop it, since
    /// the built-in one goes on; a broken or missing built-in one does.
    pub async fn open(options: PolicyOptions) -> Result<Self, OpenError> {
        spawn_blocking(|| Self::open_blocking(options)).await?
    }

    /// As `open`, for callers without a runtime.
    pub fn open_blocking(options: PolicyOptions) -> Result<Self, OpenError> {
        let cache_dir = options.compile_cache_dir.as_deref();
        let compiler = Compiler::choose(options.compiler.as_deref(), cache_dir);
        let engine = compiler.engine(options.limits)?;
        let slots = options.slots.iter().map(|slot| SlotState::new(*slot));
        let inner = Inner {
            compiler,
            engine,
            settings: options.settings.to_string(),
            permits: Permits::new(&options.limits),
            tap: Tap::default(),
            slots: slots.collect(),
            loading: Mutex::new(()),
            options,
        };
        for state in &inner.slots {
            inner.open_slot(state)?;
        }
        Ok(Self {
            inner: Arc::new(inner),
            calls: GuestCalls::default(),
            asker: None,
        })
    }

    /// The same policies, whose calls are counted there from now on.
    #[must_use]
    pub fn counted_by(self, calls: GuestCalls) -> Self {
        Self { calls, ..self }
    }

    /// The same policies, asked on behalf of an address: whose calls wait, wait in turn with those of others.
    #[must_use]
    pub fn asked_by(&self, asker: Asker) -> Self {
        Self {
            asker,
            ..self.clone()
        }
    }

    /// Every call of a guest from now on.
    pub fn listen(&self) -> broadcast::Receiver<Arc<Heard>> {
        self.inner.tap.listen()
    }

    /// Where the calls are counted.
    pub fn calls(&self) -> &GuestCalls {
        &self.calls
    }

    /// Makes a guest of a module, with its own settings and limits. Takes seconds; whatever is in use
    /// goes on.
    pub async fn prepare(
        &self,
        slot: Slot,
        bytes: Vec<u8>,
        terms: Terms,
    ) -> Result<Guest, LoadError> {
        let inner = Arc::clone(&self.inner);
        let prepare = move || caught_now(|| inner.prepare(slot, &bytes, &terms));
        let prepared = spawn_blocking(prepare).await.map_err(Panicked::from);
        let module = prepared.flatten().map_err(LoadError::Panicked)??;
        let permits = FairSemaphore::new(self.inner.options.limits.each_policy);
        Ok(Guest(Kind::Module(Arc::new(module), permits)))
    }

    /// The modules in use.
    pub fn modules(&self) -> Vec<ModuleInfo> {
        let states = self.inner.slots.iter();
        states.filter_map(SlotState::info).collect()
    }

    /// Files that were to become policies and did not.
    pub fn problems(&self) -> Vec<Problem> {
        let states = self.inner.slots.iter();
        states.filter_map(SlotState::problem).collect()
    }

    /// Looks at the files again and exchanges the modules whose file has changed.
    pub async fn refresh(&self) {
        let (inner, calls) = (Arc::clone(&self.inner), self.calls.clone());
        let refreshed = spawn_blocking(move || {
            let loading = inner.loading.lock();
            let _one_at_a_time = loading.unwrap_or_else(PoisonError::into_inner);
            for state in &inner.slots {
                let digest = || state.current().map(|module| module.digest.clone());
                let before = digest();
                inner.refresh_slot(state);
                if digest() != before {
                    calls.swapped(state.slot());
                }
            }
        });
        if let Err(error) = refreshed.await {
            tracing::error!(%error, "looking for changed policies ended in a panic");
        }
    }

    /// Folders whose files matter.
    pub(super) fn folders(&self) -> Vec<PathBuf> {
        let options = &self.inner.options;
        let built_in = std::iter::once(options.guests_dir.clone());
        built_in.chain(options.policies_dir.clone()).collect()
    }

    fn current(&self, slot: Slot) -> Option<Arc<Module>> {
        self.inner
            .slots
            .iter()
            .find(|state| state.slot() == slot)?
            .current()
    }
}

impl Inner {
    /// The first module of a slot: the override, else the built-in one.
    fn open_slot(&self, state: &SlotState) -> Result<(), OpenError> {
        if let Some(path) = self.override_of(state.slot()) {
            self.try_file(state, path);
            if state.current().is_some() {
                return Ok(());
            }
        }
        let path = self.options.guests_dir.join(state.slot().file_name());
        let loaded = load::read(&path, self.options.limits.module)
            .and_then(|bytes| self.load(state.slot(), path.clone(), &bytes));
        let module = loaded.map_err(|source| OpenError::Module {
            slot: state.slot(),
            path: path.display().to_string(),
            source,
        })?;
        state.fall_back(module);
        Ok(())
    }

    fn refresh_slot(&self, state: &SlotState) {
        let built_in = || self.options.guests_dir.join(state.slot().file_name());
        let path = self.override_of(state.slot()).unwrap_or_else(built_in);
        self.try_file(state, path);
    }

    /// The file that takes the place of the built-in one, where there is one.
    fn override_of(&self, slot: Slot) -> Option<PathBuf> {
        let path = self.options.policies_dir.as_ref()?.join(slot.file_name());
        path.try_exists().unwrap_or(true).then_some(path)
    }

    /// Makes the file the module of a slot, unless it is already, or was refused already.
    fn try_file(&self, state: &SlotState, path: PathBuf) {
        let bytes = match load::read(&path, self.options.limits.module) {
            Ok(bytes) => bytes,
            Err(error) => return state.refuse(path, None, explain(&error)),
        };
        let digest = load::digest(&bytes);
        if state.keeps(&digest) || state.has_refused(&digest) {
            return;
        }
        match self.load(state.slot(), path.clone(), &bytes) {
            Ok(module) => state.adopt(module),
            Err(error) => state.refuse(path, Some(digest), explain(&error)),
        }
    }

    fn prepare(&self, slot: Slot, bytes: &[u8], terms: &Terms) -> Result<Module, LoadError> {
        let limit = self.options.limits.module;
        if bytes.len() as u64 > limit {
            return Err(LoadError::TooLarge { limit });
        }
        let loading = self.loading.lock();
        let _one_at_a_time = loading.unwrap_or_else(PoisonError::into_inner);
        let engine = self.engine.within(terms.limits(self.options.limits));
        let source = PathBuf::from(&terms.name);
        self.module(&engine, slot, source, bytes, &terms.settings)
    }

    fn load(&self, slot: Slot, source: PathBuf, bytes: &[u8]) -> Result<Module, LoadError> {
        self.module(&self.engine, slot, source, bytes, &self.settings)
    }

    fn module(
        &self,
        engine: &GuestEngine,
        slot: Slot,
        source: PathBuf,
        bytes: &[u8],
        settings: &str,
    ) -> Result<Module, LoadError> {
        Ok(Module {
            callable: load::load(engine, &self.compiler, slot, bytes, settings)?,
            digest: load::digest(bytes),
            since: Timestamp::now(),
            source,
        })
    }
}
