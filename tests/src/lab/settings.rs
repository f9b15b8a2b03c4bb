//! Which folders the lab may use: the cache, the run folder and the checkout.

use std::path::{Path, PathBuf};

/// The folders of the lab. Nothing outside of them is written, but for the network devices,
/// routes, cgroups and mount points of the cluster, which `down` removes again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Programs and images, kept between runs, keyed by version.
    pub cache: PathBuf,
    /// What belongs to the running cluster: state, certificates, logs.
    pub run: PathBuf,
    /// The repository.
    pub checkout: PathBuf,
}

/// Why the folders are not known.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Neither HOME nor the variables for both folders are set.
    #[error(
        "HOME is not set: set it, or set IPU_OPERATOR_CACHE and IPU_OPERATOR_RUN to folders that may be written"
    )]
    NoHome,
    /// A folder was given by a relative path, which daemons could not use.
    #[error("{variable}={} is not an absolute path: give one that starts with /", .value.display())]
    Relative {
        /// The environment variable.
        variable: &'static str,
        /// Its value.
        value: PathBuf,
    },
    /// The run folder lies where the nodes put file systems of their own.
    #[error(
        "the run folder {} lies in {hidden}, which each node replaces by its own: set IPU_OPERATOR_RUN to another folder", .run.display()
    )]
    Hidden {
        /// The run folder.
        run: PathBuf,
        /// The folder that nodes mount over.
        hidden: &'static str,
    },
}

/// Folders that a node mounts something else over, so that nothing of ours may lie in them.
const HIDDEN_IN_NODES: [&str; 5] = [
    "/run",
    "/var/run",
    "/var/lib/kubelet",
    "/var/lib/cni",
    "/var/log",
];

impl Settings {
    /// Reads `IPU_OPERATOR_CACHE`, `IPU_OPERATOR_RUN` and `HOME`.
    pub fn from_env() -> Result<Self, SettingsError> {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
        Self::new(
            variable("IPU_OPERATOR_CACHE"),
            variable("IPU_OPERATOR_RUN"),
            variable("HOME"),
        )
    }

    fn new(
        cache: Option<PathBuf>,
        run: Option<PathBuf>,
        home: Option<PathBuf>,
    ) -> Result<Self, SettingsError> {
        let home = home.map(|home| home.join(".cache/ipu-operator"));
        let cache = cache.or(home).ok_or(SettingsError::NoHome)?;
        let run = run.unwrap_or_else(|| cache.join("run"));
        absolute("IPU_OPERATOR_CACHE", &cache)?;
        absolute("IPU_OPERATOR_RUN", &run)?;
        if let Some(hidden) = HIDDEN_IN_NODES.iter().find(|dir| run.starts_with(dir)) {
            return Err(SettingsError::Hidden { run, hidden });
        }
        let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        let checkout = manifest_dir.parent().unwrap_or(manifest_dir).to_owned();
        Ok(Self {
            cache,
            run,
            checkout,
        })
    }

    /// Folder of the logs of everything that runs. It is kept by `down`.
    pub fn logs(&self) -> PathBuf {
        self.run.join("logs")
    }

    /// Where the pinned versions of the tools stand.
    pub fn tool_pins(&self) -> PathBuf {
        self.checkout.join("tests/tools")
    }
}

fn absolute(variable: &'static str, value: &Path) -> Result<(), SettingsError> {
    if value.is_absolute() {
        return Ok(());
    }
    Err(SettingsError::Relative {
        variable,
        value: value.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_folder_lies_in_the_cache_unless_it_is_given() {
        let settings = Settings::new(None, None, Some("/home/ann".into())).unwrap();
        assert_eq!(settings.run, Path::new("/home/ann/.cache/ipu-operator/run"));
        let settings = Settings::new(Some("/c".into()), Some("/r".into()), None).unwrap();
        assert_eq!((settings.cache, settings.run), ("/c".into(), "/r".into()));
    }

    #[test]
    fn folders_that_cannot_work_are_refused() {
        let cases: [(Option<&str>, Option<&str>, &str); 4] = [
            (None, None, "HOME is not set"),
            (Some("cache"), None, "IPU_OPERATOR_CACHE=cache is not"),
            (Some("/c"), Some("r"), "IPU_OPERATOR_RUN=r is not"),
            (Some("/c"), Some("/run/lab"), "lies in /run"),
        ];
        for (cache, run, expected) in cases {
            let error = Settings::new(cache.map(Into::into), run.map(Into::into), None)
                .expect_err(expected);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
