//! Machine code of modules that the compiling process has made: keeps it in a folder, and loads it.
//!
//! Loading code is the one thing in this package that the compiler cannot hold to be safe. The code is our own
//! compiler's, from a pipe or from a folder that nobody else may write to.
#![expect(
    unsafe_code,
    reason = "wasmtime has no safe way to load code that another process has compiled"
)]

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use wasmtime::Engine;
use wasmtime::component::Component;

use super::load;

/// Where compiled modules lie, below the folder for them.
const COMPILED: &str = "compiled";

/// The file of a module's code for engines such as this one.
pub(super) fn path(folder: &Path, engine: &Engine, module: &[u8]) -> PathBuf {
    let mut kind = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut kind);
    let digest = load::digest(module);
    let digest = digest.as_str().trim_start_matches("sha256:");
    let name = format!("{digest}-{:016x}.cwasm", kind.finish());
    folder.join(COMPILED).join(name)
}

/// The module whose code was kept there. None where there is none that can be used.
pub(super) fn open(engine: &Engine, path: &Path, limit: u64) -> Option<Component> {
    let size = fs::metadata(path).ok()?.len();
    if !(1..=limit).contains(&size) {
        return None;
    }
    let loaded = of_file(engine, path);
    loaded
        .inspect_err(|error| {
            let path = path.display();
            tracing::warn!(%path, error = %format!("{error:#}"), "a stored compiled module cannot be used");
        })
        .ok()
}

/// The module of this code, which is kept there where that is possible: without it the next start compiles again.
pub(super) fn take(
    engine: &Engine,
    code: &[u8],
    path: Option<&Path>,
) -> wasmtime::Result<Component> {
    if let Some(path) = path {
        match keep(path, code) {
            // The file's pages can be given back where memory is short, and read again.
            Ok(()) => return of_file(engine, path),
            Err(error) => {
                let path = path.display();
                tracing::warn!(%path, %error, "a compiled module is not stored; is the folder for compiled modules full?");
            }
        }
    }
    of_bytes(engine, code)
}

/// Writes a file so that it is there whole or not at all, also after a loss of power.
fn keep(path: &Path, code: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let part = path.with_extension("part");
    let written = File::create(&part).and_then(|mut file| {
        file.write_all(code)?;
        file.sync_all()
    });
    let kept = written.and_then(|()| fs::rename(&part, path));
    kept.inspect_err(|_| {
        // It takes room and is of no use; the error says what is wrong.
        let _ = fs::remove_file(&part);
    })
}

/// A folder from which nothing may be run is read from instead.
fn of_file(engine: &Engine, path: &Path) -> wasmtime::Result<Component> {
    // SAFETY: the file was written whole by `keep`, is never changed, and nobody else may write to its folder.
    // What another version of wasmtime has made is refused.
    let loaded = unsafe { Component::deserialize_file(engine, path) };
    loaded.or_else(|_| of_bytes(engine, &fs::read(path)?))
}

fn of_bytes(engine: &Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: the bytes are what the compiling process, which is this program, has made.
    unsafe { Component::deserialize(engine, code) }
}
