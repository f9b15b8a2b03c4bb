//! Builds a project of `ipu-operator policy new` as its README describes, with the compiler and the
//! crates of this repository's guests.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use cluster::command;
use cluster::files::{make_dir, write};
use cluster::settings::{cache, checkout};
use provision::guests::target_dir;
use provision::guests::toolchain::{self, TARGET};
use release::cargo::cargo;

/// Runs the project's own tests, compiles it for wasm32, and returns its core module.
pub fn build(folder: &Path) -> Result<PathBuf> {
    let lock = checkout().join("Cargo.lock");
    fs::copy(&lock, folder.join("Cargo.lock")).context("failed to lend the project our lock")?;
    command::run(project(folder).arg("test")).context("the project's tests fail")?;
    let toolchain = toolchain::find(&cache()?)?;
    let mut build = project(folder);
    build.args(["build", "--release", "--target", TARGET]);
    if let Some(own) = &toolchain.own {
        build
            .env("RUSTC", &own.rustc)
            .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", &own.linker);
    }
    command::run(&mut build).context("the project does not compile")?;
    let name = folder.file_name().context("a project has a name")?;
    let file = format!("{}.wasm", name.to_string_lossy().replace('-', "_"));
    Ok(projects().join(TARGET).join("release").join(file))
}

/// Writes the programs `cargo` and `rustup` into a folder, so that a test can run a document's
/// commands. This cargo builds as [`build`] does, into the project's own folder `target`, where the
/// document expects the result. This rustup does nothing.
pub fn programs(folder: &Path) -> Result<()> {
    make_dir(&projects())?;
    let cargo = cargo();
    let toolchain = toolchain::find(&cache()?)?;
    let own = toolchain.own.map(|own| {
        let (rustc, linker) = (own.rustc.display(), own.linker.display());
        format!("export RUSTC='{rustc}' CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER='{linker}'")
    });
    let script = format!(
        "#!/bin/sh\n\
         set -eu\n\
         cp '{lock}' Cargo.lock\n\
         ln -sfn '{projects}' target\n\
         unset CARGO_TARGET_DIR CARGO_BUILD_TARGET_DIR CARGO_BUILD_TARGET CARGO_ENCODED_RUSTFLAGS RUSTFLAGS\n\
         unset RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER CLIPPY_ARGS RUSTC_BOOTSTRAP\n\
         case \" $* \" in *' {TARGET} '*) {own} ;; esac\n\
         exec '{cargo}' --offline --quiet \"$@\"\n",
        lock = checkout().join("Cargo.lock").display(),
        projects = projects().display(),
        own = own.as_deref().unwrap_or(":"),
        cargo = cargo.get_program().to_string_lossy(),
    );
    for (name, script) in [("cargo", &*script), ("rustup", "#!/bin/sh\n")] {
        let path = folder.join(name);
        write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Cargo in the project. The copied lock file names only crates that are on this machine.
fn project(folder: &Path) -> Command {
    let mut command = cargo();
    command
        .current_dir(folder)
        .args(["--offline", "--quiet"])
        .env("CARGO_TARGET_DIR", projects())
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WRAPPER");
    command
}

/// One folder for all projects, so that shared crates are compiled once.
fn projects() -> PathBuf {
    target_dir().join("projects")
}
