//! `policy componentize`: converts the output of a compiler to a component.

use std::path::PathBuf;

use clap::Args;
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::componentize;

use super::registry::read;
use super::world::World;
use super::{PolicyCliError, failed_to};

#[derive(Args, Clone, Debug)]
pub(super) struct ComponentizeArgs {
    /// The core module, such as target/wasm32-unknown-unknown/release/my_placement.wasm.
    file: PathBuf,
    /// The world to write into it; not needed for modules that were made with wit-bindgen.
    #[arg(long)]
    world: Option<World>,
    /// File for the component.
    #[arg(long, short)]
    output: PathBuf,
}

pub(super) fn run(args: ComponentizeArgs) -> Result<(), PolicyCliError> {
    let ComponentizeArgs {
        file,
        world,
        output,
    } = args;
    let core = read(&file)?;
    let component = componentize(&core, world.map(Hook::from))
        .map_err(|source| PolicyCliError::Componentize(file, source))?;
    std::fs::write(&output, component).map_err(failed_to("write", &output))
}
