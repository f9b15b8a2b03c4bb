//! Compiles modules, where possible in a process of its own: a deadline cannot stop a compiler, and
//! its memory would stay with the operator.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, setrlimit};
use wasmtime::component::Component;

use super::engine::{EngineError, GuestEngine};
use super::limits::Limits;

/// Name of the operator's program: only that one knows the subcommand which compiles.
const PROGRAM: &str = "ipu-operator";

/// How often the child is asked whether it has ended.
const POLL: Duration = Duration::from_millis(5);

/// Most bytes of the child's complaint that are passed on.
const COMPLAINT: u64 = 4096;

/// Numbers the files that are handed to children.
static FILES: AtomicU64 = AtomicU64::new(0);

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
    /// The compiling process refused the module, crashed, or met its memory limit.
    #[error("the compiling process ended with {status}: {complaint}")]
    Refused {
        /// How it ended.
        status: ExitStatus,
        /// What it said.
        complaint: String,
    },
    /// The compiling process took too long.
    #[error("compiling took longer than {0:?}")]
    Late(Duration),
}

/// Where modules are compiled.
#[derive(Clone, Debug)]
pub(super) enum Compiler {
    /// In this process.
    Here,
    /// In a child of this program, which leaves its result in the folder for compiled modules.
    Child {
        /// This program.
        program: PathBuf,
        /// The folder.
        cache_dir: PathBuf,
    },
}

impl Compiler {
    /// A child where there is a folder to hand over the result and this program is the operator;
    /// otherwise here.
    pub(super) fn choose(cache_dir: Option<&Path>) -> Self {
        let program = std::env::current_exe()
            .ok()
            .filter(|program| program.file_name().is_some_and(|name| name == PROGRAM));
        match (cache_dir, program) {
            (Some(cache_dir), Some(program)) => Self::Child {
                program,
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
            compile_in_child(program, cache_dir, bytes, &engine.limits)?;
        }
        let component = Component::new(&engine.engine, bytes)
            .map_err(|error| CompileError::Invalid(error.into()))?;
        if matches!(self, Self::Child { .. }) && engine.cache_hits() == hits {
            tracing::warn!("a module was compiled twice: its compiled form was not kept on disk");
        }
        Ok(component)
    }
}

/// The child's work: limits itself, compiles the module in `file`, and leaves the result in
/// `cache_dir`.
pub fn compile_as_child(file: &Path, cache_dir: &Path) -> Result<(), CompileError> {
    let limits = Limits::default();
    let seconds = limits.compile_time.as_secs();
    let limit = |resource, value| {
        setrlimit(resource, value, value).map_err(|errno| CompileError::Process(errno.into()))
    };
    limit(Resource::RLIMIT_DATA, limits.compile_memory)?;
    limit(Resource::RLIMIT_CPU, seconds)?;
    let engine = GuestEngine::new(limits, Some(cache_dir))?;
    let bytes = std::fs::read(file).map_err(CompileError::Process)?;
    Component::new(&engine.engine, bytes)
        .map(drop)
        .map_err(|error| CompileError::Invalid(error.into()))
}

fn compile_in_child(
    program: &Path,
    cache_dir: &Path,
    bytes: &[u8],
    limits: &Limits,
) -> Result<(), CompileError> {
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let file = cache_dir.join(format!("module-{}-{number}.wasm", std::process::id()));
    std::fs::write(&file, bytes).map_err(CompileError::Process)?;
    let outcome = run_child(program, cache_dir, &file, limits.compile_time);
    if let Err(error) = std::fs::remove_file(&file) {
        tracing::warn!(file = %file.display(), %error, "failed to remove a temporary file");
    }
    outcome
}

fn run_child(
    program: &Path,
    cache_dir: &Path,
    file: &Path,
    patience: Duration,
) -> Result<(), CompileError> {
    let mut child = Command::new(program)
        .args(["policy", "compile", "--compile-cache-dir"])
        .arg(cache_dir)
        .arg(file)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(CompileError::Process)?;
    let end = Instant::now() + patience;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(CompileError::Process)? {
            break status;
        }
        if Instant::now() > end {
            child.kill().map_err(CompileError::Process)?;
            child.wait().map_err(CompileError::Process)?;
            return Err(CompileError::Late(patience));
        }
        std::thread::sleep(POLL);
    };
    if status.success() {
        return Ok(());
    }
    let mut complaint = String::new();
    if let Some(stderr) = child.stderr.take() {
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(stderr, COMPLAINT), &mut bytes)
            .map_err(CompileError::Process)?;
        String::from_utf8_lossy(&bytes)
            .trim()
            .clone_into(&mut complaint);
    }
    Err(CompileError::Refused { status, complaint })
}
