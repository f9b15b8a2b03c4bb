//! The cache of compiled modules.
//!
//! Loading code is the only unsafe operation of this package. The code comes from the operator's
//! own compiler, through a pipe or from a directory that only the operator may write to.
#![expect(
    unsafe_code,
    reason = "wasmtime has no safe way to load code that another process has compiled"
)]

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ipu_api::guest::digest::digest_of;
use wasmtime::Engine;
use wasmtime::component::Component;

use super::code_budget::{CodeBudget, CodeLocation, NoMemory, Reservation};
use super::code_size::CodeSize;

/// Subdirectory of the compiled modules.
const COMPILED: &str = "compiled";

/// Returns the path of the code of a module for this engine.
pub(super) fn path(folder: &Path, engine: &Engine, module: &[u8]) -> PathBuf {
    let mut kind = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut kind);
    let digest = digest_of(module);
    let digest = digest.as_str().trim_start_matches("sha256:");
    let name = format!("{digest}-{:016x}.cwasm", kind.finish());
    folder.join(COMPILED).join(name)
}

/// The code of a module, with its part of the memory of loaded modules.
pub(super) struct LoadedCode {
    pub(super) component: Component,
    pub(super) memory: Reservation,
}

/// Reason why code is not loaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum CodeError {
    /// It does not fit into the memory of loaded modules.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
    /// It is no code for this engine, or cannot be read.
    #[error("{0:#}")]
    Unusable(wasmtime::Error),
}

/// Loads a module from the cache. Returns `None` if it is missing or unusable.
pub(super) fn open(
    engine: &Engine,
    path: &Path,
    limit: u64,
    budget: &CodeBudget,
) -> Result<Option<LoadedCode>, NoMemory> {
    let size = fs::metadata(path).map_or(0, |found| found.len());
    if !(1..=limit).contains(&size) {
        return Ok(None);
    }
    let code = fs::read(path).map_err(|error| CodeError::Unusable(error.into()));
    match code.and_then(|code| of_file(engine, path, &code, budget)) {
        Ok(loaded) => Ok(Some(loaded)),
        Err(CodeError::NoMemory(error)) => Err(error),
        Err(error @ CodeError::Unusable(_)) => {
            let path = path.display();
            tracing::warn!(%path, %error, "a stored compiled module cannot be used");
            Ok(None)
        }
    }
}

/// Loads a module from its code and stores the code. Without a stored copy the next start compiles
/// it again.
pub(super) fn load_and_store(
    engine: &Engine,
    code: &[u8],
    path: Option<&Path>,
    budget: &CodeBudget,
) -> Result<LoadedCode, CodeError> {
    if let Some(path) = path {
        match store(path, code) {
            // The kernel can drop the pages of a file if memory is short.
            Ok(()) => return of_file(engine, path, code, budget),
            Err(error) => {
                let path = path.display();
                tracing::warn!(%path, %error, "a compiled module is not stored; is the folder for compiled modules full?");
            }
        }
    }
    of_bytes(engine, code, budget)
}

/// Writes a file atomically, also in case of a power loss.
fn store(path: &Path, code: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let part = path.with_extension("part");
    let written = File::create(&part).and_then(|mut file| {
        file.write_all(code)?;
        file.sync_all()
    });
    let stored = written.and_then(|()| fs::rename(&part, path));
    stored.inspect_err(|_| {
        // The partial file is useless; the first error has the cause.
        let _ = fs::remove_file(&part);
    })
}

/// Maps the file with this code. If the file system does not allow execution, loads the code
/// without it.
fn of_file(
    engine: &Engine,
    path: &Path,
    code: &[u8],
    budget: &CodeBudget,
) -> Result<LoadedCode, CodeError> {
    let memory = budget.reserve(CodeLocation::File, size(code)?)?;
    // SAFETY: `store` wrote the file atomically, it never changes, and only the operator may write
    // to its directory. wasmtime refuses the code of another version.
    if let Ok(component) = unsafe { Component::deserialize_file(engine, path) } {
        return Ok(LoadedCode { component, memory });
    }
    drop(memory);
    of_bytes(engine, code, budget)
}

fn of_bytes(engine: &Engine, code: &[u8], budget: &CodeBudget) -> Result<LoadedCode, CodeError> {
    let memory = budget.reserve(CodeLocation::Memory, size(code)?)?;
    // SAFETY: the bytes come from the compiling process, which is this program.
    let component = unsafe { Component::deserialize(engine, code) };
    let component = component.map_err(CodeError::Unusable)?;
    Ok(LoadedCode { component, memory })
}

fn size(code: &[u8]) -> Result<CodeSize, CodeError> {
    let no_code = || CodeError::Unusable(wasmtime::Error::msg("it has no section with metadata"));
    CodeSize::of(code).ok_or_else(no_code)
}
