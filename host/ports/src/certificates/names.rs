//! Pure: the DNS names of a Service, which its certificate must contain.

use ipu_runtime::cluster_domain::ClusterDomain;

use super::Source;

/// The DNS names that the certificate of a Service must contain. The API server uses the first one,
/// and a certificate that this process does not issue needs no other. One that it issues contains
/// every name that clients in the cluster can use.
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
    use super::{Source, service_names};

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
}
