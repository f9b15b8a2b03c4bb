//! Pure: how much a policy may take of anything, and what all of that adds up to.

use std::time::Duration;

/// Most calls that run at once in one process.
pub const CALLS: usize = 8;

/// Most memory that the instance of one call may have, in bytes.
pub const CALL_MEMORY: usize = 32 << 20;

/// Largest answer of one call, in bytes of text.
pub const ANSWER: usize = 4 << 20;

/// Most memory that the object in an answer may take as a tree, in bytes. Objects of Kubernetes take some ten times
/// their text.
pub const ANSWER_TREE: usize = 16 << 20;

/// Largest file of a module, in bytes.
pub const MODULE: u64 = 32 << 20;

/// Largest code that is made of a module, in bytes.
pub const COMPILED: u64 = 64 << 20;

/// Most memory that the process which compiles a module may have, in bytes.
pub const COMPILE_MEMORY: u64 = 384 << 20;

/// Most memory of what the engine knows of a component and of all of its core instances together, in bytes, beside their
/// memories and tables. A guest in Python has 400 KiB of it.
pub const CONTEXT: usize = 1 << 20;

/// Tables of one component.
pub const TABLES: u32 = 8;

/// Most elements of a table.
pub const TABLE_ELEMENTS: usize = 20_000;

/// What the engine takes for the instance of one call, in bytes.
const INSTANCE: usize = CONTEXT + TABLES as usize * TABLE_ELEMENTS * size_of::<usize>();

/// Most memory of one call, in bytes: the instance, what it is told and answers, and the tree of the answer.
pub const EACH_CALL: u64 = (CALL_MEMORY + INSTANCE + 2 * ANSWER + ANSWER_TREE) as u64;

/// Most memory that loading a module takes, in bytes: the module, the process that compiles it, and the code. There
/// is one at a time, and the call that tries it comes after its compiling process.
pub const LOADING: u64 = MODULE + COMPILE_MEMORY + COMPILED;

/// Most memory that guests take in the container of one process, in bytes, with everything that is done for them.
/// The container's limit must have room for it beside what the process needs for itself.
pub const ALL: u64 = CALLS as u64 * EACH_CALL + LOADING;

/// How much a policy may take of anything, for each call where not said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest time that a call may run.
    pub deadline: Duration,
    /// How many times its deadline a call may last where others have the processor.
    pub patience: u32,
    /// Most memory that an instance may have, in bytes.
    pub memory: usize,
    /// Most elements that a table of an instance may have.
    pub table_elements: usize,
    /// Largest answer, in bytes of text.
    pub output: usize,
    /// Most memory that the object in an answer may take as a tree, in bytes.
    pub tree: usize,
    /// Most calls that run at once.
    pub concurrent: usize,
    /// Those of them that only built-in guests make.
    pub reserved: usize,
    /// Most calls of one policy that run at once.
    pub each_policy: usize,
    /// Longest time that a call waits for a permit to run. Its deadline begins afterwards.
    pub queue: Duration,
    /// Largest file of a module, in bytes.
    pub module: u64,
    /// Largest code that is made of a module, in bytes.
    pub compiled: u64,
    /// Most processor time that compiling a module may take, in a process of its own.
    pub compile_time: Duration,
    /// Most memory that compiling a module may take, in bytes, in a process of its own.
    pub compile_memory: u64,
}

impl Limits {
    /// Limits of the commands for authors. Nobody waits for an answer there, so time in which others have the processor
    /// does not count.
    pub fn of_authors() -> Self {
        Self {
            patience: u32::MAX,
            ..Self::default()
        }
    }

    /// Calls of built-in guests that run at once.
    pub fn built_in(&self) -> usize {
        self.reserved.min(self.concurrent)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(1),
            patience: 2,
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
            compile_time: Duration::from_mins(1),
            compile_memory: COMPILE_MEMORY,
        }
    }
}
