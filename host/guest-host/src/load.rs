//! Loads a module: compiles it, checks it against its world, validates its settings, and tests it
//! with a sample request.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use ipu_api::guest::digest::{ModuleDigest, digest_of};
use ipu_api::ipupolicy::Hook;
use ipu_text::sanitize;
use wasmtime::component::Component;

use super::call::Callable;
use super::code_budget::{NoMemory, Reservation};
use super::compile::{CompileError, Compiler};
use super::contract_version::ContractVersion;
use super::engine::GuestEngine;
use super::guest_error::GuestError;
use super::precompiled::LoadedCode;
use super::texts::{MESSAGE, SanitizedError};
use super::{bindings, samples};

/// Failure to load a module.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("failed to read the file")]
    Read(#[source] std::io::Error),
    /// The file exceeds the size limit of a module.
    #[error("the file has more than the {limit} bytes that a module may have")]
    TooLarge {
        /// Largest allowed size, in bytes.
        limit: u64,
    },
    /// It is not a WebAssembly component, or cannot be compiled within the limits.
    #[error("failed to compile the file as a WebAssembly component")]
    Compile(#[source] CompileError),
    /// Its code does not fit into the memory of loaded modules.
    #[error(transparent)]
    NoMemory(NoMemory),
    /// It has forbidden imports.
    #[error(
        "it imports {0}, and a policy may import nothing but ipu:policy/logging, ipu:policy/types \
         and the empty interfaces of WASI 0.2 that wit/README.md lists; leave it out, or have the \
         tool that makes the component replace it by a stub"
    )]
    Imports(String),
    /// Exports of its world are missing.
    #[error("it does not implement world {} of package {}", .0, ContractVersion::CURRENT.package())]
    World(
        &'static str,
        #[source] Box<dyn std::error::Error + Send + Sync>,
    ),
    /// Loading panicked.
    #[error("failed to wait for it to load")]
    Panicked(#[source] ipu_runtime::panics::Panicked),
    /// It refuses its settings, or failed on them.
    #[error("its function validate-settings failed")]
    Settings(#[source] GuestError),
    /// It failed on a sample request.
    #[error("it failed on a sample request")]
    Test(#[source] GuestError),
}

impl LoadError {
    /// Whether the same module can load later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::NoMemory(_)) || self.is_passing()
    }

    /// Whether the failure passes by itself: it is about this process, and not about the module.
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Panicked(_)
                | Self::Compile(CompileError::Process(_))
                | Self::Settings(GuestError::Starved { .. })
                | Self::Test(GuestError::Starved { .. })
        )
    }
}

impl From<CompileError> for LoadError {
    fn from(error: CompileError) -> Self {
        match error {
            CompileError::NoMemory(error) => Self::NoMemory(error),
            error => Self::Compile(error),
        }
    }
}

/// A module that was loaded and tested.
pub(super) struct Module {
    pub(super) digest: ModuleDigest,
    pub(super) callable: Callable,
    /// Reserved for as long as the module is loaded.
    _memory: Reservation,
}

/// Reads a module from a file, up to its size limit.
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

/// Loads a module for `hook`. Blocks while it compiles.
pub(super) fn load(
    engine: &GuestEngine,
    compiler: &Compiler,
    hook: Hook,
    bytes: &[u8],
    settings: &str,
) -> Result<Module, LoadError> {
    let LoadedCode { component, memory } = compiler.compile(engine, bytes)?;
    let linked = check(&component, hook)?;
    let callable = Callable::new(engine.clone(), linked, settings.to_owned());
    let accepted = callable.begin().validate_settings();
    accepted.map_err(LoadError::Settings)?;
    test(&callable, hook).map_err(LoadError::Test)?;
    Ok(Module {
        digest: digest_of(bytes),
        callable,
        _memory: memory,
    })
}

/// Checks the imports and exports against the world of the hook.
pub(super) fn check(component: &Component, hook: Hook) -> Result<bindings::Linked, LoadError> {
    let forbidden = bindings::forbidden_imports(component);
    if !forbidden.is_empty() {
        return Err(LoadError::Imports(sanitize(&forbidden.join(", "), MESSAGE)));
    }
    bindings::link(component, hook).map_err(|error| {
        let source: Box<dyn std::error::Error + Send + Sync> = error.into();
        LoadError::World(hook.world(), Box::new(SanitizedError::of(&*source)))
    })
}

/// Calls the module with the sample request. Any valid answer passes.
fn test(callable: &Callable, hook: Hook) -> Result<(), GuestError> {
    let job = samples::job().to_string();
    let mut call = callable.begin();
    match hook {
        Hook::Defaulting => call
            .default_object((samples::admission(), job, None))
            .map(drop),
        Hook::Validation => call.validate((samples::admission(), job, None)).map(drop),
        Hook::Placement => call
            .place(&samples::place_request(), &samples::controllers(), &[])
            .map(drop),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::call_state::Starved;

    #[test]
    fn only_failures_of_the_process_pass_by_themselves() {
        let starved = || GuestError::Starved {
            deadline: Duration::from_secs(1),
            source: Starved {
                ran: Duration::from_millis(1),
                lasted: Duration::from_secs(1),
            },
        };
        let process = std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        for passing in [
            LoadError::Settings(starved()),
            LoadError::Test(starved()),
            LoadError::Compile(CompileError::Process(process)),
        ] {
            assert!(passing.is_passing() && passing.is_retryable(), "{passing}");
        }
        let refused = || GuestError::Settings("maxIpusPerJob is no number".to_owned());
        for lasting in [
            LoadError::Settings(refused()),
            LoadError::Test(GuestError::Deadline(Duration::from_secs(1))),
            LoadError::Compile(CompileError::Timeout(Duration::from_secs(1))),
            LoadError::TooLarge { limit: 1 },
        ] {
            assert!(
                !lasting.is_passing() && !lasting.is_retryable(),
                "{lasting}"
            );
        }
    }
}
