//! The certificates of the webhooks and of the proxy's REST API: issued, stored in a Secret each,
//! and renewed. The CA of the webhooks is in the caBundles of their configurations.
//!
//! The operator is its own CA. Its key is in the Secret of the serving certificate, so that a
//! renewal keeps the CA. Whoever can read the Secret can pose as the server anyway.
//!
//! In a release of the chart one process issues and registers certificates, and has no other task.
//! The processes that read objects of users and call guests only read the Secrets.

pub mod ca_bundle;
pub mod clients;
pub mod issue;
pub mod names;
pub mod owner;
pub mod registration;
pub mod renewal;
pub mod secret;
pub mod served;
pub mod serving;
pub mod validity;
mod verification;

pub use names::service_names;

/// The issuer of a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Source {
    /// This process issues and renews it, unless the Secret exists and is not the operator's own.
    #[default]
    Made,
    /// An admin or cert-manager stores it in the Secret and renews it.
    Given,
    /// The process `ipu-operator certificates` issues and renews it. This process reads the Secret.
    Issued,
}

/// A serving certificate with its key and its CA, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificateBundle {
    /// The serving certificate, followed by its intermediate certificates.
    pub certificate: String,
    /// Its private key.
    pub key: String,
    /// The CA certificates for the caBundles. More than one during a change of the CA.
    pub ca_pem: String,
    /// Private key of the CA, if the operator issued it.
    pub ca_key: Option<String>,
}

impl std::fmt::Debug for CertificateBundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateBundle").finish_non_exhaustive()
    }
}
