//! The memory of loaded modules: each takes a part of one budget until it is dropped.

use std::sync::Arc;

use parking_lot::Mutex;

use super::code_size::CodeSize;

/// Ratio of the metadata of a loaded module to its encoded form. A type is encoded in some eight
/// bytes, and takes some 500 in the tables of the engine.
const METADATA_GROWTH: u64 = 64;

/// Location of the code of a loaded module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeLocation {
    /// A mapped file. The kernel can drop its pages.
    File,
    /// Memory that no file backs.
    Memory,
}

impl CodeLocation {
    /// Returns the most memory of a loaded module of this size, in bytes.
    fn memory(self, size: CodeSize) -> u64 {
        let metadata = METADATA_GROWTH * size.metadata;
        match self {
            Self::File => metadata,
            // The engine copies the data, which is a part of the code, for the memories of
            // instances.
            Self::Memory => 2 * size.code + metadata,
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::File => "make it smaller, or delete another IPUPolicy",
            Self::Memory => {
                "its code stays in memory, because it cannot be stored in the folder for compiled modules: make space \
                 there, make the module smaller, or delete another IPUPolicy"
            }
        }
    }
}

/// A module does not fit into the memory of loaded modules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "while it is loaded, it takes {needed} bytes of memory, and all modules may take {limit}, of which others take \
     {used}; {}", .location.advice()
)]
pub struct NoMemory {
    /// Memory of the module, in bytes.
    pub needed: u64,
    /// Memory of the other modules, in bytes.
    pub used: u64,
    /// Most memory of all modules, in bytes.
    pub limit: u64,
    /// Location of its code.
    pub location: CodeLocation,
}

/// The memory of all loaded modules. Cheap to clone; all clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct CodeBudget {
    used: Arc<Mutex<u64>>,
    limit: u64,
}

/// A part of the budget. It is released on drop.
#[derive(Debug, Default)]
pub(super) struct Reservation {
    budget: CodeBudget,
    bytes: u64,
}

impl CodeBudget {
    /// Creates a budget of this many bytes.
    pub(super) fn new(limit: u64) -> Self {
        Self {
            used: Arc::default(),
            limit,
        }
    }

    /// Reserves the memory of a module of this size.
    pub(super) fn reserve(
        &self,
        location: CodeLocation,
        size: CodeSize,
    ) -> Result<Reservation, NoMemory> {
        let needed = location.memory(size);
        let mut used = self.used.lock();
        if needed > self.limit.saturating_sub(*used) {
            return Err(NoMemory {
                needed,
                used: *used,
                limit: self.limit,
                location,
            });
        }
        *used += needed;
        Ok(Reservation {
            budget: self.clone(),
            bytes: needed,
        })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        *self.budget.used.lock() -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{COMPILED, LOADED};

    /// A module of the largest size. Its metadata is as large as that of guests in Rust of this
    /// size would be.
    const LARGEST: CodeSize = CodeSize {
        code: COMPILED,
        metadata: COMPILED / 256,
    };

    fn size(code: u64, metadata: u64) -> CodeSize {
        CodeSize { code, metadata }
    }

    #[test]
    fn five_modules_of_the_largest_size_fit_in_files_and_one_in_memory() {
        let in_files = CodeBudget::new(LOADED);
        let files = [(); 5].map(|()| in_files.reserve(CodeLocation::File, LARGEST));
        assert!(files.iter().all(Result::is_ok), "{files:?}");
        let in_memory = CodeBudget::new(LOADED);
        let first = in_memory.reserve(CodeLocation::Memory, LARGEST);
        assert!(first.is_ok(), "{first:?}");
        let second = in_memory.reserve(CodeLocation::Memory, LARGEST);
        assert!(second.is_err(), "{second:?}");
    }

    #[test]
    fn what_is_dropped_makes_space_and_what_is_refused_takes_none() {
        let budget = CodeBudget::new(1_000);
        let first = budget.reserve(CodeLocation::Memory, size(418, 1)).unwrap();
        let refused = budget.reserve(CodeLocation::Memory, size(100, 1));
        let refused = refused.unwrap_err();
        assert_eq!((refused.needed, refused.used), (264, 900));
        let text = refused.to_string();
        for part in [
            "264 bytes",
            "may take 1000",
            "others take 900",
            "make space there",
        ] {
            assert!(text.contains(part), "{part:?}: {text}");
        }
        let file = budget.reserve(CodeLocation::File, size(400, 1)).unwrap();
        let refused = budget.reserve(CodeLocation::File, size(1, 1)).unwrap_err();
        assert!(refused.to_string().ends_with("delete another IPUPolicy"));
        drop((first, file));
        let all = budget.reserve(CodeLocation::File, size(4_000, 15));
        assert!(all.is_ok(), "{all:?}");
    }
}
