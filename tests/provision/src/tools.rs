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
    /// Builds the missing tools of a cluster.
    pub fn of_cluster(settings: &Settings, progress: &Progress) -> Result<Self, ToolsError> {
        let mut names = go::OF_CLUSTER.to_vec();
        names.extend(settings.has_oldest_kubelet.then_some(go::OLDEST_KUBELET));
        let tools = Self::fetch_some(settings, progress, &names)?;
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
        Self::fetch_counted(settings, progress, names, &|_| {})
    }

    /// The same. `compiled` receives the import path of each package that Go compiles.
    pub fn fetch_counted(
        settings: &Settings,
        progress: &Progress,
        names: &[&str],
        compiled: &(dyn Fn(&str) + Sync),
    ) -> Result<Self, ToolsError> {
        let tools = named(names);
        let dirs = go::ensure(&tools, settings, progress, compiled)?;
        let found = tools.iter().zip(&dirs).flat_map(|(tool, dir)| {
            let programs = tool.programs.iter();
            programs.map(|program| (program.name, dir.join(program.name)))
        });
        Ok(Self {
            go: found.collect(),
            debian: None,
        })
    }

    /// The number of Go packages that are compiled for the missing ones of these tools if Go's own
    /// cache is empty.
    pub fn count_packages(settings: &Settings, names: &[&str]) -> Result<usize, ToolsError> {
        go::count_packages(&named(names), settings)
    }

    /// The folder with the sources of a tool, by its name.
    ///
    /// # Panics
    /// Panics for a name that is not pinned, which is a mistake in the caller.
    pub fn source(settings: &Settings, name: &str) -> Result<PathBuf, ToolsError> {
        go::source(settings, the_tool(name))
    }

    /// The pinned version of a tool, without a leading `v`.
    ///
    /// # Panics
    /// Panics for a name that is not pinned, which is a mistake in the caller.
    pub fn version(settings: &Settings, name: &str) -> Result<String, ToolsError> {
        let tool = the_tool(name);
        go::version(tool, &tool.pins(settings))
    }

    /// Path of a program that was built.
    ///
    /// # Panics
    /// Panics for a name that was not fetched, which is a mistake in the caller.
    pub fn program(&self, name: &str) -> &Path {
        let found = self.go.iter().find(|(program, _)| *program == name);
        &found.expect("callers request only fetched programs").1
    }

    /// Path of the nodes' kubelet.
    pub fn kubelet(&self) -> &Path {
        let mut oldest = self.go.iter();
        match oldest.find(|(program, _)| *program == go::OLDEST_KUBELET) {
            Some((_, path)) => path,
            None => self.program("kubelet"),
        }
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

fn named(names: &[&str]) -> Vec<&'static go::GoTool> {
    let tools = go::TOOLS.iter();
    tools.filter(|tool| names.contains(&tool.name)).collect()
}

fn the_tool(name: &str) -> &'static go::GoTool {
    let mut tools = go::TOOLS.iter();
    tools
        .find(|tool| tool.name == name)
        .expect("callers request only pinned tools")
}
