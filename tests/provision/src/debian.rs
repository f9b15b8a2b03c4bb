//! Debian packages that a lock file pins: downloaded by version, checked by SHA-256, and unpacked.
//! Nothing is installed: apt runs with its own state, and the packages' scripts never run.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

mod apt;

use self::apt::Apt;
use crate::{
    command::{self, CommandError},
    files::{FileError, make_dir, remove, sha256},
};

/// Failure to provide a package.
#[derive(Debug, thiserror::Error)]
pub enum DebianError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A line of a lock file does not have four words.
    #[error("{lock}: line {line} is not `name version architecture sha256`")]
    BadLock {
        /// The lock file.
        lock: &'static str,
        /// Number of the line, from 1.
        line: usize,
    },
    /// apt does not know a mirror of Debian.
    #[error(
        "apt knows no mirror of Debian: add one to /etc/apt/sources.list.d and run `apt-get update`"
    )]
    NoMirror,
    /// apt or dpkg failed.
    #[error("failed to {action}")]
    Command {
        /// The action.
        action: &'static str,
        /// The cause.
        #[source]
        source: CommandError,
    },
    /// The mirror now has another version.
    #[error(
        "the Debian mirror no longer has {} {}: put the version that it has and its SHA-256 into {lock} (`apt-cache show {}`)",
        package.name, package.version, package.name
    )]
    Download {
        /// The lock file.
        lock: &'static str,
        /// The package, as the lock file names it.
        package: Box<Package>,
        /// Error of apt.
        #[source]
        source: CommandError,
    },
    /// The bytes differ from the pinned ones.
    #[error(
        "{} {} has SHA-256 {actual}, but {lock} names {}: the download was changed on its way, or the lock file is wrong",
        package.name, package.version, package.sha256
    )]
    Digest {
        /// The lock file.
        lock: &'static str,
        /// The package, as the lock file names it.
        package: Box<Package>,
        /// The downloaded files.
        actual: String,
    },
}

/// The packages of a lock file.
#[derive(Debug)]
pub struct Pinned {
    lock: &'static str,
    suite: &'static str,
    packages: Vec<Package>,
}

/// A line of the lock file.
#[derive(Clone, Debug)]
pub struct Package {
    name: String,
    version: String,
    architecture: String,
    sha256: String,
}

impl Pinned {
    /// Reads the text of the lock file `lock` for packages of the release `suite`.
    pub fn parse(lock: &'static str, suite: &'static str, text: &str) -> Result<Self, DebianError> {
        let lines = (1..).zip(text.lines().map(str::trim));
        let packages = lines
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
            .map(|(number, line)| {
                Package::parse(line).ok_or(DebianError::BadLock { lock, line: number })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            lock,
            suite,
            packages,
        })
    }

    /// The architecture of the packages. Packages for every architecture are listed with those for
    /// amd64.
    fn architectures(&self) -> BTreeSet<&str> {
        let packages = self.packages.iter();
        let named = packages.map(|package| package.architecture.as_str());
        named
            .filter(|named| *named != "all")
            .chain(["amd64"])
            .collect()
    }

    /// The version of a package, as Debian counts it.
    pub fn version(&self, name: &str) -> Option<&str> {
        let mut packages = self.packages.iter();
        let found = packages.find(|package| package.name == name);
        found.map(|package| package.version.as_str())
    }

    /// Number of the packages.
    pub fn count(&self) -> usize {
        self.packages.len()
    }

    /// Unpacks the packages into `root` as if it were `/`. `apt` contains apt's state and
    /// downloads. It may be the folder of an earlier call.
    pub fn unpack(&self, apt: &Path, root: &Path) -> Result<(), DebianError> {
        let debs = apt.join("debs");
        make_dir(root)?;
        for file in self.download(apt, &debs)? {
            let mut dpkg = Command::new("dpkg");
            dpkg.arg("-x").arg(&file).arg(root);
            command::run(&mut dpkg).map_err(|source| DebianError::Command {
                action: "unpack a Debian package",
                source,
            })?;
        }
        Ok(remove(&debs)?)
    }

    /// Downloads the packages into the folder `debs`, checks them, and gives their files.
    pub fn download(&self, apt: &Path, debs: &Path) -> Result<Vec<PathBuf>, DebianError> {
        // Files of a killed call may be incomplete.
        remove(debs)?;
        make_dir(debs)?;
        Apt::update(apt, self)?.download(self, debs)?;
        let checked = self.packages.iter().map(|package| {
            let file = debs.join(package.file_name());
            self.check(package, &file)?;
            Ok(file)
        });
        checked.collect()
    }

    fn check(&self, package: &Package, file: &Path) -> Result<(), DebianError> {
        let actual = sha256(file)?;
        if actual == package.sha256 {
            return Ok(());
        }
        Err(DebianError::Digest {
            lock: self.lock,
            package: Box::new(package.clone()),
            actual,
        })
    }
}

impl Package {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, version, architecture, sha256] = words[..] else {
            return None;
        };
        Some(Self {
            name: name.to_owned(),
            version: version.to_owned(),
            architecture: architecture.to_owned(),
            sha256: sha256.to_owned(),
        })
    }

    /// The argument with which apt selects exactly this package.
    fn full_name(&self) -> String {
        let architecture = match self.architecture.as_str() {
            "all" => "amd64",
            other => other,
        };
        format!("{}:{architecture}={}", self.name, self.version)
    }

    /// The name that apt gives the file: the colon of an epoch is escaped.
    fn file_name(&self) -> String {
        let version = self.version.replace(':', "%3a");
        format!("{}_{version}_{}.deb", self.name, self.architecture)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::write;

    fn pinned(text: &str) -> Result<Pinned, DebianError> {
        Pinned::parse("the.lock", "bookworm", text)
    }

    #[test]
    fn a_bad_line_is_named_by_its_number() {
        let good = pinned("# comment\n\nrunc 1.1.5+ds1-1 amd64 abcd\n").unwrap();
        assert_eq!(good.count(), 1);
        assert_eq!(good.packages[0].file_name(), "runc_1.1.5+ds1-1_amd64.deb");
        let error = pinned("# comment\nrunc 1.1.5\n").expect_err("two words");
        assert!(
            error.to_string().starts_with("the.lock: line 2 "),
            "{error}"
        );
    }

    #[test]
    fn the_committed_locks_are_well_formed() {
        for (text, wanted) in [
            (include_str!("../../tools/debian.lock"), "runc"),
            (include_str!("../../tools/aarch64.lock"), "qemu-user-static"),
            (
                include_str!("../../tools/chromium.lock"),
                "chromium-headless-shell",
            ),
            (include_str!("../../tools/prometheus.lock"), "prometheus"),
            (include_str!("../../tools/openmpi-4.lock"), "openmpi-bin"),
            (include_str!("../../tools/openmpi-5.lock"), "openmpi-bin"),
            (include_str!("../../tools/registry.lock"), "docker-registry"),
            (include_str!("../../tools/libfaketime.lock"), "libfaketime"),
            (include_str!("../../tools/wasm-rustc.lock"), "rustc"),
        ] {
            let packages = pinned(text).unwrap().packages;
            assert!(packages.iter().any(|package| package.name == wanted));
            for Package {
                name,
                version,
                sha256,
                ..
            } in packages
            {
                assert_eq!(sha256.len(), 64, "{name}");
                assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{name}");
            }
        }
    }

    #[test]
    fn an_epoch_is_escaped_in_the_file_name() {
        let pinned = pinned("libgmp10 2:6.2.1-1 amd64 abcd").unwrap();
        assert_eq!(
            pinned.packages[0].file_name(),
            "libgmp10_2%3a6.2.1-1_amd64.deb"
        );
    }

    #[test]
    fn lists_of_other_architectures_are_fetched_where_one_is_pinned() {
        let of = |text| {
            let pinned = pinned(text).unwrap();
            let found = pinned.architectures().into_iter().map(str::to_owned);
            found.collect::<Vec<_>>()
        };
        assert_eq!(of("x 1 all abcd\n"), ["amd64"]);
        assert_eq!(
            of("x 1 all abcd\nlibc6-dev 2 arm64 abcd\n"),
            ["amd64", "arm64"]
        );
    }

    #[test]
    fn other_bytes_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.deb");
        write(&file, "not a package").unwrap();
        let pinned = pinned("x 1 amd64 abcd").unwrap();
        let error = pinned
            .check(&pinned.packages[0], &file)
            .expect_err("other bytes");
        assert!(error.to_string().contains("the.lock names abcd"), "{error}");
    }
}
