//! The programs of a cluster: pinned, built or unpacked once, and checked before each use.

use std::path::{Path, PathBuf};

pub mod debian;
pub mod go;
pub mod stored;

use crate::debian::DebianError;
use crate::{command::CommandError, files::FileError, progress::Progress, settings::Settings};

/// Failure to provide a tool.
#[derive(Debug, thiserror::Error)]
pub enum ToolsError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A build or download failed.
    #[error("failed to make {tool}")]
    Make {
        /// Name of the tool.
        tool: String,
        /// The cause.
        #[source]
        source: CommandError,
    },
    /// `tests/tools/<tool>/go.mod` does not contain the version.
    #[error("{} does not require {module}: add a line `require {module} v<version>`", path.display())]
    NotPinned {
        /// The file.
        path: PathBuf,
        /// The module that it should require.
        module: &'static str,
    },
    /// The Debian packages are not available.
    #[error(transparent)]
    Debian(#[from] DebianError),
}

/// Paths of the programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tools {
    go: Vec<(&'static str, PathBuf)>,
    debian: Option<PathBuf>,
}

impl Tools {
    /// Builds the missing tools of the tests.
    pub fn fetch(settings: &Settings, progress: &Progress) -> Result<Self, ToolsError> {
        let tools = Self::fetch_some(settings, progress, &go::of_tests())?;
        tools.with_debian(settings, progress)
    }

    /// Builds the missing tools of a cluster.
    pub fn of_cluster(settings: &Settings, progress: &Progress) -> Result<Self, ToolsError> {
        let tools = Self::fetch_some(settings, progress, &go::OF_CLUSTER)?;
        tools.with_debian(settings, progress)
    }

    /// Builds the missing tools that make images.
    pub fn of_images(settings: &Settings, progress: &Progress) -> Result<Self, ToolsError> {
        Self::fetch_some(settings, progress, &[])?.with_debian(settings, progress)
    }

    fn with_debian(self, settings: &Settings, progress: &Progress) -> Result<Self, ToolsError> {
        Ok(Self {
            debian: Some(debian::ensure(settings, progress)?),
            ..self
        })
    }

    /// Builds the missing ones of these Go tools.
    pub fn fetch_some(
        settings: &Settings,
        progress: &Progress,
        names: &[&str],
    ) -> Result<Self, ToolsError> {
        let mut go = Vec::new();
        for tool in go::TOOLS.iter().filter(|tool| names.contains(&tool.folder)) {
            let dir = go::ensure(tool, settings, progress)?;
            let programs = tool.programs.iter();
            go.extend(programs.map(|program| (program.name, dir.join(program.name))));
        }
        Ok(Self { go, debian: None })
    }

    /// The folder with the sources of a tool, by its folder in `tests/tools`.
    ///
    /// # Panics
    /// Panics for a name that is not pinned, which is a mistake in the caller.
    pub fn source(settings: &Settings, folder: &str) -> Result<PathBuf, ToolsError> {
        let mut tools = go::TOOLS.iter();
        let tool = tools.find(|tool| tool.folder == folder);
        go::source(settings, tool.expect("callers request only pinned tools"))
    }

    /// Path of a program that was built.
    ///
    /// # Panics
    /// Panics for a name that was not fetched, which is a mistake in the caller.
    pub fn program(&self, name: &str) -> &Path {
        let found = self.go.iter().find(|(program, _)| *program == name);
        &found.expect("callers request only fetched programs").1
    }

    /// Name and path of every program that was built.
    pub fn programs(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        self.go.iter().map(|(name, path)| (*name, path.as_path()))
    }

    /// Root of the unpacked Debian packages.
    ///
    /// # Panics
    /// Panics where only Go tools were fetched, which is a mistake in the caller.
    pub fn debian(&self) -> debian::Root {
        let root = self
            .debian
            .clone()
            .expect("the Debian packages were fetched");
        debian::Root::new(root)
    }
}
