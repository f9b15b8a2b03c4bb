//! Pure: how much a policy may take of anything.

use std::time::Duration;

/// How much a policy may take of anything, for each call where not said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest time that a call may run.
    pub deadline: Duration,
    /// Most memory that an instance may have, in bytes.
    pub memory: usize,
    /// Most elements that a table of an instance may have.
    pub table_elements: usize,
    /// Largest answer, in bytes of text.
    pub output: usize,
    /// Most calls that run at once.
    pub concurrent: usize,
    /// Longest time that a call waits for its turn.
    pub queue: Duration,
    /// Largest file of a module, in bytes.
    pub module: u64,
    /// Longest time that compiling a module may take, in a process of its own.
    pub compile_time: Duration,
    /// Most memory that compiling a module may take, in bytes, in a process of its own.
    pub compile_memory: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(1),
            memory: 64 << 20,
            table_elements: 20_000,
            output: 4 << 20,
            concurrent: 8,
            queue: Duration::from_secs(5),
            module: 64 << 20,
            compile_time: Duration::from_mins(1),
            compile_memory: 1 << 30,
        }
    }
}
