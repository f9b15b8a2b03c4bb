//! Compiles modules, where possible in a process of its own: a deadline cannot stop a compiler, and
//! its memory would stay with the operator.

use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ipu_text::sanitize;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use wasmtime::component::Component;

use super::engine::{self, EngineError, GuestEngine};
use super::limits::Limits;
use super::precompiled;

/// How often the child is asked whether it has ended.
const POLL: Duration = Duration::from_millis(5);

/// How many times its processor time the child may last, where others have the processor.
const PATIENCE: u32 = 5;

/// Most bytes of the child's complaint that are passed on.
const COMPLAINT: usize = 4096;

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
    /// Its code is too large.
    #[error(
        "its compiled form has {size} bytes, more than the {limit} that it may have; make it smaller or simpler"
    )]
    Size {
        /// Size of the code, in bytes.
        size: u64,
        /// Largest allowed size, in bytes.
        limit: u64,
    },
    /// The code that was made cannot be loaded.
    #[error("failed to load what the compiling process made of it")]
    Load(#[source] Box<dyn std::error::Error + Send + Sync>),
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
    /// In this process, without limits: for the tools of authors and for tests.
    Here,
    /// In a child.
    Child(Separate),
}

/// A process of its own for each module, and where its code is kept.
#[derive(Clone, Debug)]
pub(super) struct Separate {
    program: PathBuf,
    folder: Option<PathBuf>,
}

impl Compiler {
    /// A child where there is a program to run; otherwise here. What a child has compiled is kept in `folder`.
    pub(super) fn choose(program: Option<&Path>, folder: Option<&Path>) -> Self {
        program.map_or(Self::Here, |program| {
            Self::Child(Separate {
                program: program.to_owned(),
                folder: folder.map(Path::to_owned),
            })
        })
    }

    /// An engine for the modules that are compiled there. Beside a child it cannot compile at all.
    pub(super) fn engine(&self, limits: Limits) -> Result<GuestEngine, EngineError> {
        match self {
            Self::Here => GuestEngine::compiling(limits),
            Self::Child(_) => GuestEngine::loading(limits),
        }
    }

    /// Compiles a module. Blocks.
    pub(super) fn compile(
        &self,
        engine: &GuestEngine,
        module: &[u8],
    ) -> Result<Component, CompileError> {
        match self {
            Self::Here => Component::new(&engine.engine, module)
                .map_err(|error| CompileError::Invalid(error.into())),
            Self::Child(child) => child.component(engine, module),
        }
    }
}

impl Separate {
    fn component(&self, engine: &GuestEngine, module: &[u8]) -> Result<Component, CompileError> {
        let GuestEngine { engine, limits, .. } = engine;
        let folder = self.folder.as_deref();
        let path = folder.map(|folder| precompiled::path(folder, engine, module));
        let kept = path.as_deref();
        if let Some(component) =
            kept.and_then(|kept| precompiled::open(engine, kept, limits.compiled))
        {
            return Ok(component);
        }
        let code = self.run(module, limits)?;
        precompiled::take(engine, &code, kept).map_err(|error| CompileError::Load(error.into()))
    }

    /// Has a child compile, and answers the code. It is told the module by its standard input and tells the code by
    /// its standard output: a disk that is full keeps nobody from compiling.
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
            // One that ends before it has heard everything says itself why.
            scope.spawn(|| input.map(|mut input| input.write_all(module)));
            let reading = scope.spawn(|| output.map(|output| code(output, limits.compiled)));
            let ended = wait(&mut child, limits.compile_time * PATIENCE);
            (ended, reading.join().ok().flatten())
        });
        match (ended.map_err(CompileError::Process)?, code) {
            (Some(status), Some(Ok(code))) if status.success() => Ok(code),
            (_, Some(Err(error @ CompileError::Size { .. }))) => Err(error),
            (Some(status), code) if status.success() => Err(code
                .and_then(Result::err)
                .unwrap_or_else(|| CompileError::Process(io::ErrorKind::UnexpectedEof.into()))),
            (Some(status), _) => {
                let complaint = complaint(&mut child).map_err(CompileError::Process)?;
                Err(cause(status, complaint, limits))
            }
            (None, _) => Err(CompileError::Late(limits.compile_time)),
        }
    }
}

/// Reads what the child answers: the number of bytes, and the bytes. More than `limit` are not read.
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

/// The child's work: limits itself, compiles the module of `size` bytes that it reads, and writes the code with
/// its length before it.
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
    // The soft limit ends the process with a signal of its own, by which the parent knows the cause.
    limit(Resource::RLIMIT_CPU, seconds, seconds + 1)?;
    let mut bytes = Vec::with_capacity(size);
    module
        .take(size as u64)
        .read_to_end(&mut bytes)
        .map_err(CompileError::Process)?;
    let code = engine::compiler()?
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
        stderr.take(COMPLAINT as u64).read_to_end(&mut bytes)?;
    }
    Ok(sanitize(String::from_utf8_lossy(&bytes).trim(), COMPLAINT))
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
