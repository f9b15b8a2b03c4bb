//! Pure: the DNS domain of a cluster.

use std::fmt;
use std::str::FromStr;

use ipu_api::dns1123::is_subdomain;

/// The DNS domain of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterDomain(String);

impl Default for ClusterDomain {
    fn default() -> Self {
        Self("cluster.local".to_owned())
    }
}

/// The text is no DNS domain.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a DNS domain: write lowercase letters, digits, '-' and '.', such as cluster.local"
)]
pub struct NotADomain(String);

impl FromStr for ClusterDomain {
    type Err = NotADomain;

    fn from_str(text: &str) -> Result<Self, NotADomain> {
        if is_subdomain(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotADomain(text.to_owned()))
        }
    }
}

impl fmt::Display for ClusterDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::{ClusterDomain, NotADomain};

    #[test]
    fn the_domain_is_that_of_most_clusters_by_default() {
        assert_eq!(ClusterDomain::default().to_string(), "cluster.local");
    }

    #[test]
    fn an_invalid_domain_is_refused() {
        for text in ["", "cluster.local.", "Cluster.local", "a..b", "-a"] {
            let refused = text.parse::<ClusterDomain>();
            assert_eq!(refused, Err(NotADomain(text.to_owned())), "{text:?}");
        }
    }
}
