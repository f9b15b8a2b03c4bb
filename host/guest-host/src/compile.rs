//! Compiles modules, if possible in a child process: a deadline cannot stop a compiler, and its
//! memory would stay with the operator.

use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Once};
use std::thread;
use std::time::{Duration, Instant};

use ipu_text::sanitize;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use wasmtime::component::Component;

use super::code_budget::{CodeBudget, NoMemory, Reservation};
use super::confinement::{self, Landlock};
use super::engine::{self, EngineError, GuestEngine};
use super::limits::Limits;
use super::precompiled::{self, CodeError, LoadedCode};

/// Period at which the operator checks whether the child has ended.
const POLL: Duration = Duration::from_millis(5);

/// Largest ratio of the duration of the child to its CPU time.
const WALL_TIME_FACTOR: u32 = 5;

/// Longest error output of the child, in bytes.
const ERROR_OUTPUT: usize = 4096;

/// Error outputs of a child without memory, from Rust and from the system.
const NO_MEMORY: [&str; 2] = ["memory allocation of ", "Cannot allocate memory"];

/// Failure to compile a module.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The bytes are not a valid component.
    #[error("the file is not a valid component")]
    Invalid(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The engine of the compiling process cannot be created.
    #[error("failed to prepare the compiler")]
    Engine(#[from] EngineError),
    /// The compiling process cannot run.
    #[error("failed to run the compiling process")]
    Process(#[source] io::Error),
    /// The compiling process refused the module, or crashed.
    #[error("the compiling process ended with {status}: {error_output}")]
    Refused {
        /// Its exit status.
        status: ExitStatus,
        /// Its error output.
        error_output: String,
    },
    /// The compiling process exceeded its time limit.
    #[error("compiling it took longer than {0:?}; make it smaller or simpler")]
    Timeout(Duration),
    /// The code is too large.
    #[error(
        "its compiled form has {size} bytes, more than the {limit} that it may have; make it smaller or simpler"
    )]
    Size {
        /// Size of the code, in bytes.
        size: u64,
        /// Largest allowed size, in bytes.
        limit: u64,
    },
    /// The code cannot be loaded.
    #[error("failed to load the output of the compiling process")]
    Load(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The code does not fit into the memory of loaded modules.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
    /// The compiling process exceeded its memory limit.
    #[error("compiling it took more than {limit} bytes of memory; make it smaller or simpler")]
    Memory {
        /// The limit, in bytes.
        limit: u64,
    },
}

impl From<CodeError> for CompileError {
    fn from(error: CodeError) -> Self {
        match error {
            CodeError::NoMemory(error) => Self::NoMemory(error),
            CodeError::Unusable(error) => Self::Load(error.into()),
        }
    }
}

/// The process that compiles modules.
#[derive(Clone, Debug)]
pub(super) enum Compiler {
    /// This process, without limits: for the tools of authors and for tests.
    InProcess,
    /// A child process.
    Child(ChildCompiler),
}

/// Compiles each module in a child process, and caches the code.
#[derive(Clone, Debug)]
pub(super) struct ChildCompiler {
    program: PathBuf,
    folder: Option<PathBuf>,
    /// Memory of all modules that it has loaded.
    budget: CodeBudget,
    /// Ensures that the confinement of the first child is logged, and no other.
    confinement_log: Arc<Once>,
}

impl Compiler {
    /// Selects a child process if there is a program for it. `folder` caches the code.
    pub(super) fn choose(program: Option<&Path>, folder: Option<&Path>, limits: Limits) -> Self {
        program.map_or(Self::InProcess, |program| {
            Self::Child(ChildCompiler {
                program: program.to_owned(),
                folder: folder.map(Path::to_owned),
                budget: CodeBudget::new(limits.loaded),
                confinement_log: Arc::new(Once::new()),
            })
        })
    }

    /// Creates an engine for the compiled modules. With a child process, it cannot compile by
    /// itself.
    pub(super) fn engine(&self, limits: Limits) -> Result<GuestEngine, EngineError> {
        match self {
            Self::InProcess => GuestEngine::compiling(limits),
            Self::Child(_) => GuestEngine::loading(limits),
        }
    }

    /// Compiles a module. Blocks.
    pub(super) fn compile(
        &self,
        engine: &GuestEngine,
        module: &[u8],
    ) -> Result<LoadedCode, CompileError> {
        match self {
            Self::InProcess => {
                let component = Component::new(&engine.engine, module)
                    .map_err(|error| CompileError::Invalid(error.into()))?;
                let memory = Reservation::default();
                Ok(LoadedCode { component, memory })
            }
            Self::Child(child) => child.load(engine, module),
        }
    }
}

impl ChildCompiler {
    fn load(&self, engine: &GuestEngine, module: &[u8]) -> Result<LoadedCode, CompileError> {
        let GuestEngine { engine, limits, .. } = engine;
        let folder = self.folder.as_deref();
        let path = folder.map(|folder| precompiled::path(folder, engine, module));
        let cached = path.as_deref();
        if let Some(cached) = cached
            && let Some(loaded) = precompiled::open(engine, cached, limits.compiled, &self.budget)?
        {
            return Ok(loaded);
        }
        let code = self.run(module, limits)?;
        let loaded = precompiled::load_and_store(engine, &code, cached, &self.budget)?;
        Ok(loaded)
    }

    /// Runs a child, with the module on its standard input and the code on its standard output, so
    /// that compiling needs no disk space. The child has no environment.
    fn run(&self, module: &[u8], limits: &Limits) -> Result<Vec<u8>, CompileError> {
        let mut child = Command::new(&self.program)
            .args(["policy", "compile"])
            .arg("--seconds")
            .arg(seconds(limits.compile_time).to_string())
            .arg("--memory")
            .arg(limits.compile_memory.to_string())
            .arg("--module-bytes")
            .arg(module.len().to_string())
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(CompileError::Process)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (ended, code) = thread::scope(|scope| {
            // A child that ends before it has read everything reports the reason itself.
            scope.spawn(|| input.map(|mut input| input.write_all(module)));
            let reading =
                scope.spawn(|| output.map(|output| self.read_output(output, limits.compiled)));
            let ended = wait(&mut child, limits.compile_time * WALL_TIME_FACTOR);
            (ended, reading.join().ok().flatten())
        });
        match (ended.map_err(CompileError::Process)?, code) {
            (Some(status), Some(Ok(code))) if status.success() => Ok(code),
            (_, Some(Err(error @ CompileError::Size { .. }))) => Err(error),
            (Some(status), code) if status.success() => Err(code
                .and_then(Result::err)
                .unwrap_or_else(|| CompileError::Process(io::ErrorKind::UnexpectedEof.into()))),
            (Some(status), _) => {
                let error_output = error_output(&mut child).map_err(CompileError::Process)?;
                Err(cause(status, error_output, limits))
            }
            (None, _) => Err(CompileError::Timeout(limits.compile_time)),
        }
    }

    /// Reads the output of the child: the report on its confinement, then the code.
    fn read_output(&self, mut output: impl Read, limit: u64) -> Result<Vec<u8>, CompileError> {
        let landlock = confinement(&mut output)?;
        self.confinement_log.call_once(|| landlock.log());
        code(output, limit)
    }
}

/// Reads the report of the child on its confinement.
fn confinement(mut output: impl Read) -> Result<Landlock, CompileError> {
    let mut report = [0];
    output
        .read_exact(&mut report)
        .map_err(CompileError::Process)?;
    Landlock::of_byte(report[0])
        .ok_or_else(|| CompileError::Process(io::ErrorKind::InvalidData.into()))
}

/// Reads the code from the child: the number of bytes, then at most `limit` bytes.
fn code(mut output: impl Read, limit: u64) -> Result<Vec<u8>, CompileError> {
    let mut size = [0; size_of::<u64>()];
    output
        .read_exact(&mut size)
        .map_err(CompileError::Process)?;
    let size = u64::from_le_bytes(size);
    if size > limit {
        return Err(CompileError::Size { size, limit });
    }
    let mut code = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
    output
        .read_exact(&mut code)
        .map_err(CompileError::Process)?;
    Ok(code)
}

/// Runs in the child: sets its limits, confines itself, and writes a report on the confinement.
/// Then it compiles the module of `size` bytes, and writes the length of the code and the code. The
/// process must have one thread.
pub fn compile_as_child(
    module: impl Read,
    size: usize,
    mut output: impl Write,
    limits: Limits,
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
    // The soft limit ends the process with a signal of its own, so that the parent knows the cause.
    limit(Resource::RLIMIT_CPU, seconds, seconds + 1)?;
    // The compiler can read properties of the machine from files when it is created.
    let compiler = engine::compiler()?;
    let landlock = confinement::confine().map_err(|errno| CompileError::Process(errno.into()))?;
    output
        .write_all(&[landlock.byte()])
        .and_then(|()| output.flush())
        .map_err(CompileError::Process)?;
    let mut bytes = Vec::with_capacity(size);
    module
        .take(size as u64)
        .read_to_end(&mut bytes)
        .map_err(CompileError::Process)?;
    let code = compiler
        .precompile_component(&bytes)
        .map_err(|error| CompileError::Invalid(error.into()))?;
    let length = (code.len() as u64).to_le_bytes();
    let written = output
        .write_all(&length)
        .and_then(|()| output.write_all(&code));
    written
        .and_then(|()| output.flush())
        .map_err(CompileError::Process)
}

/// Waits for the child. Kills it after a timeout and returns `None`.
fn wait(child: &mut Child, timeout: Duration) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + timeout;
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

/// Reads the error output of the child.
fn error_output(child: &mut Child) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        stderr.take(ERROR_OUTPUT as u64).read_to_end(&mut bytes)?;
    }
    Ok(sanitize(
        String::from_utf8_lossy(&bytes).trim(),
        ERROR_OUTPUT,
    ))
}

/// Finds the cause of a failed child.
fn cause(status: ExitStatus, error_output: String, limits: &Limits) -> CompileError {
    if status.signal() == Some(Signal::SIGXCPU as i32) {
        CompileError::Timeout(limits.compile_time)
    } else if NO_MEMORY.iter().any(|words| error_output.contains(words)) {
        CompileError::Memory {
            limit: limits.compile_memory,
        }
    } else {
        CompileError::Refused {
            status,
            error_output,
        }
    }
}

/// Rounds up to seconds, the unit of the CPU limit.
fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}
