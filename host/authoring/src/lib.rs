//! `ipu-operator policy`: commands for authors of guests, and the process that compiles modules.
//!
//! Entry points:
//! - [`PolicyArgs`] is the command line, and [`run()`] carries it out. Each subcommand has a file.
//!   Its result is separate from the output, which goes to a writer.
//! - `new` begins a project, and `test` runs its cases (`case`). `check`, `inspect`, `run`, `bench`
//!   and `diff` read a guest as the operator does; `host_verdict` evaluates an answer as the
//!   operator does.
//! - `record` reads the requests that a live operator passes to its guests, and `replay` calls two
//!   guests with them.
//! - `audit` lists the objects of a cluster, and prints those that a validation guest would refuse.
//! - `evaluate` calls placement guests for `ipu-evaluation`. `push` and `pull` copy a module to and
//!   from a registry.
//! - `compile` is the process that the operator starts to compile a module.
//!
//! The package decides nothing that the operator decides: it calls the code of `ipu-guest-host`,
//! `ipu-policies` and `ipu-admission`. It must not know V-IPU controllers, and only `audit/cluster`
//! knows the API server: any other request comes from a file or from a socket.
#![forbid(unsafe_code)]

mod audit;
mod bench;
mod case;
mod check;
mod compile;
mod componentize;
mod diff;
mod document;
mod evaluate;
mod host_verdict;
mod inspect;
mod junit;
mod new;
mod pull;
mod push;
mod record;
mod registry;
mod replay;
mod request;
mod run;
mod settings;
mod test;
mod world;

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

pub use audit::AuditError;
pub use bench::percentile;
pub use document::DocumentError;
use ipu_guest_host::record::RecordError;
use ipu_guest_host::{CONTRACT, CompileError, ComponentizeError, GuestError, InspectError};
pub use registry::RegistryCliError;

/// Options of `ipu-operator policy`.
#[derive(Args, Clone, Debug)]
pub struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

/// The subcommands.
#[derive(Subcommand, Clone, Debug)]
enum PolicyCommand {
    /// Create a project: a folder with the contract, a decision, tests and cases.
    New(new::NewArgs),
    /// Check a file as the operator would: world, imports, and an answer to a sample request.
    Check(check::CheckArgs),
    /// Print the imports and exports of a file, even if the operator would refuse it.
    Inspect(inspect::InspectArgs),
    /// Run one request, and print the answer of the component and the verdict of the operator.
    Run(run::RunArgs),
    /// Run a folder of cases, and fail if one of them fails.
    Test(test::TestArgs),
    /// Measure the calls of a component, beside those of the built-in one or of another one.
    Bench(bench::BenchArgs),
    /// Record the requests of a running operator to its guests, and their answers, without the
    /// values of environment variables (run in the operator's container).
    Record(record::RecordArgs),
    /// Run recorded requests with two components, and print the answers that differ.
    Replay(replay::ReplayArgs),
    /// List the IPUJobs and native Pods of a cluster that a validation guest or an IPUPolicy would
    /// refuse. The exit code is 3 if there are any.
    Audit(audit::AuditArgs),
    /// Replay jobs in virtual time with placement policies, and print the results of each of them.
    Evaluate(evaluate::EvaluateArgs),
    /// Print the imports and exports in which two components differ.
    Diff(diff::DiffArgs),
    /// Push a component to an OCI registry, and print the fields of an IPUPolicy that loads it.
    Push(push::PushArgs),
    /// Pull a component from an OCI registry. With --key, only if it is signed.
    Pull(pull::PullArgs),
    /// Convert the core module of a compiler to a component.
    Componentize(componentize::ComponentizeArgs),
    /// Print the contract of guests (WIT).
    Contract,
    /// Compile a component into a folder of compiled modules, within limits (run by the operator).
    #[command(hide = true)]
    Compile(compile::CompileArgs),
}

/// Failure of a subcommand of `ipu-operator policy`.
#[derive(Debug, thiserror::Error)]
pub enum PolicyCliError {
    /// A file cannot be read or written.
    #[error("failed to {action} {file}")]
    File {
        /// The action on the file.
        action: &'static str,
        /// The file.
        file: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file is not what the command needs, or the guest in it gave no answer.
    #[error("{file} {problem}")]
    Unusable {
        /// The file.
        file: PathBuf,
        /// The problem.
        problem: &'static str,
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The module cannot become a component.
    #[error("failed to turn {0} into a component")]
    Componentize(PathBuf, #[source] ComponentizeError),
    /// A document cannot be read.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// Cases failed.
    #[error("{failed} of {cases} cases failed")]
    CasesFailed {
        /// Number of failed cases.
        failed: usize,
        /// Number of cases.
        cases: usize,
    },
    /// The folder has no cases.
    #[error("there is no case in {0}: a case is a file whose name ends in .yaml, .yml or .json")]
    NoCases(PathBuf),
    /// No operator listens at the socket.
    #[error(
        "no operator reports its requests at {0}; run this in the operator's container: kubectl exec \
         --namespace <namespace> deploy/<release>-controller-manager -- /ipu-operator policy record"
    )]
    Socket(PathBuf, #[source] io::Error),
    /// The limit of concurrent recordings is reached.
    #[error("the limit of {0} recordings is reached; end one")]
    Busy(usize),
    /// A line is not a record.
    #[error("line {line} of {file} cannot be replayed")]
    Record {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The cause.
        #[source]
        source: RecordError,
    },
    /// Two components answer differently (`--exit-code`).
    #[error("{0} answers differ")]
    AnswersDiffer(usize),
    /// Two components have different imports or exports (`--exit-code`).
    #[error("{a} and {b} do not import and export the same")]
    Differ {
        /// The first one.
        a: PathBuf,
        /// The second one.
        b: PathBuf,
    },
    /// The folder of a new project exists.
    #[error("{0} exists already, and nothing of it was changed; choose another name or folder")]
    Exists(PathBuf),
    /// The operator would refuse the component.
    #[error("{0} would be refused by the operator; `ipu-operator policy inspect` says why")]
    NotLinkable(PathBuf),
    /// An audit failed, or found something.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// A registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryCliError),
    /// The module cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The output cannot be written.
    #[error("failed to write to the standard output")]
    Output(#[from] io::Error),
}

/// Exit code of an audit that finds objects that would be refused: 1 is any error, and 2 a wrong
/// command line.
const REFUSED: u8 = 3;

impl PolicyCliError {
    /// Returns the exit code of the command.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Audit(AuditError::Refused { .. }) => REFUSED,
            _ => 1,
        }
    }
}

/// Runs a subcommand, with its output to `out`.
pub fn run(args: PolicyArgs, out: &mut impl io::Write) -> Result<(), PolicyCliError> {
    match args.command {
        PolicyCommand::New(args) => new::run(&args, out),
        PolicyCommand::Check(args) => check::run(&args, out),
        PolicyCommand::Inspect(args) => inspect::run(&args, out),
        PolicyCommand::Run(args) => run::run(&args, out),
        PolicyCommand::Test(args) => test::run(&args, out),
        PolicyCommand::Bench(args) => bench::run(&args, out),
        PolicyCommand::Record(args) => record::run(&args, out),
        PolicyCommand::Replay(args) => replay::run(&args, out),
        PolicyCommand::Audit(args) => audit::run(&args, out),
        PolicyCommand::Evaluate(args) => evaluate::run(&args, out),
        PolicyCommand::Diff(args) => diff::run(&args, out),
        PolicyCommand::Push(args) => push::run(&args, out),
        PolicyCommand::Pull(args) => pull::run(&args, out),
        PolicyCommand::Componentize(args) => componentize::run(args),
        PolicyCommand::Contract => Ok(out.write_all(CONTRACT.as_bytes())?),
        PolicyCommand::Compile(args) => compile::run(&args),
    }
}

/// Returns the error of an invalid module.
fn no_policy(file: &Path) -> impl FnOnce(InspectError) -> PolicyCliError {
    unusable(file, "is no guest for this operator")
}

/// Returns the error of a guest that failed.
fn no_answer(file: &Path) -> impl FnOnce(GuestError) -> PolicyCliError {
    unusable(file, "gave no answer")
}

/// Returns the error of a file with this problem.
fn unusable<E>(file: &Path, problem: &'static str) -> impl FnOnce(E) -> PolicyCliError
where
    E: Error + Send + Sync + 'static,
{
    let file = file.to_owned();
    move |source| PolicyCliError::Unusable {
        file,
        problem,
        source: source.into(),
    }
}

/// Returns the error of a file that cannot be read or written.
fn failed_to(action: &'static str, file: &Path) -> impl Fn(io::Error) -> PolicyCliError {
    move |source| PolicyCliError::File {
        action,
        file: file.to_owned(),
        source,
    }
}

/// Writes a value as indented JSON.
fn write_json(value: &impl serde::Serialize, out: &mut impl io::Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audit_that_finds_objects_has_an_exit_code_of_its_own() {
        let code = |error: AuditError| PolicyCliError::from(error).exit_code();
        let refused = AuditError::Refused {
            refused: 1,
            objects: 2,
        };
        let incomplete = AuditError::Incomplete {
            failed: 0,
            unlisted: 1,
        };
        assert_eq!((code(refused), code(incomplete)), (3, 1));
    }
}
