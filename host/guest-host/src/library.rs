//! The built-in modules, one for each slot, and what makes guests of other modules beside them.

mod asking;
mod permits;

use std::path::PathBuf;
use std::sync::Arc;

use ipu_runtime::fair_semaphore::{Asker, FairSemaphore};
use ipu_runtime::panics::{Panicked, caught_now};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::broadcast;
use tokio::task::spawn_blocking;

use self::permits::Permits;
use super::compile::Compiler;
use super::engine::{EngineError, GuestEngine};
use super::guest::{Guest, Kind, Terms};
use super::limits::Limits;
use super::load::{self, LoadError, Module};
use super::model::{ModuleDigest, Slot};
use super::tap::{Heard, Tap};
use crate::metrics::GuestCalls;

/// Where the built-in modules are, what they are told, and how modules are compiled.
#[derive(Clone, Debug)]
pub struct PolicyOptions {
    /// Folder of the built-in modules.
    pub guests_dir: PathBuf,
    /// Folder for compiled modules, which nobody else may write to.
    pub compile_cache_dir: Option<PathBuf>,
    /// The operator's program. With it modules are compiled in a process of their own, which has limits; otherwise
    /// in this one.
    pub compiler: Option<PathBuf>,
    /// Settings for the built-in modules: a JSON object such as `{"maxIpusPerJob": 64}`.
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

/// The built-in modules and the calls of all guests. Cheap to clone; all clones share both.
#[derive(Clone)]
pub struct Policies {
    inner: Arc<Inner>,
    calls: GuestCalls,
    asker: Asker,
}

struct Inner {
    engine: GuestEngine,
    compiler: Compiler,
    limits: Limits,
    permits: Permits,
    tap: Tap,
    built_in: Vec<(Slot, Arc<Module>)>,
    /// Held while a module is loaded: two modules do not take the memory of two.
    loading: Mutex<()>,
}

impl Policies {
    /// Loads the built-in module of every slot; one that is broken or missing is an error.
    pub async fn open(options: PolicyOptions) -> Result<Self, OpenError> {
        spawn_blocking(move || Self::open_blocking(&options)).await?
    }

    /// As `open`, for callers without a runtime.
    pub fn open_blocking(options: &PolicyOptions) -> Result<Self, OpenError> {
        let cache_dir = options.compile_cache_dir.as_deref();
        let compiler = Compiler::choose(options.compiler.as_deref(), cache_dir);
        let engine = compiler.engine(options.limits)?;
        let built_in = |slot: &Slot| {
            let module = built_in((&engine, &compiler), *slot, options)?;
            Ok((*slot, Arc::new(module)))
        };
        let built_in: Result<_, OpenError> = options.slots.iter().map(built_in).collect();
        let inner = Inner {
            built_in: built_in?,
            compiler,
            engine,
            limits: options.limits,
            permits: Permits::new(&options.limits),
            tap: Tap::default(),
            loading: Mutex::new(()),
        };
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
        let permits = FairSemaphore::new(self.inner.limits.each_policy);
        Ok(Guest(Kind::Module(Arc::new(module), permits)))
    }

    /// Which module is the built-in one of a slot; none where this process does not ask it.
    pub fn built_in(&self, slot: Slot) -> Option<&ModuleDigest> {
        self.module(slot).map(|module| &module.digest)
    }

    fn module(&self, slot: Slot) -> Option<&Arc<Module>> {
        let mut built_in = self.inner.built_in.iter();
        built_in.find_map(|(of, module)| (*of == slot).then_some(module))
    }
}

impl Inner {
    fn prepare(&self, slot: Slot, bytes: &[u8], terms: &Terms) -> Result<Module, LoadError> {
        let limit = self.limits.module;
        if bytes.len() as u64 > limit {
            return Err(LoadError::TooLarge { limit });
        }
        let _one_at_a_time = self.loading.lock();
        let engine = self.engine.within(terms.limits(self.limits));
        load::load(&engine, &self.compiler, slot, bytes, &terms.settings)
    }
}

fn built_in(
    (engine, compiler): (&GuestEngine, &Compiler),
    slot: Slot,
    options: &PolicyOptions,
) -> Result<Module, OpenError> {
    let path = options.guests_dir.join(slot.file_name());
    let settings = options.settings.to_string();
    let loaded = load::read(&path, options.limits.module)
        .and_then(|bytes| load::load(engine, compiler, slot, &bytes, &settings));
    let module = loaded.map_err(|source| OpenError::Module {
        slot,
        path: path.display().to_string(),
        source,
    })?;
    tracing::info!(policy = %slot, digest = %module.digest, file = %path.display(), "a built-in guest is loaded");
    Ok(module)
}
