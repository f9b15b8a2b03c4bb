//! Pure: the versions of Kubernetes that the harness supports, and their names.

use std::str::FromStr;

/// The variable that names the version, as `1.35`.
pub const VARIABLE: &str = "IPU_OPERATOR_KUBERNETES";

/// A minor version of Kubernetes. Its `go.mod` pins the patch version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kubernetes {
    /// 1.35
    V1_35,
    /// 1.36
    V1_36,
    /// 1.37, the default.
    #[default]
    V1_37,
}

/// A version that the harness does not support.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{VARIABLE}={value} is not a pinned version of Kubernetes: set one of {}, or unset the variable for {}",
    Kubernetes::names(),
    Kubernetes::default().minor()
)]
pub struct UnknownKubernetes {
    /// The requested version.
    pub value: String,
}

impl Kubernetes {
    /// All versions, the oldest first.
    pub const ALL: [Self; 3] = [Self::V1_35, Self::V1_36, Self::V1_37];

    /// The version without its patch.
    pub const fn minor(self) -> &'static str {
        match self {
            Self::V1_35 => "1.35",
            Self::V1_36 => "1.36",
            Self::V1_37 => "1.37",
        }
    }

    /// The folder in `tests/tools` that pins its modules. `None` for the default version, which
    /// shares a folder with the other tools of a cluster.
    pub const fn older_pins(self) -> Option<&'static str> {
        match self {
            Self::V1_35 => Some("kubernetes-1.35"),
            Self::V1_36 => Some("kubernetes-1.36"),
            Self::V1_37 => None,
        }
    }

    /// Whether an API server with this `version` (such as `v1.35.4`) has this minor version.
    pub fn is(self, version: &str) -> bool {
        let version = version.strip_prefix('v').unwrap_or(version);
        let patch = version.strip_prefix(self.minor());
        patch.is_some_and(|patch| patch.starts_with('.'))
    }

    fn names() -> String {
        Self::ALL.map(Self::minor).join(", ")
    }
}

impl FromStr for Kubernetes {
    type Err = UnknownKubernetes;

    fn from_str(value: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|known| known.minor() == value);
        known.ok_or_else(|| UnknownKubernetes {
            value: value.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_is_asked_for_by_its_name() {
        for version in Kubernetes::ALL {
            assert_eq!(version.minor().parse(), Ok(version));
        }
    }

    #[test]
    fn the_error_of_an_unknown_version_lists_the_known_ones() {
        for value in ["1.34", "v1.35", "1.35.4", "latest"] {
            let error = value.parse::<Kubernetes>().unwrap_err().to_string();
            let expected = format!(
                "IPU_OPERATOR_KUBERNETES={value} is not a pinned version of Kubernetes: \
                 set one of 1.35, 1.36, 1.37, or unset the variable for 1.37"
            );
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn an_api_server_is_known_by_its_minor_version() {
        assert!(Kubernetes::V1_35.is("v1.35.4"));
        assert!(!Kubernetes::V1_35.is("v1.36.3"));
        assert!(!Kubernetes::V1_35.is("v1.350.0"));
    }
}
