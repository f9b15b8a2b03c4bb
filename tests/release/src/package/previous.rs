//! The previous release, for tests of upgrades: some files of its archive in the repository, and
//! its package in the cache, which is built once from the commit that the lock file names.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cluster::command::{self, CommandError};
use cluster::files::{At, FileError, make_dir, read, sha256};
use cluster::lock::Lock;
use cluster::progress::Progress;
use cluster::settings::Settings;

use super::{Package, archive, name, sums};
use crate::cargo;

/// The lock file.
pub const LOCK: &str = "tests/releases/previous.lock";

/// Variables of this build that another commit does not know, or that would change its programs.
const OF_THIS_BUILD: [&str; 6] = [
    "CARGO_TARGET_DIR",
    "IPU_OPERATOR_KUBERNETES",
    "MAKEFLAGS",
    "RUSTFLAGS",
    "SOURCE_DATE_EPOCH",
    cargo::FLAGS,
];

/// Failure to provide the previous release.
#[derive(Debug, thiserror::Error)]
pub enum PreviousError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The lock file is malformed.
    #[error("{LOCK} must have exactly one line `version commit sha256`, besides comments")]
    Lock,
    /// The history of the checkout is incomplete.
    #[error(
        "this checkout has no commit {}, from which release {} is built: run `git fetch --unshallow`, or copy {}.tar.gz \
         of that release to {}",
        previous.commit, previous.version, name(&previous.version), folder.display()
    )]
    NoCommit {
        /// The locked release.
        previous: Box<Previous>,
        /// The folder of its archive in the cache.
        folder: PathBuf,
        /// Error of git.
        #[source]
        source: CommandError,
    },
    /// A command failed.
    #[error("failed to {action} of release {version}")]
    Command {
        /// The action.
        action: &'static str,
        /// Version of the release.
        version: String,
        /// The cause.
        #[source]
        source: CommandError,
    },
    /// An archive differs from the released one.
    #[error(
        "{} has SHA-256 {actual}, but {LOCK} names {expected}; files of the archive that differ: {names:?}",
        archive.display()
    )]
    Differs {
        /// The archive in the cache, or a new one.
        archive: PathBuf,
        /// Its digest.
        actual: String,
        /// The locked digest.
        expected: String,
        /// Files that differ from the released ones, are missing, or were added.
        names: Vec<String>,
    },
}

/// The release that the lock file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Previous {
    /// Its version.
    pub version: String,
    /// The commit that it was built from.
    commit: String,
    /// SHA-256 of its archive.
    sha256: String,
}

impl Previous {
    /// Reads the lock file of a checkout.
    pub fn locked(checkout: &Path) -> Result<Self, PreviousError> {
        Self::parse(&read(&checkout.join(LOCK))?).ok_or(PreviousError::Lock)
    }

    fn parse(lock: &str) -> Option<Self> {
        let lines = lock.lines().filter(|line| !line.starts_with('#'));
        let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
        let [version, commit, sha256] = words[..] else {
            return None;
        };
        Some(Self {
            version: version.to_owned(),
            commit: commit.to_owned(),
            sha256: sha256.to_owned(),
        })
    }

    /// The folder of a checkout with files of the archive: texts, at their paths in the archive.
    pub fn texts(&self, checkout: &Path) -> PathBuf {
        checkout.join("tests/releases").join(&self.version)
    }

    /// Returns its package. A package that is not in the cache is built: that takes as long as a
    /// release.
    pub fn ensure(
        &self,
        settings: &Settings,
        progress: &Progress,
    ) -> Result<Package, PreviousError> {
        let releases = settings.cache.join("releases");
        let _lock = Lock::take(&releases.with_extension("lock"))?;
        let folder = releases.join(format!("{}-{}", self.version, self.sha256));
        let archive = folder.join(format!("{}.tar.gz", name(&self.version)));
        if archive.is_file() {
            self.verify(&archive, &settings.checkout)?;
        } else {
            self.require_commit(&settings.checkout, &folder)?;
            let what = format!("built release {} from its commit", self.version);
            progress.run(what, || self.build(&settings.checkout, &archive))?;
        }
        Ok(Package {
            archive,
            version: self.version.clone(),
        })
    }

    /// Checks that the history of the checkout contains the commit.
    fn require_commit(&self, checkout: &Path, folder: &Path) -> Result<(), PreviousError> {
        let mut git = Command::new("git");
        git.args(["cat-file", "-e", &format!("{}^{{commit}}", self.commit)]);
        command::run(git.current_dir(checkout)).map_err(|source| PreviousError::NoCommit {
            previous: Box::new(self.clone()),
            folder: folder.to_owned(),
            source,
        })
    }

    /// Builds the release in a clone with the Makefile of its commit, and stores the archive if its
    /// bytes are the released ones.
    fn build(&self, checkout: &Path, archive: &Path) -> Result<(), PreviousError> {
        let scratch = tempfile::tempdir().at("make a folder in", &env::temp_dir())?;
        let clone = scratch.path().join("clone");
        let mut git = Command::new("git");
        git.args(["clone", "--quiet", "--no-checkout"])
            .args([checkout, &clone]);
        self.run("clone the history", &mut git)?;
        let mut git = Command::new("git");
        git.args(["checkout", "--quiet", "--detach", &self.commit]);
        self.run("check out the commit", git.current_dir(&clone))?;
        let mut make = cargo::clean("make");
        for variable in OF_THIS_BUILD {
            make.env_remove(variable);
        }
        self.run("build the archive", make.arg("release").current_dir(&clone))?;
        let file = format!("{}.tar.gz", name(&self.version));
        let built = clone.join("dist/release").join(file);
        self.verify(&built, checkout)?;
        let partial = archive.with_extension("partial");
        make_dir(archive.parent().unwrap_or(archive))?;
        fs::copy(&built, &partial).at("write", &partial)?;
        Ok(fs::rename(&partial, archive).at("write", archive)?)
    }

    fn run(&self, action: &'static str, command: &mut Command) -> Result<(), PreviousError> {
        command::run(command).map_err(|source| PreviousError::Command {
            action,
            version: self.version.clone(),
            source,
        })
    }

    /// Checks that an archive has the released bytes. The error names its files that differ.
    fn verify(&self, archive: &Path, checkout: &Path) -> Result<(), PreviousError> {
        let actual = sha256(archive)?;
        if actual == self.sha256 {
            return Ok(());
        }
        let unpacked = tempfile::tempdir().at("make a folder in", &env::temp_dir())?;
        archive::unpack(archive, unpacked.path())?;
        let released = read(&self.texts(checkout).join(sums::NAME))?;
        let found = unpacked.path().join(name(&self.version)).join(sums::NAME);
        Err(PreviousError::Differs {
            archive: archive.to_owned(),
            actual,
            expected: self.sha256.clone(),
            names: sums::differing(&released, &read(&found)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use cluster::files::{sha256_of, write};
    use cluster::kubernetes::Kubernetes;

    use super::*;

    /// The archive of a release with one file.
    fn packed(content: &str) -> Vec<u8> {
        let file = ("file".to_owned(), content.as_bytes().to_vec());
        let mut files = archive::Files::from([file]);
        files.insert(sums::NAME.to_owned(), sums::list(&files));
        archive::tar_gz(&files, "ipu-operator-0.0.1/", 7).unwrap()
    }

    /// A repository whose `make release` copies an archive, and the lock of that release.
    struct Project {
        folder: tempfile::TempDir,
        settings: Settings,
        previous: Previous,
    }

    impl Project {
        fn new(built: &[u8], released: &[u8]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let checkout = folder.path().join("checkout");
            make_dir(&checkout).unwrap();
            write(&checkout.join("built.tar.gz"), built).unwrap();
            let make = "release:\n\tmkdir -p dist/release\n\
                        \tcp built.tar.gz dist/release/ipu-operator-0.0.1.tar.gz\n";
            write(&checkout.join("Makefile"), make).unwrap();
            let git = |words: &str| {
                let mut git = Command::new("git");
                git.args(["-c", "user.name=a", "-c", "user.email=a@example.com"]);
                git.args(words.split(' ')).current_dir(&checkout);
                command::output(&mut git).unwrap().trim().to_owned()
            };
            git("init --quiet");
            git("add .");
            git("commit --quiet --message release");
            let previous = Previous {
                version: "0.0.1".to_owned(),
                commit: git("rev-parse HEAD"),
                sha256: sha256_of(released),
            };
            // The commits after the release have other commands.
            git("rm --quiet Makefile built.tar.gz");
            git("commit --quiet --message later");
            let texts = previous.texts(&checkout);
            make_dir(&texts).unwrap();
            let sums = sums::list(&archive::Files::from([("file".to_owned(), b"a".to_vec())]));
            write(&texts.join(sums::NAME), sums).unwrap();
            let settings = Settings {
                cache: folder.path().join("cache"),
                run: folder.path().join("run"),
                checkout,
                kubernetes: Kubernetes::default(),
                has_oldest_kubelet: false,
            };
            Self {
                folder,
                settings,
                previous,
            }
        }

        fn ensure(&self) -> Result<Package, PreviousError> {
            self.previous.ensure(&self.settings, &Progress::start())
        }
    }

    #[test]
    fn a_missing_archive_is_built_once_from_the_locked_commit() {
        let project = Project::new(&packed("a"), &packed("a"));
        let package = project.ensure().unwrap();
        assert_eq!(fs::read(&package.archive).unwrap(), packed("a"));
        let unpacked = package.unpack(&project.folder.path().join("unpacked"));
        assert_eq!(read(&unpacked.unwrap().folder.join("file")).unwrap(), "a");
        fs::remove_dir_all(project.settings.checkout.join(".git")).unwrap();
        assert_eq!(project.ensure().unwrap(), package);
    }

    #[test]
    fn an_archive_with_other_bytes_is_rejected_with_the_names_of_its_files() {
        let project = Project::new(&packed("b"), &packed("a"));
        let error = project.ensure().unwrap_err();
        let PreviousError::Differs { names, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(*names, ["file"]);
        let folder = format!("releases/0.0.1-{}", sha256_of(packed("a")));
        let folder = project.settings.cache.join(folder);
        assert!(!folder.exists(), "the archive was stored");
        make_dir(&folder).unwrap();
        write(&folder.join("ipu-operator-0.0.1.tar.gz"), packed("b")).unwrap();
        let error = project.ensure().unwrap_err().to_string();
        assert!(error.ends_with(r#"that differ: ["file"]"#), "{error}");
    }

    #[test]
    fn a_clone_without_the_commit_is_reported_with_the_remedy() {
        let mut project = Project::new(&packed("a"), &packed("a"));
        project.previous.commit = "0".repeat(40);
        let error = project.ensure().unwrap_err();
        assert!(error.source().is_some());
        let error = error.to_string();
        assert!(error.contains("git fetch --unshallow"), "{error}");
        assert!(error.contains("copy ipu-operator-0.0.1.tar.gz"), "{error}");
    }

    #[test]
    fn the_lock_has_one_line_of_three_words() {
        let previous = Previous::parse("# a comment\n0.0.1 abc def\n").unwrap();
        assert_eq!(previous.version, "0.0.1");
        assert_eq!(
            (previous.commit.as_str(), previous.sha256.as_str()),
            ("abc", "def")
        );
        for lock in ["", "# 0.0.1 abc def", "0.0.1 abc", "0.0.1 a b\n0.0.2 c d"] {
            assert_eq!(Previous::parse(lock), None, "{lock:?}");
        }
    }
}
