//! Generates the guests' bindings from `wit/policy.wit`; they are checked in, because the macro that
//! would make them during the build needs a newer compiler than the guests do.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use wit_bindgen_core::wit_parser::Resolve;
use wit_bindgen_core::{Files, WorldGenerator};
use wit_bindgen_rust::Opts;

use super::{Guest, checkout};

/// The Rust bindings for a guest that implements `world` of the package in the folder `wit`.
pub fn generate(wit: &Path, world: &str) -> Result<String> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve
        .push_path(wit)
        .with_context(|| format!("failed to read the package in {}", wit.display()))?;
    let world = resolve
        .select_world(&[package], Some(world))
        .with_context(|| format!("failed to find world {world} in {}", wit.display()))?;
    let options = Opts {
        format: true,
        default_bindings_module: Some("crate::bindings".to_owned()),
        ..Opts::default()
    };
    let mut files = Files::default();
    options
        .build()
        .generate(&mut resolve, world, &mut files)
        .context("failed to generate the bindings")?;
    let (_, source) = files
        .iter()
        .next()
        .context("the generator made no file for the world")?;
    String::from_utf8(source.to_vec()).context("the generator made a file that is no text")
}

/// Where the bindings of a guest are checked in.
pub fn file(guest: Guest) -> PathBuf {
    checkout()
        .join("guests")
        .join(guest.name)
        .join("src/bindings.rs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guests::GUESTS;

    #[test]
    fn the_bindings_are_those_of_the_contract() {
        for guest in GUESTS {
            let present = std::fs::read_to_string(file(guest)).unwrap();
            let generated = generate(&checkout().join("wit"), guest.slot.world()).unwrap();
            assert!(
                present == generated,
                "the bindings of {} are stale; CONTRIBUTING.md says how they are made anew",
                guest.name
            );
        }
    }
}
