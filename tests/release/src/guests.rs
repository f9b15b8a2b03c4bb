//! Builds the guests: components, by the operator's own library, from the core modules that cargo
//! compiles.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use cluster::files::{At, FileError, make_dir};
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::{ComponentizeError, InspectError, componentize, inspect};
use provision::guests::{CompileError, compile};
use tempfile::Builder;

/// A guest of this repository in Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guest {
    /// The name of its component, and of its folder.
    pub name: &'static str,
    /// The folder that contains its folder.
    pub folder: &'static str,
    /// The name of its package.
    pub package: &'static str,
    /// The hook that it is for.
    pub hook: Hook,
}

/// Every example policy that is written in Rust.
pub const EXAMPLES: [Guest; 2] = [
    Guest {
        name: "best-fit",
        folder: "examples/policies",
        package: "best-fit",
        hook: Hook::Placement,
    },
    NAMESPACE_QUOTA,
];

/// The example policy that is also in the operator's image.
const NAMESPACE_QUOTA: Guest = Guest {
    name: "namespace-quota",
    folder: "examples/policies",
    package: "namespace-quota",
    hook: Hook::Placement,
};

/// Every guest of the operator's image.
pub const GUESTS: [Guest; 6] = [
    Guest {
        name: "defaulting",
        folder: "guests",
        package: "guest-defaulting",
        hook: Hook::Defaulting,
    },
    Guest {
        name: "validation",
        folder: "guests",
        package: "guest-validation",
        hook: Hook::Validation,
    },
    Guest {
        name: "serial-walk",
        folder: "guests",
        package: "guest-serial-walk",
        hook: Hook::Placement,
    },
    Guest {
        name: "fragmentation",
        folder: "guests",
        package: "guest-fragmentation",
        hook: Hook::Placement,
    },
    Guest {
        name: "cel",
        folder: "guests",
        package: "guest-cel",
        hook: Hook::Validation,
    },
    NAMESPACE_QUOTA,
];

/// Failure to build the guests.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A guest could not be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A guest is not a valid component.
    #[error("failed to turn guest {guest} into a component")]
    Componentize {
        /// The guest.
        guest: &'static str,
        /// The cause.
        #[source]
        source: ComponentizeError,
    },
    /// The operator would refuse a guest.
    #[error("the operator would refuse guest {guest}")]
    Inspect {
        /// The guest.
        guest: &'static str,
        /// The cause.
        #[source]
        source: InspectError,
    },
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

pub use provision::settings::checkout;

/// Builds all guests of the image into `dist/guests` of this checkout, and returns that folder. It
/// is quick if nothing has changed. The result depends only on the sources and the compiler.
pub fn build() -> Result<PathBuf, BuildError> {
    let dir = checkout().join("dist/guests");
    build_into(&dir, &GUESTS).map(|()| dir)
}

/// Builds the example policies that are written in Rust into `dist/policies`, in the same way.
pub fn build_examples() -> Result<PathBuf, BuildError> {
    let dir = checkout().join("dist/policies");
    build_into(&dir, &EXAMPLES).map(|()| dir)
}

/// Builds these guests into a folder.
pub(crate) fn build_into(dir: &Path, guests: &[Guest]) -> Result<(), BuildError> {
    let packages: Vec<_> = guests.iter().map(|guest| guest.package).collect();
    compile(&packages, |_| {})?;
    make_dir(dir)?;
    for &guest in guests {
        let core = core_module(guest);
        let core = fs::read(&core).at("read", &core)?;
        let component = componentize(&core, None).map_err(|source| BuildError::Componentize {
            guest: guest.name,
            source,
        })?;
        put(guest, dir, &component)?;
    }
    Ok(())
}

/// The core module of a guest, as the compiler leaves it; [`build`] makes it.
pub fn core_module(guest: Guest) -> PathBuf {
    provision::guests::core_module(guest.package)
}

/// Writes a component into the folder, if the operator would accept it and it has changed.
fn put(guest: Guest, dist: &Path, component: &[u8]) -> Result<(), BuildError> {
    let file = dist.join(format!("{}.wasm", guest.name));
    if fs::read(&file).is_ok_and(|present| present == component) {
        return Ok(());
    }
    // A file of its own, because several tests may build the guests at the same time.
    let partial = Builder::new().prefix(".").tempfile_in(dist);
    let partial = partial.at("write into", dist)?.into_temp_path();
    fs::write(&partial, component).at("write", &partial)?;
    inspect(&partial, Some(guest.hook), "{}").map_err(|source| BuildError::Inspect {
        guest: guest.name,
        source,
    })?;
    let mode = Permissions::from_mode(0o644);
    fs::set_permissions(&partial, mode).at("write", &partial)?;
    Ok(fs::rename(&partial, &file).at("write", &file)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn make_compiles_every_guest_of_the_image_before_it_is_needed() {
        assert_eq!(
            GUESTS.map(|guest| guest.package),
            provision::guests::BUILT_IN
        );
    }
}
