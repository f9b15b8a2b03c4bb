//! The programs of a release for arm64, in `dist/arm64`: built with the flags of those for amd64,
//! and tested on an emulator.

use std::path::Path;
use std::process::Command;

use cluster::command;
use cluster::files::make_dir;
use cluster::platform::ARM64;
use cluster::progress::Progress;
use cluster::settings::Settings;

use super::{
    Dist, DistError, MOUNTED, PLUGIN, Programs, RELEASE_FEATURES, build, copy, copy_programs, flags,
};
use crate::cargo;
use crate::dist::aarch64::Aarch64;
use crate::dist::rust::Rust;
use crate::guests::GUESTS;

/// The page size for the allocator, as a power of two. Kernels of arm64 have pages of 4, 16 or 64
/// KiB. The allocator ends a program at once if the kernel's pages are larger than those that it
/// was built for.
const LARGEST_PAGE: &str = "16";

/// Builds what has changed, puts the guests of `dist` beside it, and runs all of it.
pub fn ensure(
    settings: &Settings,
    dist: &Dist,
    progress: &Progress,
) -> Result<Programs, DistError> {
    let rust = Rust::ensure(ARM64.target, settings, progress)?;
    let tools = Aarch64::ensure(settings, progress)?;
    let checkout = &settings.checkout;
    progress.run(
        "built the operator and the plugin of kubectl for arm64",
        || {
            let mut cargo = cargo_build(&rust, &tools, checkout, "release");
            cargo
                .args(["--package", "ipu-operator", "--package", "ipu-kubectl"])
                .args(["--features", RELEASE_FEATURES]);
            build(
                "the operator and the plugin of kubectl for arm64",
                &mut cargo,
            )
        },
    )?;
    progress.run("built the agent for arm64", || {
        let mut cargo = cargo_build(&rust, &tools, checkout, "agent");
        build(
            "the agent for arm64",
            cargo.args(["--package", "ipu-agent"]),
        )
    })?;
    let built = cargo::target_dir().join(ARM64.target);
    let dir = dist.dir().join(ARM64.architecture);
    make_dir(&dir.join("guests"))?;
    copy_programs(&built, &dir)?;
    for file in MOUNTED {
        copy(&dist.dir().join(file), &dir.join(file))?;
    }
    for guest in GUESTS {
        let guest = format!("guests/{}.wasm", guest.name);
        copy(&dist.dir().join(&guest), &dir.join(&guest))?;
    }
    progress.run("ran the programs for arm64 on an emulator", || {
        try_out(&tools, &dir)
    })?;
    Ok(Programs {
        platform: ARM64,
        dir,
    })
}

/// `cargo build` of static programs, with this compiler for their C code.
fn cargo_build(rust: &Rust, tools: &Aarch64, checkout: &Path, profile: &str) -> Command {
    let mut cargo = rust.cargo();
    cargo
        .args(["build", "--locked", "--quiet", "--target", ARM64.target])
        .args(["--profile", profile])
        .current_dir(checkout)
        .env(cargo::FLAGS, flags(checkout))
        .env(
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
            tools.compiler(),
        )
        .env("CC_aarch64_unknown_linux_gnu", tools.compiler())
        .env("AR_aarch64_unknown_linux_gnu", tools.archiver())
        .env("JEMALLOC_SYS_WITH_LG_PAGE", LARGEST_PAGE);
    cargo
}

/// Starts the programs. The operator also compiles and calls each guest, because it generates that
/// machine code itself.
fn try_out(tools: &Aarch64, dir: &Path) -> Result<(), DistError> {
    let ran = |program: &str, arguments: &[&str]| {
        let mut command = tools.emulated(&dir.join(program));
        command.args(arguments).current_dir(dir);
        command::output(&mut command).map_err(DistError::Emulated)
    };
    for program in ["ipu-operator", "ipu-agent", PLUGIN] {
        let said = ran(program, &["--version"])?;
        if said.trim() != format!("{program} {}", env!("CARGO_PKG_VERSION")) {
            return Err(DistError::Version(said));
        }
    }
    for guest in GUESTS {
        let guest = format!("guests/{}.wasm", guest.name);
        ran("ipu-operator", &["policy", "check", &guest])?;
        ran("ipu-operator", &["policy", "run", &guest])?;
    }
    Ok(())
}
