//! `policy check`: loads a file like the operator, and prints the result.

use std::io;
use std::path::PathBuf;

use clap::Args;
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::{Inspection, inspect};

use super::settings::settings;
use super::world::World;
use super::{PolicyCliError, no_policy};

#[derive(Args, Clone, Debug)]
pub(super) struct CheckArgs {
    /// The component, such as my-placement.wasm.
    file: PathBuf,
    /// The world that it should implement; by default the one that its exports show.
    #[arg(long)]
    world: Option<World>,
    /// Settings to try it with, as a JSON object.
    #[arg(long, default_value = "{}", value_parser = settings)]
    settings: String,
}

pub(super) fn run(args: &CheckArgs, out: &mut impl io::Write) -> Result<(), PolicyCliError> {
    let inspection = inspect(&args.file, args.world.map(Hook::from), &args.settings)
        .map_err(no_policy(&args.file))?;
    out.write_all(report(&inspection).as_bytes())?;
    Ok(())
}

/// Formats the result of a valid policy.
fn report(inspection: &Inspection) -> String {
    let imports = if inspection.imports.is_empty() {
        "nothing".to_owned()
    } else {
        inspection.imports.join(", ")
    };
    format!(
        "world    {world}\n\
         imports  {imports}\n\
         size     {size} bytes\n\
         digest   {digest}\n\
         loaded   in {load_time:.1?}, and answered a sample request\n\
         To use it, name this digest in an IPUPolicy with hook: {hook}.\n",
        world = inspection.hook.world(),
        size = inspection.size,
        digest = inspection.digest,
        load_time = inspection.load_time,
        hook = inspection.hook.name(),
    )
}
