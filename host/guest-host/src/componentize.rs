//! Turns a core module from a compiler into a component.

use std::path::Path;

use ipu_api::ipupolicy::Hook;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use super::contract_version::ContractVersion;

/// An error of wit-parser or wit-component.
type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Failure to turn a module into a component.
#[derive(Debug, thiserror::Error)]
pub enum ComponentizeError {
    /// The world cannot be embedded in the module.
    #[error("failed to name world {0} in the module")]
    World(&'static str, #[source] Cause),
    /// The module does not match its world, or is not a core module.
    #[error("failed to make a component of the module")]
    Encode(#[source] Cause),
}

/// Turns a core module into a component. A module from wit-bindgen includes its world; for others
/// the world of `hook` is embedded first, in the version of the contract that its exports name.
pub fn componentize(core: &[u8], hook: Option<Hook>) -> Result<Vec<u8>, ComponentizeError> {
    let mut core = core.to_vec();
    if let Some(hook) = hook {
        embed(&mut core, hook).map_err(|cause| ComponentizeError::World(hook.world(), cause))?;
    }
    encode(&core).map_err(ComponentizeError::Encode)
}

fn embed(core: &mut Vec<u8>, hook: Hook) -> Result<(), Cause> {
    let mut resolve = Resolve::default();
    let version = exported_version(core, hook).unwrap_or(ContractVersion::CURRENT);
    let package = resolve.push_str(Path::new("policy.wit"), version.wit())?;
    let world = resolve.select_world(&[package], Some(hook.world()))?;
    Ok(embed_component_metadata(
        core,
        &resolve,
        world,
        StringEncoding::UTF8,
    )?)
}

/// Returns the newest version of the contract whose functions the module exports by name, such as
/// `ipu:policy/placer@0.1.0#place`.
fn exported_version(core: &[u8], hook: Hook) -> Option<ContractVersion> {
    ContractVersion::ALL.into_iter().find(|version| {
        let prefix = format!("{}#", version.interface(hook));
        core.windows(prefix.len())
            .any(|bytes| bytes == prefix.as_bytes())
    })
}

fn encode(core: &[u8]) -> Result<Vec<u8>, Cause> {
    Ok(ComponentEncoder::default()
        .module(core)?
        .validate(true)
        .encode()?)
}
