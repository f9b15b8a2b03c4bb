//! Pure: the values of the contract with guests (`wit/policy.wit`), as the host has them.

pub mod admission;
pub mod digest;
mod free_blocks;
pub mod namespace;
pub mod placement;
