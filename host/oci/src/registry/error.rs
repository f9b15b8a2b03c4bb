//! Pure: errors of registries.

use http::StatusCode;

use crate::http::HttpError;
use crate::tls::CaError;

/// Failure of a request to a registry.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The CA certificates are invalid.
    #[error(
        "the CAs for {0} (spec.module.oci.certificateAuthorities of an IPUPolicy, or --ca-file) \
         cannot be used; give certificates in PEM"
    )]
    Ca(String, #[source] CaError),
    /// There is no connection, or no complete response.
    #[error("{host} gave no answer to the request for {what}")]
    Unreachable {
        /// Host of the registry.
        host: String,
        /// The requested object.
        what: String,
        /// The cause.
        #[source]
        source: HttpError,
    },
    /// Credentials are missing or insufficient.
    #[error("{host} denies {who} access to {what}{detail}; check the credentials and their rights")]
    Forbidden {
        /// Host of the registry.
        host: String,
        /// The user.
        who: String,
        /// The requested object.
        what: String,
        /// The message of the registry.
        detail: String,
    },
    /// The object does not exist.
    #[error("{host} does not have {what}{detail}; check spelling and rights, or push it")]
    Absent {
        /// Host of the registry.
        host: String,
        /// The requested object.
        what: String,
        /// The message of the registry.
        detail: String,
    },
    /// The registry responded with an unexpected status.
    #[error("{host} answered {status} to the request for {what}{detail}")]
    Status {
        /// Host of the registry.
        host: String,
        /// The status.
        status: StatusCode,
        /// The requested object.
        what: String,
        /// The message of the registry.
        detail: String,
    },
    /// The response exceeds its size limit.
    #[error(
        "the answer of {host} to the request for {what} is too large: the operator reads at most {limit} bytes"
    )]
    TooLarge {
        /// Host of the registry.
        host: String,
        /// The requested object.
        what: String,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The digest of the response is wrong.
    #[error(
        "{host} answers with {found}, but {wanted} was requested as {what}: the registry, or a proxy before it, \
         changes its content"
    )]
    Digest {
        /// Host of the registry.
        host: String,
        /// The requested object.
        what: String,
        /// The requested digest.
        wanted: String,
        /// The digest of the response.
        found: String,
    },
    /// The authentication scheme is not supported.
    #[error(
        "{0} requires an authentication scheme other than Basic and Bearer; the operator supports only these two"
    )]
    Challenge(String),
    /// The address of the token server is not secure.
    #[error(
        "{host} names the token server {realm:?}; the operator sends credentials over https only"
    )]
    Realm {
        /// Host of the registry.
        host: String,
        /// The address of the token server.
        realm: String,
    },
    /// The response of the token server has no token.
    #[error("the answer of the token server of {0} contains no token")]
    Token(String),
    /// The registry gives no address for an upload.
    #[error("the answer of {host} contains no address for {what}")]
    Location {
        /// Host of the registry.
        host: String,
        /// The object to upload.
        what: String,
    },
}

impl RegistryError {
    /// Whether the object or the list does not exist.
    pub fn is_absence(&self) -> bool {
        match self {
            Self::Absent { .. } => true,
            Self::Status { status, .. } => matches!(
                *status,
                StatusCode::BAD_REQUEST
                    | StatusCode::METHOD_NOT_ALLOWED
                    | StatusCode::NOT_ACCEPTABLE
                    | StatusCode::NOT_IMPLEMENTED
            ),
            _ => false,
        }
    }

    /// Whether the object may not exist, or the user may not see it.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Forbidden { .. } => true,
            Self::Status { status, .. } => *status == StatusCode::METHOD_NOT_ALLOWED,
            _ => false,
        }
    }
}
