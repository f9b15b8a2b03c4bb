//! The pinned programs and images of a cluster, without a cluster: what must be built or downloaded
//! before one can start. It depends on few crates, because `make` compiles it first: its program
//! then builds everything else side by side.
//!
//! Entry points:
//! - [`Tools`](tools::Tools) are the pinned programs, and [`images`] makes images without a
//!   registry.
//! - [`builds`] builds what a command needs, side by side ([`lanes`]), and [`testing`] is
//!   `make test`.
//!
//! It must not know any package of the operator.
#![forbid(unsafe_code)]

pub mod builds;
pub mod cargo;
pub mod command;
pub mod debian;
pub mod files;
pub mod guests;
pub mod images;
pub mod interrupt;
pub mod kubernetes;
pub mod lanes;
pub mod lock;
pub mod platform;
pub mod programs;
pub mod progress;
pub mod settings;
pub mod testing;
pub mod tools;
