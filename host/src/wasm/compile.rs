//! Compiles modules, where possible in a process of its own: a deadline cannot stop a compiler, and
//! its memory would stay with the operator.

use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use wasmtime::component::Component;

use super::engine::{EngineError, GuestEngine};
use super::limits::Limits;

/// How often the child is asked whether it has ended.
const POLL: Duration = Duration::from_millis(5);

/// Most bytes of the child's complaint that are passed on.
const COMPLAINT: u64 = 4096;

/// How a child complains that it gets no more memory, by Rust's words and by the system's.
const NO_MEMORY: [&str; 2] = ["memory allocation of ", "Cannot allocate memory"];

/// Why a module was not compiled.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The bytes are no component, or an invalid one.
    #[error("the bytes are no valid component")]
    Invalid(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The engine of the compiling process cannot be made.
    #[error("failed to prepare the compiler")]
    Engine(#[from] EngineError),
    /// The compiling process cannot be run.
    #[error("failed to run the compiling process")]
    Process(#[source] io::Error),
    /// The compiling process refused the module, or crashed.
    #[error("the compiling process ended with {status}: {complaint}")]
    Refused {
        /// How it ended.
        status: ExitStatus,
        /// What it said.
        complaint: String,
    },
    /// The compiling process took too long.
    #[error("compiling it took longer than {0:?}; make it smaller or simpler")]
    Late(Duration),
    /// The compiling process met its memory limit.
    #[error("compiling it took more than {limit} bytes of memory; make it smaller or simpler")]
    Memory {
        /// The limit, in bytes.
        limit: u64,
    },
}

/// Where modules are compiled.
#[derive(Clone, Debug)]
pub(super) enum Compiler {
    /// In this process.
    Here,
    /// In a child, which leaves its result in the folder for compiled modules.
    Child {
        /// The operator's program.
        program: PathBuf,
        /// The folder.
        cache_dir: PathBuf,
    },
}

impl Compiler {
    /// A child where there is a program to run and a folder to hand over the result; otherwise here.
    pub(super) fn choose(program: Option<&Path>, cache_dir: Option<&Path>) -> Self {
        match (program, cache_dir) {
            (Some(program), Some(cache_dir)) => Self::Child {
                program: program.to_owned(),
                cache_dir: cache_dir.to_owned(),
            },
            _ => Self::Here,
        }
    }

    /// Compiles a module. Blocks.
    pub(super) fn compile(
        &self,
        engine: &GuestEngine,
        bytes: &[u8],
    ) -> Result<Component, CompileError> {
        let hits = engine.cache_hits();
        if let Self::Child { program, cache_dir } = self {
            compile_in_child(program, cache_dir, bytes, engine)?;
        }
        let component = Component::new(&engine.engine, bytes)
            .map_err(|error| CompileError::Invalid(error.into()))?;
        if matches!(self, Self::Child { .. }) && engine.cache_hits() == hits {
            tracing::warn!(
                "a module was compiled twice: its compiled form was not kept on disk; is the folder for compiled modules full?"
            );
        }
        Ok(component)
    }
}

/// The child's work: limits itself, compiles the module that it is told, and leaves the result in
/// `cache_dir`, for an engine that counts instructions where it is `metered`.
pub fn compile_as_child(
    mut module: impl Read,
    cache_dir: &Path,
    limits: Limits,
    metered: bool,
) -> Result<(), CompileError> {
    let seconds = seconds(limits.compile_time);
    let limit = |resource, soft, hard| {
        setrlimit(resource, soft, hard).map_err(|errno| CompileError::Process(errno.into()))
    };
    limit(Resource::RLIMIT_CORE, 0, 0)?;
    limit(
        Resource::RLIMIT_DATA,
        limits.compile_memory,
        limits.compile_memory,
    )?;
    // The soft limit ends the process with a signal of its own, by which the parent knows the cause.
    limit(Resource::RLIMIT_CPU, seconds, seconds + 1)?;
    let engine = if metered {
        GuestEngine::metered(limits, 0, Some(cache_dir))?
    } else {
        GuestEngine::new(limits, Some(cache_dir))?
    };
    let mut bytes = Vec::new();
    module
        .read_to_end(&mut bytes)
        .map_err(CompileError::Process)?;
    Component::new(&engine.engine, bytes)
        .map(drop)
        .map_err(|error| CompileError::Invalid(error.into()))
}

/// The child is told the module by its standard input: a disk that is full keeps nobody from compiling.
fn compile_in_child(
    program: &Path,
    cache_dir: &Path,
    bytes: &[u8],
    engine: &GuestEngine,
) -> Result<(), CompileError> {
    let limits = &engine.limits;
    let mut child = Command::new(program)
        .args(["policy", "compile"])
        .arg("--compile-cache-dir")
        .arg(cache_dir)
        .arg("--seconds")
        .arg(seconds(limits.compile_time).to_string())
        .arg("--memory")
        .arg(limits.compile_memory.to_string())
        .args(engine.fuel.map(|_| "--metered"))
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(CompileError::Process)?;
    let input = child.stdin.take();
    let ended = thread::scope(|scope| {
        // One that ends before it has heard everything says itself why.
        scope.spawn(|| input.map(|mut input| input.write_all(bytes)));
        wait(&mut child, limits.compile_time)
    });
    let ended = ended.map_err(CompileError::Process)?;
    match ended {
        Some(status) if status.success() => Ok(()),
        Some(status) => {
            let complaint = complaint(&mut child).map_err(CompileError::Process)?;
            Err(cause(status, complaint, limits))
        }
        None => Err(CompileError::Late(limits.compile_time)),
    }
}

/// How the child ended; nothing where it had to be killed.
fn wait(child: &mut Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + patience;
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(POLL);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// What the child said at its end.
fn complaint(child: &mut Child) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        stderr.take(COMPLAINT).read_to_end(&mut bytes)?;
    }
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// Why a child that ended by itself has compiled nothing.
fn cause(status: ExitStatus, complaint: String, limits: &Limits) -> CompileError {
    if status.signal() == Some(Signal::SIGXCPU as i32) {
        CompileError::Late(limits.compile_time)
    } else if NO_MEMORY.iter().any(|words| complaint.contains(words)) {
        CompileError::Memory {
            limit: limits.compile_memory,
        }
    } else {
        CompileError::Refused { status, complaint }
    }
}

/// Whole seconds, which is how processor time is limited; 0 would mean no time at all.
fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}
