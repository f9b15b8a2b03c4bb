//! Loads WebAssembly guests and calls them within limits.
//!
//! No other package names wasmtime. A guest sees no file, network, environment or clock. Every call
//! gets a new instance, a deadline, a memory limit and a limit for its answer, and runs off the
//! async threads. A failed call returns a typed error.
//!
//! Entry points:
//! - [`GuestHost`] loads and calls guests, and [`Guest`] is a loaded one. [`OfflineGuest`] calls a
//!   component for its author.
//! - [`limits`] has every limit and their sum, and [`policy_request`] is a request as JSON.
//! - [`inspect()`] describes a component, and [`componentize()`] makes one of a core module.
//!   [`CONTRACT`] is the contract.
//!
//! It must not know the fields of an IPUPolicy, the source of a module, or the objects that it
//! passes on. Of policies it knows the name, which the caller passes for metrics and decisions, and
//! messages suggest changes of IPUPolicies to admins.
#![deny(unsafe_code)]

mod bindings;
mod call;
mod call_state;
mod capabilities;
mod code_budget;
mod code_size;
mod compile;
mod componentize;
mod confinement;
mod contract_version;
mod engine;
mod fixed_random;
mod guest;
mod guest_error;
mod host;
mod inspect;
pub mod limits;
mod load;
mod memory_limiter;
pub mod metrics;
pub mod model;
mod offline_guest;
mod output_lines;
pub mod policy_request;
mod precompiled;
pub mod record;
mod recorder;
mod samples;
pub mod texts;
mod wasi;
mod world_name;

pub use capabilities::{
    Capabilities, CapabilitiesError, Export, Import, MissingExport, capabilities,
};
pub use code_budget::{CodeLocation, NoMemory};
pub use compile::{CompileError, compile_as_child};
pub use componentize::{ComponentizeError, componentize};
pub use contract_version::{CONTRACT, ContractVersion};
pub use engine::EngineError;
pub use guest::{BUILT_IN, Guest, ModuleConfig};
pub use guest_error::GuestError;
pub use host::{GuestHost, GuestHostOptions, OpenError};
pub use inspect::{Described, InspectError, Inspection, describe, inspect};
pub use limits::{Limits, OverLimit};
pub use load::LoadError;
pub use offline_guest::{Budget, CallResult, OfflineGuest};
pub use recorder::RecordedCall;
pub use samples::request as sample_request;
pub use wasi::UnsupportedWasi;
