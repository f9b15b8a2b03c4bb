//! Limits the memory and the tables of a guest during a call.

use wasmtime::ResourceLimiter;

use super::limits::{Limits, OverLimit};

/// The memory of one instance. An instance never gives memory back, so what it uses is also its
/// peak.
pub(super) struct MemoryLimiter {
    used: usize,
    limit: usize,
    table_limit: usize,
}

impl MemoryLimiter {
    /// Creates the limiter of a new instance.
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            used: 0,
            limit: limits.memory,
            table_limit: limits.table_elements,
        }
    }

    /// Returns the peak memory of the instance, in bytes.
    pub(super) fn peak(&self) -> usize {
        self.used
    }
}

impl ResourceLimiter for MemoryLimiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let requested = self.used.saturating_add(desired.saturating_sub(current));
        if requested > self.limit {
            return Err(OverLimit {
                requested,
                limit: self.limit,
                unit: "bytes of memory",
            }
            .into());
        }
        self.used = requested;
        Ok(true)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if desired > self.table_limit {
            return Err(OverLimit {
                requested: desired,
                limit: self.table_limit,
                unit: "elements of a table",
            }
            .into());
        }
        Ok(true)
    }
}
