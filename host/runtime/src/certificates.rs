//! The certificates of the webhooks and of the proxy's REST: made, kept in a Secret each, renewed,
//! and those of the webhooks told to the API server.
//!
//! The operator is its own authority. Its key stays in the Secret beside the serving certificate, so
//! that a renewal signs with the same authority and whom to trust does not change; whoever can read
//! the Secret could pose as the server anyway.

pub mod bundle;
pub mod clients;
pub mod decide;
pub mod issue;
pub mod keep;
pub mod names;
pub mod owner;
pub mod register;
pub mod secret;
pub mod serving;

pub use names::{ClusterDomain, service_names};

/// Who makes a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Source {
    /// The operator makes and renews it, unless somebody else's Secret of the name is there already.
    #[default]
    Made,
    /// Somebody else puts it into the Secret and renews it: an admin, or cert-manager.
    Given,
}

/// A certificate that serves, and what is needed to trust and to renew it. All of it is PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// The serving certificate, followed by those between it and the authority, if any.
    pub certificate: String,
    /// Its private key.
    pub key: String,
    /// The authorities to trust: what goes into the caBundles. More than one while they change.
    pub authorities: String,
    /// Private key of the authority, where it is ours.
    pub authority_key: Option<String>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}
