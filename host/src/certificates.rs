//! The certificates of the webhooks and of the proxy's REST: made, kept in a Secret each, renewed,
//! and those of the webhooks told to the API server.
//!
//! The operator is its own authority. Its key stays in the Secret beside the serving certificate, so
//! that a renewal signs with the same authority and whom to trust does not change; whoever can read
//! the Secret could pose as the server anyway.

pub mod bundle;
pub mod decide;
pub mod issue;
pub mod keep;
pub mod owner;
pub mod register;
pub mod secret;
pub mod serving;

/// The DNS names by which an API server, or a person in the cluster, reaches a Service.
pub fn service_names(service: &str, namespace: &str) -> Vec<String> {
    // The first is the one that the API server asks for.
    vec![
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}.svc.cluster.local"),
        format!("{service}.{namespace}"),
        service.to_owned(),
    ]
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
