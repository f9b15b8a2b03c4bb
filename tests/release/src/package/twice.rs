//! Builds a release a second time, in another folder and from nothing, and compares every byte.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use cluster::command::{self, CommandError};
use cluster::files::{At, FileError, make_dir, sha256_of};
use cluster::platform::{AMD64, ARM64};
use cluster::progress::Progress;
use cluster::settings::Settings;

use super::archive::{self, Files};
use super::{Package, PackageError, VERSION, name};
use crate::{dist, image};

/// Difference between two releases.
#[derive(Debug, thiserror::Error)]
pub enum TwiceError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A release could not be made.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// A command failed.
    #[error("failed to {0}")]
    Command(&'static str, #[source] CommandError),
    /// The second build would use other sources.
    #[error(
        "there are uncommitted changes, which the second build would not contain: commit or stash them"
    )]
    Changed,
    /// The bytes differ.
    #[error("the two releases differ: {}", .0.join(", "))]
    Differ(Vec<String>),
}

/// Builds the release of this commit again, for arm64 too if the first one is. Returns the digest
/// of each file.
pub fn compare(
    settings: &Settings,
    first: &Package,
    arm64: bool,
    progress: &Progress,
) -> Result<Vec<(String, String)>, TwiceError> {
    let folder = tempfile::tempdir().at("make a folder in", &std::env::temp_dir())?;
    let one = built(&settings.checkout, first, &folder.path().join("one"), arm64)?;
    // The image would be found in the cache.
    for platform in [AMD64, ARM64] {
        image::forget(settings, platform)?;
    }
    let checkout = folder.path().join("elsewhere");
    progress.run("cloned the commit into another folder", || {
        clone(settings, &checkout)
    })?;
    progress.run("built it all again there", || {
        let mut make = Command::new("make");
        make.arg("release")
            .args(arm64.then_some("ARM64=1"))
            .current_dir(&checkout)
            .env_remove("CARGO_TARGET_DIR");
        // The flags of this build name the first folder.
        make.env_remove(crate::cargo::FLAGS);
        command::run(&mut make)
            .map_err(|source| TwiceError::Command("build the release again", source))
    })?;
    let archive = checkout
        .join("dist/release")
        .join(format!("{}.tar.gz", name(VERSION)));
    let other = built(
        &checkout,
        &Package {
            archive,
            version: VERSION.to_owned(),
        },
        &folder.path().join("other"),
        arm64,
    )?;
    let names: BTreeSet<_> = one.keys().chain(other.keys()).collect();
    let differ = |name: &&&String| one.get(**name) != other.get(**name);
    let differing: Vec<String> = names
        .iter()
        .filter(differ)
        .map(ToString::to_string)
        .collect();
    if !differing.is_empty() {
        return Err(TwiceError::Differ(differing));
    }
    let digests = one
        .iter()
        .map(|(name, content)| (name.clone(), sha256_of(content)));
    Ok(digests.collect())
}

/// The archive, its files, and the programs in its image.
fn built(
    checkout: &Path,
    package: &Package,
    into: &Path,
    arm64: bool,
) -> Result<Files, TwiceError> {
    let mut files = Files::new();
    make_dir(into)?;
    archive::unpack(&package.archive, into)?;
    archive::add(&mut files, &into.join(name(VERSION)), &name(VERSION))?;
    archive::add(
        &mut files,
        &package.archive,
        &format!("{}.tar.gz", name(VERSION)),
    )?;
    let programs = ["ipu-operator", "ipu-agent", dist::PLUGIN, "guests"].into_iter();
    let programs = programs.chain(dist::MOUNTED);
    for program in programs.chain(arm64.then_some("arm64")) {
        archive::add(&mut files, &checkout.join("dist").join(program), program)?;
    }
    Ok(files)
}

/// Whether the checkout differs from its commit.
pub fn has_changes(settings: &Settings) -> Result<bool, TwiceError> {
    let mut status = Command::new("git");
    status
        .args(["status", "--porcelain"])
        .current_dir(&settings.checkout);
    let changed = command::output(&mut status);
    let changed = changed.map_err(|source| TwiceError::Command("ask git for changes", source))?;
    Ok(!changed.is_empty())
}

fn clone(settings: &Settings, into: &PathBuf) -> Result<(), TwiceError> {
    if has_changes(settings)? {
        return Err(TwiceError::Changed);
    }
    let mut clone = Command::new("git");
    clone
        .args(["clone", "--quiet"])
        .arg(&settings.checkout)
        .arg(into);
    command::run(&mut clone).map_err(|source| TwiceError::Command("clone the repository", source))
}
