//! The engine that runs policies, and the clock that stops calls past their deadline.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use super::limits::{CONTEXT, Limits, TABLES};

/// Period of the clock. At each tick a call checks its deadline.
const TICK: Duration = Duration::from_millis(10);

/// Period while a call runs over a tick. It yields the core at each tick.
const FAST_TICK: Duration = Duration::from_micros(150);

/// Most core instances of one component. Guests of interpreted languages have dozens.
const CORE_INSTANCES: u32 = 48;

/// Most memories of one component. Stubs that replace WASI bring some of their own.
const MEMORIES: u32 = 4;

/// Most modules that are tested at once, beside the calls.
const CONCURRENT_TESTS: u32 = 1;

/// Stack of a guest, in bytes, on the stack of the calling thread.
const STACK: usize = 512 << 10;

/// An error of the engine.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Failure to create an engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The engine cannot be created on this machine.
    #[error("failed to make the WebAssembly engine")]
    Engine(#[source] Failure),
    /// The thread of the clock cannot start.
    #[error("failed to start the thread that stops late policies")]
    Ticker(#[source] std::io::Error),
}

/// An engine with its limits and its clock. Cheap to clone; the clock stops with the last clone.
#[derive(Clone)]
pub(super) struct GuestEngine {
    pub(super) engine: Engine,
    pub(super) limits: Limits,
    /// Fuel of each call, if the engine counts instructions.
    pub(super) fuel: Option<u64>,
    pub(super) clock: Clock,
}

/// The clock of an engine. It ticks faster during a long call.
#[derive(Clone, Default)]
pub(super) struct Clock(Arc<AtomicBool>);

impl Clock {
    /// Makes the next tick a fast one.
    pub(super) fn fast_tick(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl GuestEngine {
    /// Creates an engine that compiles modules in this process, without limits.
    pub(super) fn compiling(limits: Limits) -> Result<Self, EngineError> {
        Self::make(limits, true, None)
    }

    /// Creates an engine without a compiler, for modules that another process has compiled.
    pub(super) fn loading(limits: Limits) -> Result<Self, EngineError> {
        Self::make(limits, false, None)
    }

    /// Creates an engine that counts instructions and ends a call after `fuel` of them. Its code is
    /// slower, and a call ends at the same point on every machine.
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

    /// Returns the engine with other limits, none of which may be higher.
    pub(super) fn with_limits(&self, limits: Limits) -> Self {
        Self {
            limits,
            ..self.clone()
        }
    }
}

/// Creates the engine of the compiling process. It has one thread, so that its memory does not grow
/// with the number of cores.
pub(super) fn compiler() -> Result<Engine, EngineError> {
    let mut config = config(true, false);
    config.parallel_compilation(false);
    engine(&config)
}

fn engine(config: &Config) -> Result<Engine, EngineError> {
    Engine::new(config).map_err(|error| EngineError::Engine(error.into()))
}

/// Configuration of the code, equal in the process that compiles it and the process that loads it.
fn config(compiles: bool, counts_fuel: bool) -> Config {
    let mut config = Config::new();
    config
        .enable_compiler(compiles)
        .epoch_interruption(true)
        .consume_fuel(counts_fuel)
        .max_wasm_stack(STACK)
        .relaxed_simd_deterministic(true)
        // No message has the address of a trap, and the map is as large as the code.
        .generate_address_map(false)
        .wasm_backtrace_max_frames(NonZeroUsize::new(8));
    if compiles {
        config.cranelift_nan_canonicalization(true);
    }
    config
}

/// Bytes of a pool slot that stay resident between calls. Restoring the written pages costs less
/// than page faults in the next call.
const RESIDENT: usize = 1 << 20;

/// Address space for all concurrent calls and the test of a new module, reserved once, so that
/// instantiation takes microseconds. Only used pages take memory.
fn pool(limits: &Limits) -> PoolingAllocationConfig {
    let calls = u32::try_from(limits.concurrent)
        .unwrap_or(u32::MAX)
        .clamp(1, 64)
        + CONCURRENT_TESTS;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(calls)
        .total_core_instances(calls * CORE_INSTANCES)
        .max_core_instances_per_component(CORE_INSTANCES)
        .max_core_instance_size(CONTEXT)
        // It includes all core instances.
        .max_component_instance_size(CONTEXT)
        .total_memories(calls * MEMORIES)
        .max_memories_per_component(MEMORIES)
        .max_memory_size(limits.memory)
        .total_tables(calls * TABLES)
        .max_tables_per_component(TABLES)
        .table_elements(limits.table_elements)
        .max_unused_warm_slots(2)
        .linear_memory_keep_resident(RESIDENT)
        .table_keep_resident(RESIDENT)
        .pagemap_scan(Enabled::Auto);
    pool
}

/// Starts the thread that increments the epoch of the engine. It has a weak reference and ends with
/// the engine. Its stack has the default size, because the allocator can need more than 64 KiB at
/// its first use in a thread.
fn start_clock(engine: &Engine, clock: Clock) -> std::io::Result<()> {
    let engine = engine.weak();
    thread::Builder::new()
        .name("policy-clock".to_owned())
        .spawn(move || {
            while let Some(engine) = engine.upgrade() {
                engine.increment_epoch();
                drop(engine);
                let is_fast = clock.0.swap(false, Ordering::Relaxed);
                thread::sleep(if is_fast { FAST_TICK } else { TICK });
            }
        })
        .map(drop)
}
