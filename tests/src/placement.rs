//! Measures placement policies for BENCHMARKS.md: the table of figures on jobs of a real cluster, and the scale.

mod policies;
mod scale;

pub use policies::{PolicyError, Run, evaluate};
pub use scale::{Measured, scale};
