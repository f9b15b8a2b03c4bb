//! The folders that the harness may use (the cache, the run folder and the checkout), and its
//! version of Kubernetes.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::kubernetes::{self, Kubernetes, UnknownKubernetes};

/// The settings of the harness. It writes only to its folders, except for the network devices,
/// routes, cgroups and mount points of the cluster, which `down` removes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Programs and images, kept between runs, keyed by version.
    pub cache: PathBuf,
    /// Files of the running cluster: state, certificates, logs.
    pub run: PathBuf,
    /// The repository.
    pub checkout: PathBuf,
    /// The version of its clusters and control planes.
    pub kubernetes: Kubernetes,
    /// Whether nodes have the oldest kubelet that may run below this API server.
    pub has_oldest_kubelet: bool,
}

/// Error of the settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Neither HOME nor the variables for both folders are set.
    #[error(
        "HOME is not set: set it, or set IPU_OPERATOR_CACHE and IPU_OPERATOR_RUN to folders that may be written"
    )]
    NoHome,
    /// The path of a folder is relative, so daemons cannot use it.
    #[error("{variable}={} is not an absolute path: give one that starts with /", .value.display())]
    Relative {
        /// The environment variable.
        variable: &'static str,
        /// Its value.
        value: PathBuf,
    },
    /// The run folder is in a folder on which nodes mount their own file systems.
    #[error(
        "the run folder {} lies in {hidden}, which each node replaces by its own: set IPU_OPERATOR_RUN to another folder", .run.display()
    )]
    Hidden {
        /// The run folder.
        run: PathBuf,
        /// The folder that nodes mount over.
        hidden: &'static str,
    },
    /// The requested version of Kubernetes is not available.
    #[error(transparent)]
    Kubernetes(#[from] UnknownKubernetes),
}

/// The variable that gives the nodes another kubelet: `oldest`, which is three minor versions older
/// than the API server.
const KUBELET: &str = "IPU_OPERATOR_KUBELET";

/// Folders on which a node mounts other file systems, so the harness's folders must be outside of
/// them.
const HIDDEN_IN_NODES: [&str; 5] = [
    "/run",
    "/var/run",
    "/var/lib/kubelet",
    "/var/lib/cni",
    "/var/log",
];

impl Settings {
    /// Reads `IPU_OPERATOR_CACHE`, `IPU_OPERATOR_RUN`, `IPU_OPERATOR_KUBERNETES`,
    /// `IPU_OPERATOR_KUBELET` and `HOME`.
    pub fn from_env() -> Result<Self, SettingsError> {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let folders = Self::new(
            variable("IPU_OPERATOR_CACHE"),
            variable("IPU_OPERATOR_RUN"),
            variable("HOME"),
        )?;
        let asked_for = std::env::var_os(kubernetes::VARIABLE);
        Ok(Self {
            kubernetes: version(asked_for.as_deref())?,
            has_oldest_kubelet: std::env::var_os(KUBELET)
                .is_some_and(|kubelet| kubelet == "oldest"),
            ..folders
        })
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
        Ok(Self {
            cache,
            run,
            checkout: checkout().to_owned(),
            kubernetes: Kubernetes::default(),
            has_oldest_kubelet: false,
        })
    }

    /// Folder of the logs of everything that runs. It is kept by `down`.
    pub fn logs(&self) -> PathBuf {
        self.run.join("logs")
    }

    /// The folder of the pinned versions of the tools.
    pub fn tool_pins(&self) -> PathBuf {
        self.checkout.join("tests/tools")
    }
}

/// The folder for downloads and built tools, which is kept between builds.
pub fn cache() -> Result<PathBuf, SettingsError> {
    Settings::from_env().map(|settings| settings.cache)
}

/// The top folder of the repository.
pub fn checkout() -> &'static Path {
    let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    // This package is `tests/provision`.
    manifest_dir.ancestors().nth(2).unwrap_or(manifest_dir)
}

/// The requested version of Kubernetes. An empty variable counts as unset, because shells pass
/// unset variables on as empty ones.
fn version(asked_for: Option<&OsStr>) -> Result<Kubernetes, UnknownKubernetes> {
    match asked_for {
        Some(value) if !value.is_empty() => value.to_string_lossy().parse(),
        _ => Ok(Kubernetes::default()),
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
    fn kubernetes_is_the_default_unless_another_is_asked_for() {
        let version = |value: Option<&str>| version(value.map(OsStr::new));
        assert_eq!(version(None), Ok(Kubernetes::V1_37));
        assert_eq!(version(Some("")), Ok(Kubernetes::V1_37));
        assert_eq!(version(Some("1.35")), Ok(Kubernetes::V1_35));
        assert!(version(Some("1.29")).is_err());
    }

    #[test]
    fn folders_that_cannot_work_are_refused() {
        let cases: [(Option<&str>, Option<&str>, &str); 4] = [
            (None, None, "HOME is not set"),
            (Some("cache"), None, "IPU_OPERATOR_CACHE=cache is not"),
            (Some("/c"), Some("r"), "IPU_OPERATOR_RUN=r is not"),
            (Some("/c"), Some("/run/harness"), "lies in /run"),
        ];
        for (cache, run, expected) in cases {
            let error = Settings::new(cache.map(Into::into), run.map(Into::into), None)
                .expect_err(expected);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
