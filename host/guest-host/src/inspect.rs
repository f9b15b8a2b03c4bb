//! Tells the author of a policy what the operator would make of a file.

use std::path::Path;
use std::time::{Duration, Instant};

use wasmtime::component::Component;

use super::bindings;
use super::capabilities::{
    Capabilities, CapabilitiesError, Lack, capabilities, contract, recognize,
};
use super::compile::Compiler;
use super::engine::{EngineError, GuestEngine};
use super::limits::Limits;
use super::load::{self, LoadError};
use super::model::{ModuleDigest, Slot};

/// What the operator makes of a file that is a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The slot whose world it implements.
    pub slot: Slot,
    /// Digest of the file, by which logs, events and audit annotations name it.
    pub digest: ModuleDigest,
    /// Size of the file, in bytes.
    pub size: usize,
    /// Names of what it imports.
    pub imports: Vec<String>,
    /// Time from the file's bytes to a policy that can be asked.
    pub load_time: Duration,
}

/// Why a file is no policy.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// No engine.
    #[error("failed to start the WebAssembly host")]
    Engine(#[from] EngineError),
    /// The operator would refuse it.
    #[error("the operator would refuse this file")]
    Refused(#[from] LoadError),
    /// It is no component.
    #[error(transparent)]
    NoComponent(#[from] CapabilitiesError),
    /// It exports none of the three interfaces.
    #[error("it exports none of {} (it exports {exports})", wanted.join(", "))]
    NoWorld {
        /// The interfaces, one for each world.
        wanted: Vec<String>,
        /// What it exports instead.
        exports: String,
    },
    /// It does not export what its world asks for.
    #[error(
        "it does not implement world {world}: {}",
        lacks.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    )]
    Lacks {
        /// The world.
        world: &'static str,
        /// What is missing or different.
        lacks: Vec<Lack>,
    },
}

/// A file as it stands: not compiled, not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Digest of the file.
    pub digest: ModuleDigest,
    /// Size of the file, in bytes.
    pub size: usize,
    /// What it imports and exports.
    pub capabilities: Capabilities,
}

/// Reads what a file imports and exports, also of one that the operator would refuse.
pub fn describe(file: &Path) -> Result<Described, InspectError> {
    let bytes = load::read(file, Limits::of_authors().module)?;
    Ok(Described {
        capabilities: capabilities(&bytes)?,
        digest: load::digest(&bytes),
        size: bytes.len(),
    })
}

/// Loads the file as the operator would and tries it on a sample request. Without a slot, the
/// exports tell which one it is for.
pub fn inspect(
    file: &Path,
    slot: Option<Slot>,
    settings: &str,
) -> Result<Inspection, InspectError> {
    let limits = Limits::of_authors();
    let engine = GuestEngine::compiling(limits)?;
    let bytes = load::read(file, limits.module)?;
    recognize(&bytes)?;
    let component = Compiler::Here
        .compile(&engine, &bytes)
        .map_err(LoadError::from)?;
    let Some(slot) = slot.or_else(|| bindings::exported_slot(&component)) else {
        return Err(no_world(&component));
    };
    let begin = Instant::now();
    let module = load::load(&engine, &Compiler::Here, slot, &bytes, settings)
        .map_err(|error| explained(error, slot, &bytes))?;
    Ok(Inspection {
        slot,
        digest: module.digest,
        size: bytes.len(),
        imports: bindings::imports(&component),
        load_time: begin.elapsed(),
    })
}

/// The error of a component that is for no slot.
pub(super) fn no_world(component: &Component) -> InspectError {
    let worlds = Slot::ALL.into_iter().flat_map(contract);
    InspectError::NoWorld {
        wanted: worlds.map(|interface| interface.name).collect(),
        exports: bindings::exports(component),
    }
}

/// Where a file does not implement its world, says by which functions.
pub(super) fn explained(error: LoadError, slot: Slot, bytes: &[u8]) -> InspectError {
    let lacks = match (&error, capabilities(bytes)) {
        (LoadError::World { .. }, Ok(found)) => found.lacks(slot),
        _ => Vec::new(),
    };
    if lacks.is_empty() {
        return InspectError::Refused(error);
    }
    InspectError::Lacks {
        world: slot.world(),
        lacks,
    }
}
