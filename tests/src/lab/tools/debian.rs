//! Tools from Debian packages: downloaded by version, checked by SHA-256, unpacked into the cache.
//! Nothing is installed: apt runs with a state of its own and the packages' scripts never run.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use super::{ToolsError, stored};
use crate::lab::{
    command::{self, CommandError},
    files::{FileError, make_dir, read, remove, sha256, sha256_of, write},
    progress::Progress,
    settings::Settings,
};

/// Debian release that the packages and images are of.
const SUITE: &str = "bookworm";

/// Why a package could not be had.
#[derive(Debug, thiserror::Error)]
pub enum DebianError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A line of the lock file has not four words.
    #[error(
        "{}: line {line} is not `name version architecture sha256`", path.display()
    )]
    BadLock {
        /// The lock file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
    },
    /// apt does not know a mirror of the release.
    #[error(
        "apt knows no mirror of Debian {SUITE}: add one to /etc/apt/sources.list.d and run `apt-get update`"
    )]
    NoMirror,
    /// apt or dpkg failed.
    #[error("failed to {action}")]
    Command {
        /// What was tried.
        action: &'static str,
        /// What failed.
        #[source]
        source: CommandError,
    },
    /// The mirror has another version by now.
    #[error(
        "the Debian mirror no longer has {package} {version}: put the version that it has and its SHA-256 into tests/tools/{lock} (`apt-cache show {package}`)"
    )]
    Download {
        /// The lock file.
        lock: &'static str,
        /// Name of the package.
        package: String,
        /// The version that the lock file names.
        version: String,
        /// What apt said.
        #[source]
        source: Box<CommandError>,
    },
    /// The bytes are not those that were pinned.
    #[error(
        "{package} {version} has SHA-256 {actual}, but tests/tools/{lock} names {expected}: the download was changed on its way, or the lock file is wrong"
    )]
    Digest {
        /// The lock file.
        lock: &'static str,
        /// Name of the package.
        package: String,
        /// Its version.
        version: String,
        /// What the lock file says.
        expected: String,
        /// What was downloaded.
        actual: String,
    },
}

/// Lock file of the tools.
const TOOLS: &str = "debian.lock";

/// A line of the lock file.
#[derive(Debug, PartialEq, Eq)]
struct Package {
    name: String,
    version: String,
    architecture: String,
    sha256: String,
}

/// The folder into which the packages are unpacked, used as if it were `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    root: PathBuf,
}

impl Root {
    /// The root at this folder.
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// A path within the root.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The variables that make programs find the libraries and plug-ins beside them.
    pub fn env(&self) -> [(&'static str, PathBuf); 2] {
        let libraries = self.path("usr/lib/x86_64-linux-gnu");
        let xtables = libraries.join("xtables");
        [("LD_LIBRARY_PATH", libraries), ("XTABLES_LIBDIR", xtables)]
    }

    /// A command that runs a program of the packages.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.path(program));
        command.envs(self.env());
        command
    }
}

/// Sees to it that the packages are unpacked, and gives the folder that they are in.
pub fn ensure(settings: &Settings, progress: &Progress) -> Result<PathBuf, ToolsError> {
    let (lock, packages) = read_lock(settings, TOOLS)?;
    let inputs = sha256_of(&lock);
    let dir = settings.cache.join(format!("debian-{}", &inputs[..12]));
    if !stored::is_intact(&dir, &inputs) {
        stored::make(&dir, &inputs, |partial| {
            unpack(&packages, settings, progress, partial)
        })?;
    }
    Ok(dir.join("root"))
}

/// Downloads the packages of a lock file in `tests/tools` into the folder `debs`, and checks them.
/// Gives their files.
pub fn download(
    lock: &'static str,
    settings: &Settings,
    debs: &Path,
) -> Result<Vec<PathBuf>, DebianError> {
    let (_, packages) = read_lock(settings, lock)?;
    fetch(lock, &packages, settings, debs)
}

/// The text of a lock file in `tests/tools`, and its packages.
fn read_lock(settings: &Settings, lock: &str) -> Result<(String, Vec<Package>), DebianError> {
    let path = settings.tool_pins().join(lock);
    let text = read(&path)?;
    let packages = parse(&text).map_err(|line| DebianError::BadLock { path, line })?;
    Ok((text, packages))
}

fn fetch(
    lock: &'static str,
    packages: &[Package],
    settings: &Settings,
    debs: &Path,
) -> Result<Vec<PathBuf>, DebianError> {
    make_dir(debs)?;
    let apt = Apt::update(&settings.cache.join("apt"))?;
    apt.download(lock, packages, debs)?;
    let checked = packages.iter().map(|package| {
        let file = debs.join(package.file_name());
        package.check(lock, &file)?;
        Ok(file)
    });
    checked.collect()
}

/// The packages of a lock file, or the number of the first line that is wrong.
fn parse(lock: &str) -> Result<Vec<Package>, usize> {
    let lines = lock
        .lines()
        .enumerate()
        .map(|(i, line)| (i + 1, line.trim()));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, version, architecture, sha256] = words[..] else {
                return Err(number);
            };
            Ok(Package {
                name: name.to_owned(),
                version: version.to_owned(),
                architecture: architecture.to_owned(),
                sha256: sha256.to_owned(),
            })
        })
        .collect()
}

fn unpack(
    packages: &[Package],
    settings: &Settings,
    progress: &Progress,
    dir: &Path,
) -> Result<(), DebianError> {
    let debs = dir.join("debs");
    let root = dir.join("root");
    make_dir(&root)?;
    let what = format!("unpacked {} Debian packages", packages.len());
    progress.run(what, || -> Result<(), DebianError> {
        for file in fetch(TOOLS, packages, settings, &debs)? {
            let mut dpkg = Command::new("dpkg");
            dpkg.arg("-x").arg(&file).arg(&root);
            command::run(&mut dpkg).map_err(|source| DebianError::Command {
                action: "unpack a Debian package",
                source,
            })?;
        }
        Ok(())
    })?;
    Ok(remove(&debs)?)
}

impl Package {
    /// How apt is asked for exactly this package.
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

    fn check(&self, lock: &'static str, file: &Path) -> Result<(), DebianError> {
        let actual = sha256(file)?;
        if actual == self.sha256 {
            return Ok(());
        }
        Err(DebianError::Digest {
            lock,
            package: self.name.clone(),
            version: self.version.clone(),
            expected: self.sha256.clone(),
            actual,
        })
    }
}

/// An apt with a configuration, lists and a cache of its own.
struct Apt {
    config: PathBuf,
}

impl Apt {
    /// Sets apt up in `dir` and fetches the lists of the release.
    fn update(dir: &Path) -> Result<Self, DebianError> {
        for part in ["state/lists/partial", "cache/archives/partial"] {
            make_dir(&dir.join(part))?;
        }
        write(&dir.join("status"), "")?;
        let source = format!("deb {} {SUITE} main\n", mirror()?);
        write(&dir.join("sources.list"), source)?;
        let config = dir.join("apt.conf");
        write(&config, configuration(dir))?;
        let apt = Self { config };
        let mut update = apt.get(["-qq", "update"]);
        command::run(&mut update).map_err(|source| DebianError::Command {
            action: "fetch the package lists",
            source,
        })?;
        Ok(apt)
    }

    /// Downloads all packages. One call is much faster than one for each, because apt reads its
    /// lists once.
    fn download(
        &self,
        lock: &'static str,
        packages: &[Package],
        dir: &Path,
    ) -> Result<(), DebianError> {
        let mut download = self.get(["-qq", "download"]);
        download.args(packages.iter().map(Package::full_name));
        let Err(source) = command::run(download.current_dir(dir)) else {
            return Ok(());
        };
        // apt names only the first package that it does not have, and downloads none.
        let missing = packages.iter().find(|package| !self.has(package));
        Err(match missing {
            Some(package) => DebianError::Download {
                lock,
                package: package.name.clone(),
                version: package.version.clone(),
                source: Box::new(source),
            },
            None => DebianError::Command {
                action: "download the Debian packages",
                source,
            },
        })
    }

    /// Whether the mirror has this version.
    fn has(&self, package: &Package) -> bool {
        let mut show = Command::new("apt-cache");
        show.env("APT_CONFIG", &self.config)
            .args(["show", &package.full_name()]);
        command::run(&mut show).is_ok()
    }

    fn get<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new("apt-get");
        command.env("APT_CONFIG", &self.config).args(args);
        command
    }
}

fn configuration(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "Dir::State \"{dir}/state\";\n\
         Dir::State::status \"{dir}/status\";\n\
         Dir::Cache \"{dir}/cache\";\n\
         Dir::Etc::sourcelist \"{dir}/sources.list\";\n\
         Dir::Etc::sourceparts \"/dev/null\";\n\
         Dir::Etc::preferences \"/dev/null\";\n\
         Dir::Etc::preferencesparts \"/dev/null\";\n\
         APT::Architecture \"amd64\";\n\
         APT::Architectures {{ \"amd64\"; }};\n\
         APT::Sandbox::User \"root\";\n\
         Acquire::Languages \"none\";\n\
         Acquire::Retries \"3\";\n"
    )
}

/// The mirror that the machine itself uses for this release.
fn mirror() -> Result<String, DebianError> {
    let mut targets = Command::new("apt-get");
    targets
        .args(["indextargets", "--format"])
        .arg("$(REPO_URI) $(CODENAME) $(COMPONENT)")
        .arg("Created-By: Packages")
        .env_remove("APT_CONFIG");
    let printed = command::output(&mut targets).map_err(|source| DebianError::Command {
        action: "ask apt for its mirrors",
        source,
    })?;
    main_archive(&printed).ok_or(DebianError::NoMirror)
}

/// The archive of the release itself, not of its updates.
fn main_archive(targets: &str) -> Option<String> {
    let mut targets = targets.lines().map(|line| {
        let mut words = line.split_whitespace();
        (words.next(), words.next(), words.next())
    });
    targets
        .find(|(_, suite, component)| *suite == Some(SUITE) && *component == Some("main"))
        .and_then(|(uri, _, _)| uri.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_line_is_named_by_its_number() {
        let good = "# comment\n\nrunc 1.1.5+ds1-1 amd64 abcd\n";
        let packages = parse(good).unwrap();
        assert_eq!(packages.len(), 1);
        assert_eq!(packages[0].file_name(), "runc_1.1.5+ds1-1_amd64.deb");
        assert_eq!(parse("# comment\nrunc 1.1.5\n"), Err(2));
    }

    #[test]
    fn the_committed_locks_are_well_formed() {
        for (lock, wanted) in [
            (include_str!("../../../tools/debian.lock"), "runc"),
            (include_str!("../../../tools/openmpi.lock"), "openmpi-bin"),
        ] {
            let packages = parse(lock).unwrap();
            assert!(packages.iter().any(|package| package.name == wanted));
            for package in &packages {
                assert_eq!(package.sha256.len(), 64, "{}", package.name);
            }
        }
    }

    #[test]
    fn an_epoch_is_escaped_in_the_file_name() {
        let packages = parse("libgmp10 2:6.2.1-1 amd64 abcd").unwrap();
        assert_eq!(packages[0].file_name(), "libgmp10_2%3a6.2.1-1_amd64.deb");
    }

    #[test]
    fn the_mirror_is_that_of_the_release_itself() {
        let targets = "one bookworm-security main\ntwo bookworm contrib\nthree bookworm main\n";
        assert_eq!(main_archive(targets).as_deref(), Some("three"));
        assert_eq!(main_archive("x trixie main"), None);
    }

    #[test]
    fn other_bytes_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.deb");
        write(&file, "not a package").unwrap();
        let packages = parse("x 1 amd64 abcd").unwrap();
        let error = packages[0]
            .check("the.lock", &file)
            .expect_err("other bytes");
        assert!(error.to_string().contains("the.lock names abcd"), "{error}");
    }
}
