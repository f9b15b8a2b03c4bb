//! `policy compile`: the process in which the operator compiles a component. It reads the component
//! from standard input, and writes the code to standard output.

use std::time::Duration;

use clap::Args;
use ipu_guest_host::{Limits, compile_as_child};

use super::PolicyCliError;

#[derive(Args, Clone, Debug)]
pub(super) struct CompileArgs {
    /// Most processor time that it may take, in seconds.
    #[arg(long)]
    seconds: u64,
    /// Most memory that it may take, in bytes.
    #[arg(long)]
    memory: u64,
    /// Bytes of the component.
    #[arg(long)]
    module_bytes: usize,
}

pub(super) fn run(args: &CompileArgs) -> Result<(), PolicyCliError> {
    let limits = Limits {
        compile_time: Duration::from_secs(args.seconds),
        compile_memory: args.memory,
        ..Limits::default()
    };
    Ok(compile_as_child(
        std::io::stdin().lock(),
        args.module_bytes,
        std::io::stdout().lock(),
        limits,
    )?)
}
