//! The guest host: the built-in modules, one for each hook, and the guests that it prepares of
//! other modules.

mod calls;
mod permits;

use std::path::PathBuf;
use std::sync::Arc;

use ipu_api::guest::digest::ModuleDigest;
use ipu_api::ipupolicy::Hook;
use ipu_runtime::fair_semaphore::{Asker, FairSemaphore};
use ipu_runtime::panics::{Panicked, caught_now};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::broadcast;
use tokio::task::spawn_blocking;

use self::permits::Permits;
use super::compile::Compiler;
use super::engine::{EngineError, GuestEngine};
use super::guest::{Guest, Kind, ModuleConfig};
use super::limits::Limits;
use super::load::{self, LoadError, Module};
use super::model::built_in_file;
use super::recorder::{RecordedCall, Recorder};
use crate::metrics::GuestCalls;

/// Options of the guest host.
#[derive(Clone, Debug)]
pub struct GuestHostOptions {
    /// Directory of the built-in modules.
    pub guests_dir: PathBuf,
    /// Directory for compiled modules. Only the operator may write to it.
    pub compile_cache_dir: Option<PathBuf>,
    /// The program of the operator, which compiles modules in a child process with limits. Without
    /// it this process compiles.
    pub compiler: Option<PathBuf>,
    /// Settings of the built-in modules: a JSON object such as `{"maxIpusPerJob": 64}`.
    pub settings: Value,
    /// The hooks at which this process calls guests. Only their built-in modules are loaded.
    pub hooks: Vec<Hook>,
    /// Limits of policies.
    pub limits: Limits,
}

/// Without hooks, so without built-in modules.
impl Default for GuestHostOptions {
    fn default() -> Self {
        Self {
            guests_dir: PathBuf::new(),
            compile_cache_dir: None,
            compiler: None,
            settings: Value::Object(serde_json::Map::new()),
            hooks: Vec::new(),
            limits: Limits::default(),
        }
    }
}

/// Failure to start the guest host.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The engine cannot be created.
    #[error("failed to start the WebAssembly host")]
    Engine(#[from] EngineError),
    /// A built-in module cannot be loaded.
    #[error("failed to load the {hook} guest from {path}")]
    Module {
        /// The hook.
        hook: Hook,
        /// The file.
        path: String,
        /// The error.
        #[source]
        source: LoadError,
    },
    /// Loading panicked.
    #[error("failed to wait for the policies to load")]
    Join(#[from] tokio::task::JoinError),
}

/// Loads modules and calls guests. Cheap to clone; all clones share one state.
#[derive(Clone)]
pub struct GuestHost {
    inner: Arc<Inner>,
    metrics: GuestCalls,
    caller: Asker,
}

struct Inner {
    engine: GuestEngine,
    compiler: Compiler,
    limits: Limits,
    permits: Permits,
    recorder: Recorder,
    built_in: Vec<(Hook, Arc<Module>)>,
    /// Locked while a module is loaded, which bounds the memory for loading.
    loading: Mutex<()>,
}

impl GuestHost {
    /// Starts the guest host, and loads the built-in module of every hook.
    pub async fn open(options: GuestHostOptions) -> Result<Self, OpenError> {
        spawn_blocking(move || Self::open_blocking(&options)).await?
    }

    /// As [`Self::open`], for callers without a runtime.
    pub fn open_blocking(options: &GuestHostOptions) -> Result<Self, OpenError> {
        let cache_dir = options.compile_cache_dir.as_deref();
        let compiler = Compiler::choose(options.compiler.as_deref(), cache_dir, options.limits);
        let engine = compiler.engine(options.limits)?;
        let built_in = |hook: &Hook| {
            let module = built_in((&engine, &compiler), *hook, options)?;
            Ok((*hook, Arc::new(module)))
        };
        let built_in: Result<_, OpenError> = options.hooks.iter().map(built_in).collect();
        let inner = Inner {
            built_in: built_in?,
            compiler,
            engine,
            limits: options.limits,
            permits: Permits::new(&options.limits),
            recorder: Recorder::default(),
            loading: Mutex::new(()),
        };
        Ok(Self {
            inner: Arc::new(inner),
            metrics: GuestCalls::default(),
            caller: None,
        })
    }

    /// Returns the host with these metrics.
    #[must_use]
    pub fn with_metrics(self, metrics: GuestCalls) -> Self {
        Self { metrics, ..self }
    }

    /// Returns the host for calls on behalf of an address. Addresses share the permits fairly.
    #[must_use]
    pub fn for_caller(&self, caller: Asker) -> Self {
        Self {
            caller,
            ..self.clone()
        }
    }

    /// Receives every call of a guest from now on.
    pub fn record_calls(&self) -> broadcast::Receiver<Arc<RecordedCall>> {
        self.inner.recorder.subscribe()
    }

    /// Returns the metrics of the calls.
    pub fn metrics(&self) -> &GuestCalls {
        &self.metrics
    }

    /// Prepares a guest from a module, with its own settings and limits. Takes seconds; calls go
    /// on.
    pub async fn prepare(
        &self,
        hook: Hook,
        bytes: Vec<u8>,
        config: ModuleConfig,
    ) -> Result<Guest, LoadError> {
        let inner = Arc::clone(&self.inner);
        let prepare = move || caught_now(|| inner.prepare(hook, &bytes, &config));
        let prepared = spawn_blocking(prepare).await.map_err(Panicked::from);
        let module = prepared.flatten().map_err(LoadError::Panicked)??;
        let permits = FairSemaphore::new(self.inner.limits.each_policy);
        Ok(Guest(Kind::Module(Arc::new(module), permits)))
    }

    /// Returns the digest of the built-in module of a hook. `None` if this process does not use the
    /// hook.
    pub fn built_in(&self, hook: Hook) -> Option<&ModuleDigest> {
        self.module(hook).map(|module| &module.digest)
    }

    fn module(&self, hook: Hook) -> Option<&Arc<Module>> {
        let mut built_in = self.inner.built_in.iter();
        built_in.find_map(|(of, module)| (*of == hook).then_some(module))
    }
}

impl Inner {
    fn prepare(
        &self,
        hook: Hook,
        bytes: &[u8],
        config: &ModuleConfig,
    ) -> Result<Module, LoadError> {
        let limit = self.limits.module;
        if bytes.len() as u64 > limit {
            return Err(LoadError::TooLarge { limit });
        }
        let _one_at_a_time = self.loading.lock();
        let engine = self.engine.with_limits(config.limits(self.limits));
        load::load(&engine, &self.compiler, hook, bytes, &config.settings)
    }
}

fn built_in(
    (engine, compiler): (&GuestEngine, &Compiler),
    hook: Hook,
    options: &GuestHostOptions,
) -> Result<Module, OpenError> {
    let path = options.guests_dir.join(built_in_file(hook));
    let settings = options.settings.to_string();
    let loaded = load::read(&path, options.limits.module)
        .and_then(|bytes| load::load(engine, compiler, hook, &bytes, &settings));
    let module = loaded.map_err(|source| OpenError::Module {
        hook,
        path: path.display().to_string(),
        source,
    })?;
    tracing::info!(policy = %hook, digest = %module.digest, file = %path.display(), "a built-in guest is loaded");
    Ok(module)
}
