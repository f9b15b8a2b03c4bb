//! Inspects a file for the author of a guest: whether and how the operator would load it.

use std::path::Path;
use std::time::{Duration, Instant};

use ipu_api::guest::digest::{ModuleDigest, digest_of};
use ipu_api::ipupolicy::Hook;
use wasmtime::component::Component;

use super::bindings;
use super::capabilities::{
    Capabilities, CapabilitiesError, MissingExport, capabilities, check_format,
};
use super::compile::Compiler;
use super::contract_version::ContractVersion;
use super::engine::{EngineError, GuestEngine};
use super::limits::Limits;
use super::load::{self, LoadError};

/// Result of inspecting a valid policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The hook of its world.
    pub hook: Hook,
    /// Digest of the file, as in logs, events and audit annotations.
    pub digest: ModuleDigest,
    /// Size of the file, in bytes.
    pub size: usize,
    /// Names of its imports.
    pub imports: Vec<String>,
    /// Time to load it.
    pub load_time: Duration,
}

/// Reason why a file is not a valid guest.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The engine cannot be created.
    #[error("failed to start the WebAssembly host")]
    Engine(#[from] EngineError),
    /// The operator would refuse it.
    #[error("the operator would refuse this file")]
    Refused(#[from] LoadError),
    /// It is not a component.
    #[error(transparent)]
    NoComponent(#[from] CapabilitiesError),
    /// It exports none of the three interfaces.
    #[error("it exports none of {} (it exports {exports})", expected.join(", "))]
    NoWorld {
        /// The interfaces, one for each world.
        expected: Vec<String>,
        /// Its exports.
        exports: String,
    },
    /// Exports of its world are missing.
    #[error(
        "it does not implement world {world}: {}",
        missing.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    )]
    MissingExports {
        /// The world.
        world: &'static str,
        /// The missing or different exports.
        missing: Vec<MissingExport>,
    },
}

/// Description of a file that is neither compiled nor run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Digest of the file.
    pub digest: ModuleDigest,
    /// Size of the file, in bytes.
    pub size: usize,
    /// Its imports and exports.
    pub capabilities: Capabilities,
}

/// Reads the imports and exports of a file, even of one that the operator would refuse.
pub fn describe(file: &Path) -> Result<Described, InspectError> {
    let bytes = load::read(file, Limits::for_authoring().module)?;
    Ok(Described {
        capabilities: capabilities(&bytes)?,
        digest: digest_of(&bytes),
        size: bytes.len(),
    })
}

/// Loads a file as the operator does, and tests it with a sample request. Without a hook, its
/// exports decide.
pub fn inspect(
    file: &Path,
    hook: Option<Hook>,
    settings: &str,
) -> Result<Inspection, InspectError> {
    let limits = Limits::for_authoring();
    let engine = GuestEngine::compiling(limits)?;
    let bytes = load::read(file, limits.module)?;
    check_format(&bytes)?;
    let compiled = Compiler::InProcess.compile(&engine, &bytes);
    let component = compiled.map_err(LoadError::from)?.component;
    let Some(hook) = hook.or_else(|| bindings::exported_hook(&component)) else {
        return Err(no_world(&component));
    };
    let begin = Instant::now();
    let module = load::load(&engine, &Compiler::InProcess, hook, &bytes, settings)
        .map_err(|error| explained(error, hook, &bytes))?;
    Ok(Inspection {
        hook,
        digest: module.digest,
        size: bytes.len(),
        imports: bindings::imports(&component),
        load_time: begin.elapsed(),
    })
}

/// Returns the error of a component without a hook.
pub(super) fn no_world(component: &Component) -> InspectError {
    let interfaces = Hook::ALL.map(|hook| ContractVersion::CURRENT.interface(hook));
    InspectError::NoWorld {
        expected: interfaces.to_vec(),
        exports: bindings::exports(component),
    }
}

/// Adds the missing exports to the error of a file that does not implement its world.
pub(super) fn explained(error: LoadError, hook: Hook, bytes: &[u8]) -> InspectError {
    let missing = match (&error, capabilities(bytes)) {
        (LoadError::World(..), Ok(found)) => found.missing_exports(hook),
        _ => Vec::new(),
    };
    if missing.is_empty() {
        return InspectError::Refused(error);
    }
    InspectError::MissingExports {
        world: hook.world(),
        missing,
    }
}
