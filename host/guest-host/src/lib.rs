//! The WebAssembly host: loads guests and calls them within limits.
//!
//! Nothing else in the tree names wasmtime. A policy sees no file, no network, no environment and no
//! clock; every call meets a fresh instance, has a deadline, a memory limit and a limit on the size
//! of its answer, and runs off the async threads. A call that goes wrong ends in a typed error.
#![deny(unsafe_code)]

mod bindings;
mod call;
mod capabilities;
mod compile;
mod componentize;
mod dispose;
mod engine;
pub mod facts;
mod guest;
mod inspect;
mod library;
pub mod limits;
mod load;
pub mod metrics;
pub mod model;
mod native;
mod precompiled;
pub mod question;
pub mod record;
mod samples;
mod store;
mod tap;
pub mod texts;
mod trial;
mod wasi;

pub use call::GuestError;
pub use capabilities::{Capabilities, CapabilitiesError, Export, Import, Lack, capabilities};
pub use compile::{CompileError, compile_as_child};
pub use componentize::{CONTRACT, ComponentizeError, componentize};
pub use dispose::checked as checked_decision;
pub use engine::EngineError;
pub use guest::{BUILT_IN, Guest, Terms};
pub use inspect::{Described, InspectError, Inspection, describe, inspect};
pub use library::{OpenError, Policies, PolicyOptions};
pub use limits::Limits;
pub use load::{LoadError, digest as digest_of};
pub use native::serial_walk;
pub use store::OverLimit;
pub use tap::Heard;
pub use trial::{Asked, Meter, Trial};
pub use wasi::NotThere;
