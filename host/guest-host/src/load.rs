//! Makes a callable policy of a file: read, checked against its world, compiled, asked about its settings, tried.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use ipu_text::sanitize;
use sha2::{Digest, Sha256};
use wasmtime::component::Component;

use super::bindings;
use super::call::{Callable, GuestError};
use super::compile::{CompileError, Compiler};
use super::engine::GuestEngine;
use super::model::{ModuleDigest, Slot};
use super::samples;
use super::texts::{MESSAGE, Words};

/// Why a file does not become a policy.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("failed to read the file")]
    Read(#[source] std::io::Error),
    /// The file is larger than a module may be.
    #[error("the file has more than the {limit} bytes that a module may have")]
    TooLarge {
        /// Largest allowed size, in bytes.
        limit: u64,
    },
    /// It is no WebAssembly component, or one that cannot be compiled within the limits.
    #[error("failed to compile the file as a WebAssembly component")]
    Compile(#[from] CompileError),
    /// It imports what no policy may have.
    #[error(
        "it imports {0}, and a policy may import nothing but ipu:policy/logging, ipu:policy/types \
         and the empty interfaces of WASI 0.2 that wit/README.md lists; leave it out, or have the \
         tool that makes the component replace it by a stub"
    )]
    Imports(String),
    /// It does not export what its world asks for.
    #[error("it does not implement world {world} of package {}", bindings::PACKAGE)]
    World {
        /// The world.
        world: &'static str,
        /// What is missing or different.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Loading ended in a panic.
    #[error("failed to wait for it to load")]
    Panicked(#[source] ipu_runtime::panics::Panicked),
    /// It does not accept its settings, or failed on them.
    #[error("it failed when it was asked about its settings")]
    Settings(#[source] GuestError),
    /// It failed on a sample request.
    #[error("it failed when it was tried on a sample request")]
    Tried(#[source] GuestError),
}

/// A policy that was loaded and tried.
pub(super) struct Module {
    pub(super) digest: ModuleDigest,
    pub(super) callable: Callable,
}

/// Digest of a module's bytes.
pub fn digest(bytes: &[u8]) -> ModuleDigest {
    let mut text = String::from("sha256:");
    for byte in Sha256::digest(bytes) {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
    }
    ModuleDigest::new(text)
}

/// Reads a module's file, but no more of it than a module may have.
pub(super) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, LoadError> {
    let file = File::open(path).map_err(LoadError::Read)?;
    let mut bytes = Vec::new();
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(LoadError::Read)?;
    if bytes.len() as u64 > limit {
        return Err(LoadError::TooLarge { limit });
    }
    Ok(bytes)
}

/// Makes a policy for `slot` of a module's bytes. Blocks while it compiles.
pub(super) fn load(
    engine: &GuestEngine,
    compiler: &Compiler,
    slot: Slot,
    bytes: &[u8],
    settings: &str,
) -> Result<Module, LoadError> {
    let component = compiler.compile(engine, bytes)?;
    let linked = check(&component, slot)?;
    let callable = Callable::new(engine.clone(), linked, settings.to_owned());
    let accepted = callable.begin().validate_settings();
    accepted.map_err(LoadError::Settings)?;
    try_out(&callable, slot).map_err(LoadError::Tried)?;
    Ok(Module {
        digest: digest(bytes),
        callable,
    })
}

/// Checks imports and exports against the world of the slot.
pub(super) fn check(component: &Component, slot: Slot) -> Result<bindings::Linked, LoadError> {
    let forbidden = bindings::forbidden_imports(component);
    if !forbidden.is_empty() {
        return Err(LoadError::Imports(sanitize(&forbidden.join(", "), MESSAGE)));
    }
    bindings::link(component, slot).map_err(|error| {
        let source: Box<dyn std::error::Error + Send + Sync> = error.into();
        LoadError::World {
            world: slot.world(),
            source: Box::new(Words::of(&*source)),
        }
    })
}

/// Calls the policy once, as it will be called later. Which way it decides is its own affair.
fn try_out(callable: &Callable, slot: Slot) -> Result<(), GuestError> {
    let job = samples::job().to_string();
    let mut call = callable.begin();
    match slot {
        Slot::Defaulting => call
            .default_object(&samples::admission(), job, None)
            .map(drop),
        Slot::Validation => call.validate(&samples::admission(), job, None).map(drop),
        Slot::Placement => call
            .place(&samples::place_request(), &samples::controllers(), &[])
            .map(drop),
    }
}
