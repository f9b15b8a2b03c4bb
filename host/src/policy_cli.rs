//! `ipu-operator policy`: tools for the authors of policies, and the process that compiles them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::wasm::model::Slot;
use crate::wasm::{
    CONTRACT, CompileError, ComponentizeError, InspectError, Inspection, Limits, compile_as_child,
    componentize, inspect,
};

/// Options of `ipu-operator policy`.
#[derive(Args, Clone, Debug)]
pub struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

/// What an author wants to do with a policy.
#[derive(Subcommand, Clone, Debug)]
enum PolicyCommand {
    /// Check a file as the operator would: world, imports, and an answer to a sample request.
    Check {
        /// The component, such as my-placement.wasm.
        file: PathBuf,
        /// The world that it should implement; by default the one that its exports tell.
        #[arg(long)]
        world: Option<World>,
        /// Settings to try it with, as a JSON object.
        #[arg(long, default_value = "{}")]
        settings: String,
    },
    /// Turn a core module, as compilers make them, into a component.
    Componentize {
        /// The core module, such as target/wasm32-unknown-unknown/release/my_placement.wasm.
        file: PathBuf,
        /// The world to write into it; not needed for modules that were made with wit-bindgen.
        #[arg(long)]
        world: Option<World>,
        /// Where the component is written.
        #[arg(long, short)]
        output: PathBuf,
    },
    /// Print the plug-in contract that policies are written against (WIT).
    Contract,
    /// Compile a component into a folder of compiled modules, within limits (run by the operator).
    #[command(hide = true)]
    Compile {
        /// The component.
        file: PathBuf,
        /// The folder.
        #[arg(long)]
        compile_cache_dir: PathBuf,
        /// Most processor time that it may take, in seconds.
        #[arg(long)]
        seconds: u64,
        /// Most memory that it may take, in bytes.
        #[arg(long)]
        memory: u64,
    },
}

/// The worlds of package `ipu:policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum World {
    /// Fills in what the user of an IPUJob left open.
    Defaulting,
    /// Says what is wrong with an IPUJob.
    Validation,
    /// Decides on which V-IPU controller a partition is made.
    Placement,
}

impl From<World> for Slot {
    fn from(world: World) -> Self {
        match world {
            World::Defaulting => Self::Defaulting,
            World::Validation => Self::Validation,
            World::Placement => Self::Placement,
        }
    }
}

/// Why a subcommand of `ipu-operator policy` failed.
#[derive(Debug, thiserror::Error)]
pub enum PolicyCliError {
    /// The file is no policy.
    #[error("{file} is no policy for this operator")]
    Check {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        #[source]
        source: InspectError,
    },
    /// A file cannot be read.
    #[error("failed to read {file}")]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("failed to write {file}")]
    Write {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No component can be made of the module.
    #[error("failed to turn {file} into a component")]
    Componentize {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: ComponentizeError,
    },
    /// The module cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// What is to be shown cannot be shown.
    #[error("failed to write to the standard output")]
    Output(#[from] io::Error),
}

/// Runs a subcommand; what is for the user goes to `out`.
pub fn run(args: PolicyArgs, out: &mut impl io::Write) -> Result<(), PolicyCliError> {
    match args.command {
        PolicyCommand::Check {
            file,
            world,
            settings,
        } => {
            let inspection = inspect(&file, world.map(Slot::from), &settings)
                .map_err(|source| PolicyCliError::Check { file, source })?;
            out.write_all(report(&inspection).as_bytes())?;
            Ok(())
        }
        PolicyCommand::Componentize {
            file,
            world,
            output,
        } => componentize_file(file, world.map(Slot::from), &output),
        PolicyCommand::Contract => Ok(out.write_all(CONTRACT.as_bytes())?),
        PolicyCommand::Compile {
            file,
            compile_cache_dir,
            seconds,
            memory,
        } => {
            let limits = Limits {
                compile_time: Duration::from_secs(seconds),
                compile_memory: memory,
                ..Limits::default()
            };
            Ok(compile_as_child(&file, &compile_cache_dir, limits)?)
        }
    }
}

/// What `policy check` says of a file that is a policy.
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
         To use it, name the file {file} in the folder of policies.\n",
        world = inspection.slot.world(),
        size = inspection.size,
        digest = inspection.digest,
        load_time = inspection.load_time,
        file = inspection.slot.file_name(),
    )
}

fn componentize_file(
    file: PathBuf,
    slot: Option<Slot>,
    output: &Path,
) -> Result<(), PolicyCliError> {
    let core = match std::fs::read(&file) {
        Ok(core) => core,
        Err(source) => return Err(PolicyCliError::Read { file, source }),
    };
    let component = componentize(&core, slot)
        .map_err(|source| PolicyCliError::Componentize { file, source })?;
    std::fs::write(output, component).map_err(|source| PolicyCliError::Write {
        file: output.to_owned(),
        source,
    })
}
