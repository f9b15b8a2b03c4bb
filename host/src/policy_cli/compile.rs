//! `policy compile`: the process that the operator has a component compiled in, which it is told by the
//! standard input.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::PolicyCliError;
use crate::wasm::{Limits, compile_as_child};

#[derive(Args, Clone, Debug)]
pub(super) struct CompileArgs {
    /// The folder.
    #[arg(long)]
    compile_cache_dir: PathBuf,
    /// Most processor time that it may take, in seconds.
    #[arg(long)]
    seconds: u64,
    /// Most memory that it may take, in bytes.
    #[arg(long)]
    memory: u64,
    /// Compile it for an engine that counts instructions.
    #[arg(long)]
    metered: bool,
}

pub(super) fn run(args: &CompileArgs) -> Result<(), PolicyCliError> {
    let limits = Limits {
        compile_time: Duration::from_secs(args.seconds),
        compile_memory: args.memory,
        ..Limits::default()
    };
    Ok(compile_as_child(
        std::io::stdin().lock(),
        &args.compile_cache_dir,
        limits,
        args.metered,
    )?)
}
