//! Tools that are built from Go modules, pinned by `go.mod` and `go.sum` in the folders of
//! `tests/tools`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

mod catalog;

pub use self::catalog::{
    GoTool, OF_CLUSTER, OF_NETWORKS, OLDEST_KUBELET, Program, TOOLS, of_tests,
};
use super::{ToolsError, stored};
use crate::{
    command,
    files::{At, make_dir, read, remove, sha256_of},
    lock::Lock,
    progress::Progress,
    settings::Settings,
};

/// A tool with the version and the flags that its pins determine.
#[derive(Debug, Clone)]
struct Pinned {
    tool: &'static GoTool,
    pins: PathBuf,
    flags: String,
    /// Digest of all inputs of the build.
    inputs: String,
    /// Its folder in the cache.
    dir: PathBuf,
}

/// Builds the missing ones of these tools, and returns the folder of each. `compiled` receives the
/// import path of each package that Go compiles.
///
/// Tools with the same pins are built by one command, so that Go compiles packages of one while it
/// links another.
pub fn ensure(
    tools: &[&'static GoTool],
    settings: &Settings,
    progress: &Progress,
    compiled: &(dyn Fn(&str) + Sync),
) -> Result<Vec<PathBuf>, ToolsError> {
    let pinned: Vec<_> = tools
        .iter()
        .map(|tool| Pinned::read(tool, settings))
        .collect::<Result<_, _>>()?;
    let mut folders: Vec<&Path> = pinned.iter().map(|pinned| pinned.pins.as_path()).collect();
    folders.dedup();
    for pins in folders {
        let is_missing = |pinned: &&Pinned| pinned.pins == pins && !pinned.is_intact();
        if pinned.iter().any(|pinned| is_missing(&pinned)) {
            let _lock = Lock::take(&settings.cache.join(format!("{}.lock", name_of(pins))))?;
            // Another process may have built them during the wait.
            let missing: Vec<&Pinned> = pinned.iter().filter(is_missing).collect();
            build(pins, &missing, settings, progress, compiled)?;
        }
    }
    Ok(pinned.into_iter().map(|pinned| pinned.dir).collect())
}

/// The number of Go packages that are compiled for these tools if Go's own cache is empty.
pub fn count_packages(tools: &[&'static GoTool], settings: &Settings) -> Result<usize, ToolsError> {
    let mut packages: BTreeMap<PathBuf, Vec<&str>> = BTreeMap::new();
    for tool in tools {
        let pinned = Pinned::read(tool, settings)?;
        if !pinned.is_intact() {
            let programs = tool.programs.iter().map(|program| program.package);
            packages.entry(pinned.pins).or_default().extend(programs);
        }
    }
    let counts = packages.iter().map(|(pins, programs)| {
        let mut list = go(pins);
        list.args(["list", "-mod=readonly", "-deps"]).args(programs);
        let listed = command::output(&mut list).map_err(|source| ToolsError::Make {
            tool: format!("the list of packages of {}", name_of(pins)),
            source,
        })?;
        Ok(listed.lines().count())
    });
    counts.sum()
}

/// The folder with the sources of a tool's module. If the caches have only its programs, the module
/// is downloaded.
pub fn source(settings: &Settings, tool: &GoTool) -> Result<PathBuf, ToolsError> {
    let ask = |args: &[&str]| {
        let mut go = go(&tool.pins(settings));
        command::output(go.args(args).arg(tool.module)).map_err(|source| ToolsError::Make {
            tool: tool.name.to_owned(),
            source,
        })
    };
    ask(&["mod", "download"])?;
    let found = ask(&["list", "-mod=readonly", "-m", "-f", "{{.Dir}}"])?;
    Ok(PathBuf::from(found.trim()))
}

impl Pinned {
    fn read(tool: &'static GoTool, settings: &Settings) -> Result<Self, ToolsError> {
        let pins = tool.pins(settings);
        let version = version(tool, &pins)?;
        let sums = read(&pins.join("go.sum"))?;
        let flags = link_flags(tool, &version, &sums);
        let inputs = sha256_of(format!("{}{sums}{flags}", read(&pins.join("go.mod"))?));
        let dir = settings.cache.join(format!("{}-{version}", tool.name));
        Ok(Self {
            tool,
            pins,
            flags,
            inputs,
            dir,
        })
    }

    fn is_intact(&self) -> bool {
        stored::is_intact(&self.dir, &self.inputs)
    }
}

/// Builds the programs of tools that have the same pins, and moves those of each tool into its
/// folder.
fn build(
    pins: &Path,
    missing: &[&Pinned],
    settings: &Settings,
    progress: &Progress,
    compiled: &(dyn Fn(&str) + Sync),
) -> Result<(), ToolsError> {
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = missing.iter().map(|pinned| pinned.tool.name).collect();
    let what = format!("built {}", names.join(", "));
    let built = settings.cache.join(format!("{}.built", name_of(pins)));
    remove(&built)?;
    make_dir(&built)?;
    progress.run(what, || compile(pins, missing, &built, compiled))?;
    for pinned in missing {
        stored::make(&pinned.dir, &pinned.inputs, |partial| {
            pinned.tool.programs.iter().try_for_each(|program| {
                let from = built.join(program.built_name());
                fs::rename(&from, partial.join(program.name)).at("move", &from)
            })
        })?;
    }
    Ok(remove(&built)?)
}

/// One `go build` for all programs. `-mod=readonly` makes Go check every module against `go.sum`.
/// Variables that a program does not have are ignored.
fn compile(
    pins: &Path,
    missing: &[&Pinned],
    built: &Path,
    compiled: &(dyn Fn(&str) + Sync),
) -> Result<(), ToolsError> {
    let flags: BTreeSet<&str> = missing.iter().map(|pinned| pinned.flags.as_str()).collect();
    let flags = flags.into_iter().collect::<Vec<_>>().join(" ");
    let programs = missing.iter().flat_map(|pinned| pinned.tool.programs);
    let mut folder = built.as_os_str().to_owned();
    // With a slash, Go takes it for a folder also for a single program.
    folder.push("/");
    let mut go = go(pins);
    go.args([
        "build",
        "-v",
        "-mod=readonly",
        "-trimpath",
        "-buildvcs=false",
    ])
    // Nobody debugs the tools, and debug information takes an eighth of the time.
    .args(["-gcflags=all=-dwarf=false", "-ldflags", &flags, "-o"])
    .arg(folder)
    .args(programs.map(|program| program.package));
    command::stream(&mut go, compiled).map_err(|source| ToolsError::Make {
        tool: format!("the tools of {}", name_of(pins)),
        source,
    })
}

/// A Go that ignores the settings of the machine which would change the result.
fn go(pins: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(pins)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .env("GOFLAGS", "");
    go
}

/// Name of a folder of `tests/tools`.
fn name_of(pins: &Path) -> String {
    let name = pins.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

impl Program {
    /// The name that Go gives it: the last part of its import path, without a version.
    fn built_name(&self) -> &'static str {
        let mut parts = self.package.rsplit('/');
        let is_version = |part: &&str| {
            let number = part.strip_prefix('v');
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        parts.find(|part| !is_version(part)).unwrap_or(self.name)
    }
}

/// The version that `go.mod` requires of the tool's module, without the leading `v`.
pub fn version(tool: &GoTool, pins: &Path) -> Result<String, ToolsError> {
    let path = pins.join("go.mod");
    required_version(&read(&path)?, tool.module).ok_or(ToolsError::NotPinned {
        path,
        module: tool.module,
    })
}

fn required_version(go_mod: &str, module: &str) -> Option<String> {
    let lines = go_mod.lines().map(str::trim);
    let required = lines.map(|line| line.strip_prefix("require ").unwrap_or(line));
    let mut words = required
        .map(str::split_whitespace)
        .filter_map(|mut words| Some((words.next()?, words.next()?.strip_prefix('v')?.to_owned())));
    words
        .find(|(name, _)| *name == module)
        .map(|(_, version)| version)
}

/// The second number of the Kubernetes client's version in `go.sum`. A line with `/go.mod` is only
/// about the requirements of a version.
fn client_minor(sums: &str) -> Option<&str> {
    let lines = sums.lines().map(str::split_whitespace);
    let mut versions = lines.filter_map(|mut words| {
        let of_client = words.next()? == "k8s.io/client-go";
        words.next().filter(|_| of_client)
    });
    let version = versions.find(|version| !version.ends_with("/go.mod"))?;
    version.split('.').nth(1)
}

/// Flags of the linker: no symbol tables, and the version if the program shows one.
fn link_flags(tool: &GoTool, version: &str, sums: &str) -> String {
    let minor = version.split('.').nth(1).unwrap_or_default();
    let client = client_minor(sums).unwrap_or_default();
    tool.variables
        .iter()
        .map(|(name, value)| {
            let value = value.replace("VERSION", version).replace("MINOR", minor);
            let value = value.replace("CLIENT", client);
            format!(" -X {name}={value}")
        })
        .fold("-s -w".to_owned(), |flags, flag| flags + &flag)
}

#[cfg(test)]
mod tests;
