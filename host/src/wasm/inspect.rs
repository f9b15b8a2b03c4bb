//! Tells the author of a policy what the operator would make of a file.

use std::path::Path;
use std::time::{Duration, Instant};

use super::bindings;
use super::compile::Compiler;
use super::engine::{EngineError, GuestEngine};
use super::limits::Limits;
use super::load::{self, LoadError};
use super::model::{ModuleDigest, Slot};

/// How every core module begins; a component has another version there.
const CORE_MODULE: &[u8] = b"\0asm\x01\0\0\0";

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
    /// It is what compilers make, and no component yet.
    #[error("it is a core module; make a component of it with `ipu-operator policy componentize`")]
    CoreModule,
    /// It exports none of the three interfaces.
    #[error(
        "it exports none of ipu:policy/defaulter@0.2.0, ipu:policy/validator@0.2.0 and \
         ipu:policy/placer@0.2.0, nor one of them in 0.1.0 (it exports {0})"
    )]
    NoWorld(String),
}

/// Loads the file as the operator would and tries it on a sample request. Without a slot, the
/// exports tell which one it is for.
pub fn inspect(
    file: &Path,
    slot: Option<Slot>,
    settings: &str,
) -> Result<Inspection, InspectError> {
    let limits = Limits::default();
    let engine = GuestEngine::new(limits, None)?;
    let bytes = load::read(file, limits.module)?;
    if bytes.starts_with(CORE_MODULE) {
        return Err(InspectError::CoreModule);
    }
    let component = Compiler::Here
        .compile(&engine, &bytes)
        .map_err(LoadError::from)?;
    let Some(slot) = slot.or_else(|| bindings::exported_slot(&component)) else {
        return Err(InspectError::NoWorld(bindings::exports(&component)));
    };
    let begin = Instant::now();
    load::load(&engine, &Compiler::Here, slot, &bytes, settings)?;
    Ok(Inspection {
        slot,
        digest: load::digest(&bytes),
        size: bytes.len(),
        imports: bindings::imports(&component),
        load_time: begin.elapsed(),
    })
}
