//! Pure: the limits of policies, and their sum. `memory_limiter` enforces the memory of a call, and
//! `engine` that of all calls.

use std::time::Duration;

/// Most concurrent calls in one process.
pub const CALLS: usize = 8;

/// Memory limit of the instance of one call, in bytes.
pub const CALL_MEMORY: usize = 32 << 20;

/// Size limit of an answer, in bytes of text.
pub const ANSWER: usize = 4 << 20;

/// Memory limit of a parsed object in a review, in bytes. Objects of Kubernetes take some ten times
/// their text, so one of 1.5 MiB, the limit of etcd, can be created.
pub const OBJECT_TREE: usize = 24 << 20;

/// Memory limit of the parsed object in an answer, in bytes: a guest can return each object that it
/// gets, with defaults.
pub const ANSWER_TREE: usize = OBJECT_TREE + (2 << 20);

/// Size limit of a module, in bytes.
pub const MODULE: u64 = 32 << 20;

/// Size limit of the code of a module, in bytes.
pub const COMPILED: u64 = 64 << 20;

/// Memory limit of all loaded modules together, in bytes: their metadata, and their code if no file
/// backs it.
pub const LOADED: u64 = 160 << 20;

/// Memory limit of the compiling process, in bytes.
pub const COMPILE_MEMORY: u64 = 384 << 20;

/// Limit of the engine's state of a component and its core instances, without memories and tables,
/// in bytes. A guest in Python has 400 KiB.
pub const CONTEXT: usize = 1 << 20;

/// Most tables of one component.
pub const TABLES: u32 = 8;

/// Most elements of a table.
pub const TABLE_ELEMENTS: usize = 20_000;

/// Memory of the engine for one instance, in bytes.
const INSTANCE: usize = CONTEXT + TABLES as usize * TABLE_ELEMENTS * size_of::<usize>();

/// Most memory of one call, in bytes: the instance, the request, the answer, and the parsed answer.
pub const EACH_CALL: u64 = (CALL_MEMORY + INSTANCE + 2 * ANSWER + ANSWER_TREE) as u64;

/// Most memory for loading a module, in bytes: the module, the compiling process, and the code. One
/// module loads at a time, and its test call comes after the compiling process.
pub const LOADING: u64 = MODULE + COMPILE_MEMORY + COMPILED;

/// Most memory for guests in one process, in bytes. The memory limit of the container must cover it
/// and the process itself.
pub const ALL: u64 = CALLS as u64 * EACH_CALL + LOADING;

/// A guest exceeded a limit. It ends the call as a typed error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{requested} {unit} requested, and at most {limit} are allowed")]
pub struct OverLimit {
    /// The requested amount.
    pub requested: usize,
    /// The limit.
    pub limit: usize,
    /// The unit: bytes of memory, or elements of a table.
    pub unit: &'static str,
}

/// Limits of policies, by call unless noted otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Deadline of a call, in CPU time.
    pub deadline: Duration,
    /// Largest ratio of the duration of a call to its deadline.
    pub wall_time_factor: u32,
    /// Memory of an instance, in bytes.
    pub memory: usize,
    /// Elements of a table.
    pub table_elements: usize,
    /// Size of an answer, in bytes of text.
    pub output: usize,
    /// Memory of the parsed object in an answer, in bytes.
    pub tree: usize,
    /// Concurrent calls.
    pub concurrent: usize,
    /// Concurrent calls that are reserved for built-in guests.
    pub reserved: usize,
    /// Concurrent calls of one policy.
    pub each_policy: usize,
    /// Longest wait for a permit. The deadline starts afterwards.
    pub queue: Duration,
    /// Size limit of a module, in bytes.
    pub module: u64,
    /// Size limit of the code of a module, in bytes.
    pub compiled: u64,
    /// Memory of all loaded modules together, in bytes.
    pub loaded: u64,
    /// CPU time of the compiling process.
    pub compile_time: Duration,
    /// Memory of the compiling process, in bytes.
    pub compile_memory: u64,
}

impl Limits {
    /// Limits of the commands for authors. Nothing waits for the answer, so only CPU time counts.
    pub fn for_authoring() -> Self {
        Self {
            wall_time_factor: u32::MAX,
            ..Self::default()
        }
    }

    /// Returns the number of concurrent calls of built-in guests.
    pub fn built_in(&self) -> usize {
        self.reserved.min(self.concurrent)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(1),
            wall_time_factor: 2,
            memory: CALL_MEMORY,
            table_elements: TABLE_ELEMENTS,
            output: ANSWER,
            tree: ANSWER_TREE,
            concurrent: CALLS,
            reserved: 2,
            each_policy: 2,
            queue: Duration::from_secs(5),
            module: MODULE,
            compiled: COMPILED,
            loaded: LOADED,
            compile_time: Duration::from_mins(1),
            compile_memory: COMPILE_MEMORY,
        }
    }
}
