//! The mounts of a node, in its own mount namespace.

use std::{
    fs,
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
};

use crate::{
    files::{At, FileError, write},
    plan::MOUNT_POINTS,
};

/// Kernel settings that the kubelet writes. They apply to the whole machine, so the node gets files
/// instead.
const SETTINGS: [&str; 3] = [
    "vm/overcommit_memory",
    "kernel/panic",
    "kernel/panic_on_oops",
];

/// Failure to make a mount.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The kernel refused.
    #[error("failed to mount {}", target.display())]
    Mount {
        /// The mount point.
        target: PathBuf,
        /// Error of the kernel.
        #[source]
        source: Errno,
    },
}

/// Makes all mounts of the node with its state in `dir`.
pub fn make(dir: &Path) -> Result<(), MountError> {
    // First, mounts no longer propagate to the machine. Then mounts of Pods may propagate between
    // the node and its containers, which some Pods require.
    for propagation in [MsFlags::MS_PRIVATE, MsFlags::MS_SHARED] {
        mount_at(None, Path::new("/"), None, propagation | MsFlags::MS_REC)?;
    }
    mount_at(
        Some(Path::new("tmpfs")),
        Path::new("/run"),
        Some("tmpfs"),
        MsFlags::empty(),
    )?;
    for (target, source) in MOUNT_POINTS {
        bind(&dir.join(source), Path::new(target))?;
    }
    for setting in SETTINGS {
        let real = Path::new("/proc/sys").join(setting);
        let own = dir.join("sysctl").join(setting.replace('/', "."));
        let value = fs::read(&real).at("read", &real)?;
        write(&own, value)?;
        bind(&own, &real)?;
    }
    Ok(())
}

fn bind(source: &Path, target: &Path) -> Result<(), MountError> {
    mount_at(Some(source), target, None, MsFlags::MS_BIND)
}

fn mount_at(
    source: Option<&Path>,
    target: &Path,
    kind: Option<&str>,
    flags: MsFlags,
) -> Result<(), MountError> {
    mount(source, target, kind, flags, None::<&str>).map_err(|source| MountError::Mount {
        target: target.to_owned(),
        source,
    })
}
