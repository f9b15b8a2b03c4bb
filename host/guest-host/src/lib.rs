//! Loads WebAssembly guests and calls them within limits.
//!
//! No other package names wasmtime. A guest sees no file, network, environment or clock. Every call gets a new instance, a
//! deadline, a memory limit and a limit for its answer, and runs off the async threads. A failed call returns a typed error.
//! [`Policies`] loads and calls guests; `limits` holds every limit and adds them up.
//!
//! The package knows neither IPUPolicies nor the objects that it passes on.
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
