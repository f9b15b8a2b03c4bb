//! Turns a core module, as compilers make them, into a component.

use std::path::Path;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use super::model::Slot;

/// The plug-in contract, as it stands in the repository.
pub const CONTRACT: &str = include_str!("../../../wit/policy.wit");

/// Why a module does not become a component.
#[derive(Debug, thiserror::Error)]
pub enum ComponentizeError {
    /// The world cannot be written into the module.
    #[error("failed to name world {world} in the module")]
    World {
        /// The world.
        world: &'static str,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The module does not fit its world, or is no core module.
    #[error("failed to make a component of the module")]
    Encode(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Makes a component of a core module. Modules made with wit-bindgen know their world; for others
/// the world of `slot` is written into them first.
pub fn componentize(core: &[u8], slot: Option<Slot>) -> Result<Vec<u8>, ComponentizeError> {
    let mut core = core.to_vec();
    if let Some(slot) = slot {
        embed(&mut core, slot).map_err(|source| ComponentizeError::World {
            world: slot.world(),
            source: source.into(),
        })?;
    }
    encode(&core).map_err(|error| ComponentizeError::Encode(error.into()))
}

fn embed(core: &mut Vec<u8>, slot: Slot) -> anyhow::Result<()> {
    let mut resolve = Resolve::default();
    let package = resolve.push_str(Path::new("policy.wit"), CONTRACT)?;
    let world = resolve.select_world(&[package], Some(slot.world()))?;
    embed_component_metadata(core, &resolve, world, StringEncoding::UTF8)
}

fn encode(core: &[u8]) -> anyhow::Result<Vec<u8>> {
    ComponentEncoder::default()
        .module(core)?
        .validate(true)
        .encode()
}
