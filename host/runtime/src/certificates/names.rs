//! Pure: the DNS names of a Service, which its certificate must contain.

use std::fmt;
use std::str::FromStr;

use ipu_api::dns1123::is_subdomain;

use super::Source;

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

/// The DNS names that the certificate of a Service must contain. The API server uses the first one, and a certificate
/// that this process does not issue needs no other. One that it issues contains every name that clients in the cluster
/// can use.
pub fn service_names(
    source: Source,
    service: &str,
    namespace: &str,
    domain: &ClusterDomain,
) -> Vec<String> {
    let first = format!("{service}.{namespace}.svc");
    if source != Source::Made {
        return vec![first];
    }
    let full = format!("{first}.{domain}");
    let short = format!("{service}.{namespace}");
    vec![first, full, short, service.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::{ClusterDomain, NotADomain, Source, service_names};

    #[test]
    fn a_certificate_of_the_operator_contains_the_domain_of_the_cluster() {
        let domain = "k8s.example.com".parse().unwrap();
        assert_eq!(
            service_names(Source::Made, "ipu-webhook-svc", "ipu", &domain),
            [
                "ipu-webhook-svc.ipu.svc",
                "ipu-webhook-svc.ipu.svc.k8s.example.com",
                "ipu-webhook-svc.ipu",
                "ipu-webhook-svc",
            ]
        );
        let given = service_names(Source::Given, "ipu-webhook-svc", "ipu", &domain);
        assert_eq!(given, ["ipu-webhook-svc.ipu.svc"]);
    }

    #[test]
    fn the_domain_is_that_of_most_clusters_by_default() {
        assert_eq!(ClusterDomain::default().to_string(), "cluster.local");
    }

    #[test]
    fn what_is_no_domain_is_refused() {
        for text in ["", "cluster.local.", "Cluster.local", "a..b", "-a"] {
            let refused = text.parse::<ClusterDomain>();
            assert_eq!(refused, Err(NotADomain(text.to_owned())), "{text:?}");
        }
    }
}
