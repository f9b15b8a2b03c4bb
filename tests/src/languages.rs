//! Builds the example policies in JavaScript, Python and C with tools from the usual registries.
//! `tests/tools` pins the tools, and the cache folder keeps them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cluster::command::{self, CommandError};
use cluster::debian::{DebianError, Pinned};
use cluster::files::{At, FileError, make_dir, sha256_of, write};
use cluster::settings::{SettingsError, cache, checkout};
use cluster::tools::stored;
use ipu_guest_host::{ComponentizeError, componentize};
use wit_bindgen_core::Files;
use wit_bindgen_core::wit_parser::Resolve;

/// Version of the tool for JavaScript, as in its lock file.
const COMPONENTIZE_QJS: &str = "0.4.5";

/// Version of the tool for Python, as in its list of requirements.
const COMPONENTIZE_PY: &str = "0.25.1";

/// Version of the compiler for C, as in its lock file.
const CLANG: &str = "14";

/// Stack of a guest in C, in bytes. Every call clears it.
const STACK: usize = 64 << 10;

/// Failure to build an example.
#[derive(Debug, thiserror::Error)]
pub enum LanguageError {
    /// A tool could not be installed.
    #[error("failed to install {tool}")]
    Install {
        /// The tool.
        tool: &'static str,
        /// The output of its installer.
        #[source]
        source: CommandError,
    },
    /// Debian's compiler could not be fetched.
    #[error("failed to fetch Debian's clang")]
    Clang(#[from] DebianError),
    /// A tool refuses the example.
    #[error("failed to build the example {example}")]
    Build {
        /// The example.
        example: &'static str,
        /// The output of the tool.
        #[source]
        source: CommandError,
    },
    /// The contract could not be translated to C.
    #[error("failed to generate C of the contract")]
    Bindings(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The module could not be made a component of the contract.
    #[error("failed to turn the module of C into a component")]
    Componentize(#[from] ComponentizeError),
    /// The folder for caches is unknown.
    #[error(transparent)]
    Cache(#[from] SettingsError),
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Builds the example in JavaScript, and returns its component.
pub fn javascript() -> Result<PathBuf, LanguageError> {
    let pins = pins().join("componentize-qjs");
    let tool = installed("componentize-qjs", COMPONENTIZE_QJS, &pins, |folder| {
        for file in ["package.json", "package-lock.json"] {
            fs::copy(pins.join(file), folder.join(file)).at("copy", &pins.join(file))?;
        }
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts"])
            .current_dir(folder);
        command::run(&mut npm).map_err(|source| LanguageError::Install {
            tool: "componentize-qjs",
            source,
        })
    })?;
    let output = output("require-label")?;
    let mut make = Command::new("node");
    make.arg(tool.join("node_modules/componentize-qjs/bin/componentize-qjs"))
        .arg("--wit")
        .arg(contract())
        .args(["--world", "validation", "--sync"])
        .arg("--js")
        .arg(example("require-label/require-label.js"))
        .arg("--output")
        .arg(&output);
    built("require-label", &mut make)?;
    Ok(output)
}

/// Builds the example in Python, and returns its component.
pub fn python() -> Result<PathBuf, LanguageError> {
    let pins = pins().join("componentize-py");
    let tool = installed("componentize-py", COMPONENTIZE_PY, &pins, |folder| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps"])
            .args(["--disable-pip-version-check", "--root-user-action=ignore"])
            .args(["--require-hashes", "--target"])
            .arg(folder.join("site"))
            .arg("--requirement")
            .arg(pins.join("requirements.txt"));
        command::run(&mut pip).map_err(|source| LanguageError::Install {
            tool: "componentize-py",
            source,
        })
    })?;
    let output = output("default-image-pull-policy")?;
    let mut make = Command::new("python3");
    make.args(["-c", "import componentize_py; componentize_py.script()"])
        .env("PYTHONPATH", tool.join("site"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg("--wit-path")
        .arg(contract())
        .args(["--world", "defaulting", "componentize", "--python-path"])
        .arg(example("default-image-pull-policy"))
        .arg("default_image_pull_policy")
        .arg("--output")
        .arg(&output);
    built("default-image-pull-policy", &mut make)?;
    Ok(output)
}

/// Builds the example in C, and returns its component.
pub fn c() -> Result<PathBuf, LanguageError> {
    let pins = pins().join("clang.lock");
    let root = installed("clang", CLANG, &pins, |folder| {
        let lock = cluster::files::read(&pins)?;
        let pinned = Pinned::parse("tests/tools/clang.lock", "bookworm", &lock)?;
        Ok(pinned.unpack(&folder.with_extension("apt"), folder)?)
    })?;
    let output = output("steer-by-label")?;
    let generated = output.with_extension("generated");
    bindings(&generated)?;
    let core = generated.join("core.wasm");
    let llvm = root.join("usr/lib/llvm-14");
    let libraries = [root.join("usr/lib/x86_64-linux-gnu"), llvm.join("lib")];
    let libraries = libraries.map(|folder| folder.display().to_string());
    let mut clang = Command::new(llvm.join("bin/clang"));
    clang
        .env("LD_LIBRARY_PATH", libraries.join(":"))
        .args([
            "--target=wasm32-wasi",
            "-mexec-model=reactor",
            "-O2",
            "-Wall",
            "-Werror",
        ])
        .arg(format!("-fuse-ld={}", llvm.join("bin/wasm-ld").display()))
        .arg("--sysroot")
        .arg(root.join("usr"))
        .arg("-isystem")
        .arg(root.join("usr/include/wasm32-wasi"))
        .arg("-L")
        .arg(root.join("usr/lib/wasm32-wasi"))
        .arg(format!("-Wl,-zstack-size={STACK},--strip-all"))
        .arg("-I")
        .arg(&generated)
        .arg(example("steer-by-label/steer-by-label.c"))
        .arg(generated.join("placement.c"))
        .arg(generated.join("placement_component_type.o"))
        .arg("-o")
        .arg(&core);
    built("steer-by-label", &mut clang)?;
    let component = componentize(&fs::read(&core).at("read", &core)?, None)?;
    write(&output, component)?;
    Ok(output)
}

/// The C code of the contract's world for placement, as `wit-bindgen c` generates it.
fn bindings(folder: &Path) -> Result<(), LanguageError> {
    let failed = |error: anyhow::Error| LanguageError::Bindings(error.into());
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(contract()).map_err(failed)?;
    let world = resolve.select_world(&[package], Some("placement"));
    let mut files = Files::default();
    wit_bindgen_c::Opts::default()
        .build()
        .generate(&mut resolve, world.map_err(failed)?, &mut files)
        .map_err(failed)?;
    make_dir(folder)?;
    for (name, content) in files.iter() {
        write(&folder.join(name), content)?;
    }
    Ok(())
}

fn pins() -> PathBuf {
    checkout().join("tests/tools")
}

/// The folder of the current contract. The folder above it has a folder for each version, which no
/// tool reads.
fn contract() -> PathBuf {
    checkout().join("wit/0.2.0")
}

fn example(path: &str) -> PathBuf {
    checkout().join("examples/policies").join(path)
}

/// The path of an example's component.
fn output(name: &str) -> Result<PathBuf, LanguageError> {
    let dist = checkout().join("dist/policies");
    make_dir(&dist)?;
    Ok(dist.join(format!("{name}.wasm")))
}

fn built(example: &'static str, command: &mut Command) -> Result<(), LanguageError> {
    command::run(command).map_err(|source| LanguageError::Build { example, source })
}

/// The folder of a tool in the cache. If it was made from other pins or is missing, `install` fills
/// it.
fn installed(
    tool: &'static str,
    version: &str,
    pins: &Path,
    install: impl FnOnce(&Path) -> Result<(), LanguageError>,
) -> Result<PathBuf, LanguageError> {
    let inputs = format!("{version} {}", digest(pins)?);
    let dir = cache()?.join(format!("{tool}-{version}"));
    if !stored::is_intact(&dir, &inputs) {
        stored::make(&dir, &inputs, install)?;
    }
    Ok(dir)
}

/// Digest of a file, or of the files of a folder.
fn digest(pins: &Path) -> Result<String, FileError> {
    if pins.is_file() {
        return Ok(sha256_of(fs::read(pins).at("read", pins)?));
    }
    let entries = fs::read_dir(pins).at("read", pins)?;
    let mut files: Vec<_> = entries
        .filter_map(Result::ok)
        .map(|one| one.path())
        .collect();
    files.sort();
    let contents: Result<Vec<_>, _> = files
        .iter()
        .map(|file| fs::read(file).at("read", file))
        .collect();
    Ok(sha256_of(contents?.concat()))
}
