//! The image that jobs run in: Debian with Open MPI 4, Python and mpi4py.

use std::{ffi::OsString, fs, process::Command};

use super::{Image, ImageError, make, oci::ImageConfig};
use crate::{
    debian::mirror,
    lab::{
        command,
        files::{At, make_dir, remove},
        progress::Progress,
        settings::Settings,
        tools::{Tools, debian},
    },
};

/// Name of the image.
pub const NAME: &str = "ipu-operator.local/openmpi:4";

/// Packages beside Debian's smallest set.
const PACKAGES: &str = "openmpi-bin,python3,python3-mpi4py";

/// What nobody reads in a container.
const LEFT_OUT: [&str; 3] = [
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/doc/*",
    "path-exclude=/usr/share/locale/*",
];

/// Makes the image. apt checks every package against the signed lists of the release.
pub fn ensure(
    settings: &Settings,
    tools: &Tools,
    progress: &Progress,
) -> Result<Image, ImageError> {
    let inputs = format!("{} {PACKAGES} {}", debian::SUITE, LEFT_OUT.join(" "));
    make(settings, progress, NAME, &inputs, |dir| {
        let layer = dir.join("layer.tar");
        let work = dir.join("work");
        make_dir(&work)?;
        let mirror = mirror().map_err(ImageError::Debian)?;
        // mmdebstrap mounts into the tree that it makes: in a namespace of its own, so that a killed
        // one leaves no mount.
        let mut mmdebstrap = Command::new("unshare");
        mmdebstrap
            .args(["--mount", "--propagation=private"])
            .arg(tools.debian().path("usr/bin/mmdebstrap"))
            .args(["--quiet", "--mode=root", "--variant=minbase"])
            .arg(format!("--include={PACKAGES}"))
            .arg("--aptopt=APT::Install-Recommends \"false\"")
            .args(LEFT_OUT.map(|rule| format!("--dpkgopt={rule}")))
            .arg(debian::SUITE)
            .arg(&layer)
            .arg(mirror)
            .env("PATH", with_helpers(tools))
            .env("TMPDIR", &work)
            .env("SOURCE_DATE_EPOCH", "0")
            .env_remove("APT_CONFIG");
        command::run(&mut mmdebstrap).map_err(|source| ImageError::Command {
            action: "make a root file system with Open MPI",
            source,
        })?;
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

/// PATH with the programs that come with mmdebstrap before those of the machine.
fn with_helpers(tools: &Tools) -> OsString {
    let mut path = tools.debian().path("usr/bin").into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path
}
