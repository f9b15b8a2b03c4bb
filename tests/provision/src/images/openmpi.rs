//! The images of jobs: Debian with Open MPI, Python and mpi4py, from pinned packages only.

use std::{
    ffi::OsString,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{Image, ImageError, make, oci::ImageConfig};
use crate::{
    command::{self, CommandError},
    debian::Pinned,
    files::{At, make_dir, read, remove, sha256, write},
    progress::Progress,
    settings::Settings,
    tools::Tools,
};

/// The Open MPI of an image. Versions differ in their variables, and in how they start daemons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMpi {
    /// 4.1.4, from bookworm. The examples and the demo use this one.
    Four,
    /// 5.0.7, from trixie.
    Five,
}

impl OpenMpi {
    /// Name of the image.
    pub fn image(self) -> &'static str {
        match self {
            Self::Four => "ipu-operator.local/openmpi:4",
            Self::Five => "ipu-operator.local/openmpi:5",
        }
    }

    /// The packages of the image, with all that they need.
    fn lock(self) -> &'static str {
        match self {
            Self::Four => "tests/tools/openmpi-4.lock",
            Self::Five => "tests/tools/openmpi-5.lock",
        }
    }

    /// The Debian release of the packages.
    fn suite(self) -> &'static str {
        match self {
            Self::Four => "bookworm",
            Self::Five => "trixie",
        }
    }
}

/// Packages that the image needs beside Debian's smallest set, without their dependencies.
pub const PACKAGES: &str = "openmpi-bin,python3,python3-mpi4py";

/// Files that a container does not need.
const LEFT_OUT: [&str; 3] = [
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/doc/*",
    "path-exclude=/usr/share/locale/*",
];

/// Makes the image. It downloads and checks the packages of the lock file. apt then installs from a
/// repository with only these packages, so the same lock file gives the same files.
pub fn ensure(
    settings: &Settings,
    tools: &Tools,
    progress: &Progress,
    version: OpenMpi,
) -> Result<Image, ImageError> {
    let lock = read(&settings.checkout.join(version.lock()))?;
    let pinned =
        Pinned::parse(version.lock(), version.suite(), &lock).map_err(ImageError::Debian)?;
    let inputs = format!("{lock} {PACKAGES} {}", LEFT_OUT.join(" "));
    make(settings, progress, version.image(), &inputs, |dir| {
        let layer = dir.join("layer.tar");
        let work = dir.join("work");
        let repository = work.join("repository");
        make_dir(&work)?;
        let apt = settings.cache.join("apt");
        let debs = pinned
            .download(&apt, &repository)
            .map_err(ImageError::Debian)?;
        write_index(&repository, &debs)?;
        bootstrap(tools, &repository, &work, &layer)?;
        remove(&work)?;
        fs::metadata(&layer).at("read", &layer)?;
        let config = ImageConfig {
            entrypoint: Vec::new(),
            env: vec![
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
            ],
            user: None,
        };
        Ok((layer, config))
    })
}

/// Makes the folder a repository. Its index repeats the control data of the packages.
fn write_index(repository: &Path, debs: &[PathBuf]) -> Result<(), ImageError> {
    let mut index = String::new();
    for deb in debs {
        let mut fields = Command::new("dpkg-deb");
        let fields = command::output(fields.arg("--field").arg(deb))
            .map_err(failed("read a Debian package"))?;
        let name = deb.file_name().unwrap_or_default().to_string_lossy();
        let size = fs::metadata(deb).at("read", deb)?.len();
        let digest = sha256(deb)?;
        // Writing to a String cannot fail.
        let _ = write!(
            index,
            "{fields}Filename: ./{name}\nSize: {size}\nSHA256: {digest}\n\n"
        );
    }
    Ok(write(&repository.join("Packages"), index)?)
}

/// Installs the packages of the repository into a new root file system, and packs that.
fn bootstrap(
    tools: &Tools,
    repository: &Path,
    work: &Path,
    layer: &Path,
) -> Result<(), ImageError> {
    // A list of sources separates its words by spaces.
    let repository = repository.display().to_string().replace(' ', "%20");
    // mmdebstrap mounts file systems into its tree. It runs in its own mount namespace, so that it
    // leaves no mount when it is killed.
    let mut mmdebstrap = Command::new("unshare");
    mmdebstrap
        .args(["--mount", "--propagation=private"])
        .arg(tools.debian().path("usr/bin/mmdebstrap"))
        .args(["--quiet", "--mode=root", "--variant=minbase"])
        .arg(format!("--include={PACKAGES}"))
        .arg("--aptopt=APT::Install-Recommends \"false\"")
        .args(LEFT_OUT.map(|rule| format!("--dpkgopt={rule}")))
        // It names a folder of this machine.
        .arg("--customize-hook=rm \"$1/etc/apt/sources.list\"")
        // No suite: there is only this repository.
        .arg("")
        .arg(layer)
        // Every package has been checked against the lock file.
        .arg(format!("deb [trusted=yes] copy:{repository} ./"))
        .env("PATH", with_helpers(tools))
        .env("TMPDIR", work)
        .env("SOURCE_DATE_EPOCH", "0")
        .env_remove("APT_CONFIG");
    command::run(&mut mmdebstrap).map_err(failed(
        "make a root file system of the packages in the image's lock file",
    ))
}

fn failed(action: &'static str) -> impl FnOnce(CommandError) -> ImageError {
    move |source| ImageError::Command { action, source }
}

/// PATH with the programs of mmdebstrap before those of the machine.
fn with_helpers(tools: &Tools) -> OsString {
    let mut path = tools.debian().path("usr/bin").into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path
}
