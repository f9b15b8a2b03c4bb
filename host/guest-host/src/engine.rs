//! The engine that compiles and runs policies, and the clock that stops those that run too long.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use super::limits::{CONTEXT, Limits, TABLES};

/// Time between two ticks of the clock, at each of which a call sees whether it is late.
const TICK: Duration = Duration::from_millis(10);

/// The same while a call goes on over a tick: it lets others have the core at each.
const SHORT_TICK: Duration = Duration::from_micros(150);

/// Core instances of one component; guests of interpreted languages are made of dozens.
const CORE_INSTANCES: u32 = 48;

/// Memories of one component; what replaces WASI by stubs brings some of its own.
const MEMORIES: u32 = 4;

/// Modules that are tried at once while calls go on.
const TRIED_AT_ONCE: u32 = 1;

/// Stack of a guest's compiled code, in bytes; it lies on the stack of the calling thread.
const STACK: usize = 512 << 10;

/// Why something else does not work.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The engine cannot be made on this machine.
    #[error("failed to make the WebAssembly engine")]
    Engine(#[source] Failure),
    /// The thread that keeps the time cannot be started.
    #[error("failed to start the thread that stops late policies")]
    Ticker(#[source] std::io::Error),
}

/// An engine with its limits and its clock. Cheap to clone; the clock ends with the last clone.
#[derive(Clone)]
pub(super) struct GuestEngine {
    pub(super) engine: Engine,
    pub(super) limits: Limits,
    /// What each call may spend, where instructions are counted.
    pub(super) fuel: Option<u64>,
    pub(super) clock: Clock,
}

/// The clock of an engine, which ticks faster while a call goes on for long.
#[derive(Clone, Default)]
pub(super) struct Clock(Arc<AtomicBool>);

impl Clock {
    /// The next tick is to come soon.
    pub(super) fn hurry(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl GuestEngine {
    /// Makes an engine that compiles modules by itself: nothing limits what that takes.
    pub(super) fn compiling(limits: Limits) -> Result<Self, EngineError> {
        Self::make(limits, true, None)
    }

    /// Makes an engine that cannot compile, and takes modules that another process has compiled.
    pub(super) fn loading(limits: Limits) -> Result<Self, EngineError> {
        Self::make(limits, false, None)
    }

    /// Makes an engine that counts instructions and ends a call that has spent `fuel` of them. Its
    /// code is slower: it is for measuring, and for ends that are the same on every machine.
    pub(super) fn metered(limits: Limits, fuel: u64) -> Result<Self, EngineError> {
        Self::make(limits, true, Some(fuel))
    }

    fn make(limits: Limits, compiles: bool, fuel: Option<u64>) -> Result<Self, EngineError> {
        let mut config = config(compiles, fuel.is_some());
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(&limits)));
        let engine = engine(&config)?;
        let clock = Clock::default();
        start_clock(&engine, clock.clone()).map_err(EngineError::Ticker)?;
        Ok(Self {
            engine,
            limits,
            fuel,
            clock,
        })
    }

    /// The same engine for calls with other limits, none of which may be wider.
    pub(super) fn within(&self, limits: Limits) -> Self {
        Self {
            limits,
            ..self.clone()
        }
    }
}

/// The engine of a process that compiles for others. It has one thread, so that its memory does not grow with
/// the cores of the machine.
pub(super) fn compiler() -> Result<Engine, EngineError> {
    let mut config = config(true, false);
    config.parallel_compilation(false);
    engine(&config)
}

fn engine(config: &Config) -> Result<Engine, EngineError> {
    Engine::new(config).map_err(|error| EngineError::Engine(error.into()))
}

/// What a module's code depends on: the same where it is compiled and where it is loaded.
fn config(compiles: bool, counts_fuel: bool) -> Config {
    let mut config = Config::new();
    config
        .enable_compiler(compiles)
        .epoch_interruption(true)
        .consume_fuel(counts_fuel)
        .max_wasm_stack(STACK)
        .relaxed_simd_deterministic(true)
        // Nobody is shown where in a guest's code a trap was, and the map is as large as the code.
        .generate_address_map(false)
        .wasm_backtrace_max_frames(NonZeroUsize::new(8));
    if compiles {
        config.cranelift_nan_canonicalization(true);
    }
    config
}

/// Bytes of a slot's memory that the next call finds resident. Pages that a call has written are
/// written back rather than given back: to fault each of them in again costs more than the call.
const KEPT: usize = 1 << 20;

/// Room for as many calls as run at once and for trying new modules, reserved in one piece and
/// touched only where used, so that making an instance takes microseconds.
fn pool(limits: &Limits) -> PoolingAllocationConfig {
    let calls = u32::try_from(limits.concurrent)
        .unwrap_or(u32::MAX)
        .clamp(1, 64)
        + TRIED_AT_ONCE;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(calls)
        .total_core_instances(calls * CORE_INSTANCES)
        .max_core_instances_per_component(CORE_INSTANCES)
        .max_core_instance_size(CONTEXT)
        // That of all core instances counts here as well.
        .max_component_instance_size(CONTEXT)
        .total_memories(calls * MEMORIES)
        .max_memories_per_component(MEMORIES)
        .max_memory_size(limits.memory)
        .total_tables(calls * TABLES)
        .max_tables_per_component(TABLES)
        .table_elements(limits.table_elements)
        .max_unused_warm_slots(2)
        .linear_memory_keep_resident(KEPT)
        .table_keep_resident(KEPT)
        .pagemap_scan(Enabled::Auto);
    pool
}

/// Starts the thread that moves the engine's epoch on. It holds the engine weakly and ends with it.
/// Its stack is as large as any thread's: what it does is little, but the allocator, when a thread
/// first meets it, may want more than 64 KiB.
fn start_clock(engine: &Engine, clock: Clock) -> std::io::Result<()> {
    let engine = engine.weak();
    thread::Builder::new()
        .name("policy-clock".to_owned())
        .spawn(move || {
            while let Some(engine) = engine.upgrade() {
                engine.increment_epoch();
                drop(engine);
                let is_hurried = clock.0.swap(false, Ordering::Relaxed);
                thread::sleep(if is_hurried { SHORT_TICK } else { TICK });
            }
        })
        .map(drop)
}
