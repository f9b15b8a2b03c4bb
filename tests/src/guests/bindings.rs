//! Generates the guests' bindings from `wit/policy.wit`; they are checked in, because the macro that
//! would make them during the build needs a newer compiler than the guests do.

use std::path::PathBuf;

use anyhow::{Context, Result};
use wit_bindgen_core::wit_parser::Resolve;
use wit_bindgen_core::{Files, WorldGenerator};
use wit_bindgen_rust::Opts;

use super::{EXAMPLES, GUESTS, Guest, checkout};

/// One file of bindings that is checked in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bindings {
    /// The file.
    pub file: PathBuf,
    /// The world that it is for.
    pub world: &'static str,
    /// The module that it is.
    module: String,
}

/// The Rust bindings for a guest that implements a world of the contract.
pub fn generate(bindings: &Bindings) -> Result<String> {
    let (wit, world) = (&checkout().join("wit"), bindings.world);
    let mut resolve = Resolve::default();
    let (package, _) = resolve
        .push_path(wit)
        .with_context(|| format!("failed to read the package in {}", wit.display()))?;
    let world = resolve
        .select_world(&[package], Some(world))
        .with_context(|| format!("failed to find world {world} in {}", wit.display()))?;
    let options = Opts {
        format: true,
        default_bindings_module: Some(format!("crate::{}", bindings.module)),
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

/// Every file of bindings. The quota is held by a guest for two worlds.
pub fn all() -> Vec<Bindings> {
    let bindings = |guest: &Guest, module: &str, world| Bindings {
        file: checkout()
            .join(guest.folder)
            .join(guest.name)
            .join(format!("src/{module}.rs")),
        world,
        module: module.to_owned(),
    };
    let [best_fit, quota] = &EXAMPLES;
    let guests = GUESTS.iter().chain([best_fit]);
    let of_one_world = guests.map(|guest| bindings(guest, "bindings", guest.slot.world()));
    let of_two = ["placement", "validation"].map(|world| bindings(quota, world, world));
    of_one_world.chain(of_two).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bindings_are_those_of_the_contract() {
        for bindings in all() {
            let present = std::fs::read_to_string(&bindings.file).unwrap();
            let generated = generate(&bindings).unwrap();
            assert!(
                present == generated,
                "the bindings of {} are stale; CONTRIBUTING.md says how they are made anew",
                bindings.file.display()
            );
        }
    }
}
