//! The parts of the shipped programs and guests: crates as cargo resolves them, Rust's standard
//! library, and the C library, which is linked into the static programs.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::process::Command;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use cluster::command::{self, CommandError};
use cluster::platform::{AMD64, Platform};
use cluster::settings::Settings;
use cluster::tools::ToolsError;

use crate::cargo::cargo;
use crate::dist::aarch64;
use crate::guests::GUESTS;

/// Failure to list the crates.
#[derive(Debug, thiserror::Error)]
pub enum CratesError {
    /// A program that lists them failed.
    #[error("failed to ask {0}")]
    Ask(&'static str, #[source] CommandError),
    /// Cargo's answer is not understood.
    #[error("failed to read what `cargo metadata` prints")]
    Metadata(#[source] cargo_metadata::Error),
    /// The list of packages for arm64 cannot be read.
    #[error(transparent)]
    Tools(#[from] ToolsError),
}

/// Everything that the programs contain.
#[derive(Clone, Debug)]
pub struct Crates {
    /// By name and version. The operator and the guests are among them.
    pub crates: Vec<Crate>,
    /// Version of the compiler and its standard library.
    pub rust: String,
    /// Versions of the C library: platforms may differ.
    pub libcs: BTreeSet<String>,
}

/// A crate, and the crates that it needs at run time, as indices in the list.
#[derive(Clone, Debug)]
pub struct Crate {
    /// Its data from cargo.
    pub package: Package,
    /// Its dependencies.
    pub needs: Vec<usize>,
}

impl Crate {
    /// Whether it comes from this repository.
    pub fn is_ours(&self) -> bool {
        self.package.source.is_none()
    }
}

impl Crates {
    /// Lists what the programs of the checkout contain on these platforms.
    pub fn of(settings: &Settings, platforms: &[Platform]) -> Result<Self, CratesError> {
        let mut metadata = cargo();
        metadata
            .args(["metadata", "--format-version=1", "--locked"])
            .current_dir(&settings.checkout);
        for platform in platforms {
            metadata.args(["--filter-platform", platform.target]);
        }
        let printed = output("cargo", &mut metadata)?;
        let metadata = MetadataCommand::parse(printed).map_err(CratesError::Metadata)?;
        let rust = output("rustc", Command::new("rustc").arg("--version"))?;
        let libcs = platforms.iter().map(|platform| libc(settings, *platform));
        Ok(Self {
            crates: shipped(&metadata),
            rust: second_word(&rust),
            libcs: libcs.collect::<Result<_, _>>()?,
        })
    }
}

/// The version of the C library that programs are linked with.
fn libc(settings: &Settings, platform: Platform) -> Result<String, CratesError> {
    if platform != AMD64 {
        return Ok(aarch64::libc_version(settings)?);
    }
    let said = output("getconf", Command::new("getconf").arg("GNU_LIBC_VERSION"))?;
    Ok(second_word(&said))
}

fn output(whom: &'static str, command: &mut Command) -> Result<String, CratesError> {
    command::output(command).map_err(|source| CratesError::Ask(whom, source))
}

fn second_word(text: &str) -> String {
    text.split_whitespace()
        .nth(1)
        .unwrap_or_default()
        .to_owned()
}

/// The operator, its agent, the plugin of kubectl, the guests, and all their dependencies. The
/// dependencies of build scripts are not shipped.
fn shipped(metadata: &Metadata) -> Vec<Crate> {
    let needed = needed(metadata);
    let is_root = |package: &&Package| {
        let name = package.name.as_str();
        ["ipu-agent", "ipu-kubectl", "ipu-operator"].contains(&name)
            || GUESTS.iter().any(|guest| guest.package == name)
    };
    let roots = metadata.packages.iter().filter(is_root);
    let mut waiting: Vec<&PackageId> = roots.map(|package| &package.id).collect();
    let mut seen = HashSet::new();
    while let Some(id) = waiting.pop() {
        if seen.insert(id) {
            waiting.extend(needed.get(id).into_iter().flatten());
        }
    }
    let packages = metadata
        .packages
        .iter()
        .filter(|package| seen.contains(&package.id));
    let sorted: BTreeMap<_, _> = packages
        .map(|package| ((&*package.name, &package.version), package))
        .collect();
    let places: HashMap<_, _> = sorted
        .values()
        .enumerate()
        .map(|(place, package)| (&package.id, place))
        .collect();
    let crates = sorted.values().map(|package| {
        let needs = needed.get(&package.id).into_iter().flatten();
        let mut needs: Vec<_> = needs.filter_map(|id| places.get(*id).copied()).collect();
        needs.sort_unstable();
        needs.dedup();
        Crate {
            package: (*package).clone(),
            needs,
        }
    });
    crates.collect()
}

/// The run-time dependencies of each crate.
fn needed(metadata: &Metadata) -> HashMap<&PackageId, Vec<&PackageId>> {
    let nodes = metadata.resolve.iter().flat_map(|resolve| &resolve.nodes);
    let of_node = nodes.map(|node| {
        let normal = node.deps.iter().filter(|dependency| {
            let mut kinds = dependency.dep_kinds.iter();
            kinds.any(|kind| kind.kind == DependencyKind::Normal)
        });
        (&node.id, normal.map(|dependency| &dependency.pkg).collect())
    });
    of_node.collect()
}
