//! `kubectl-ipu`: reads the command line, and calls the library.

use std::env;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use ipu_kubectl::cli::Arguments;
use ipu_kubectl::completion;
use ipu_text::{explain, sanitize_lines};

/// Longest line of a printed error, in bytes.
const ERROR_LINE_MAX: usize = 16 << 10;

/// Prints an error with its causes. These can contain text of an API server.
fn main() -> ExitCode {
    let words = env::args_os().map(|word| word.to_string_lossy().into_owned());
    let words: Vec<_> = words.collect();
    if let Some((program, words)) = words.split_first()
        && completion::is_completer(Path::new(program))
    {
        print!("{}", completion::answer(words));
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::parse();
    // An error means that a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("Error: failed to start the asynchronous runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut out = io::stdout();
    let is_terminal = out.is_terminal();
    match runtime.block_on(ipu_kubectl::run(&arguments, &mut out, is_terminal)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            let text = sanitize_lines(&explain(&error), ERROR_LINE_MAX);
            eprintln!("Error: {text}");
            ExitCode::from(error.exit_code())
        }
    }
}
