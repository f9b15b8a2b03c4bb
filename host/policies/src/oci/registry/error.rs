//! Why a registry does not give or take what it should.

use http::StatusCode;

use crate::oci::http::HttpError;
use crate::oci::tls::AuthorityError;

/// Why a registry does not give or take what it should.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The authorities cannot be used.
    #[error(
        "the CAs for {host} (spec.module.oci.certificateAuthorities of an IPUPolicy, or --ca-file) \
         cannot be used; give certificates in PEM"
    )]
    Authorities {
        /// Host of the registry.
        host: String,
        /// Why.
        #[source]
        source: AuthorityError,
    },
    /// There is no connection, or no whole answer.
    #[error("{host} gave no answer to the request for {what}")]
    Unreachable {
        /// Host of the registry.
        host: String,
        /// What was asked for.
        what: String,
        /// Why.
        #[source]
        source: HttpError,
    },
    /// Credentials are missing or do not suffice.
    #[error("{host} does not let {who} have {what}{told}; check the credentials and their rights")]
    Forbidden {
        /// Host of the registry.
        host: String,
        /// Who asked.
        who: String,
        /// What was asked for.
        what: String,
        /// The registry's own words.
        told: String,
    },
    /// The registry does not have it.
    #[error("{host} does not have {what}{told}; check spelling and rights, or push it")]
    Absent {
        /// Host of the registry.
        host: String,
        /// What was asked for.
        what: String,
        /// The registry's own words.
        told: String,
    },
    /// Another answer than what was asked for.
    #[error("{host} answered {status} to the request for {what}{told}")]
    Status {
        /// Host of the registry.
        host: String,
        /// The status.
        status: StatusCode,
        /// What was asked for.
        what: String,
        /// The registry's own words.
        told: String,
    },
    /// More than is read.
    #[error("{host} answers with more than {limit} bytes for {what}, and no more are read")]
    TooLarge {
        /// Host of the registry.
        host: String,
        /// What was asked for.
        what: String,
        /// How many bytes would have been read.
        limit: u64,
    },
    /// Not what was asked for.
    #[error(
        "{host} answers with {found}, and {wanted} was requested as {what}: the registry, or a proxy before it, changes what it stores"
    )]
    Digest {
        /// Host of the registry.
        host: String,
        /// What was asked for.
        what: String,
        /// Its digest.
        wanted: String,
        /// The digest of the answer.
        found: String,
    },
    /// The registry wants to be shown something that is not known here.
    #[error("{host} asks for credentials in a manner other than Basic and Bearer")]
    Challenge {
        /// Host of the registry.
        host: String,
    },
    /// The registry sends credentials to where nobody can be sure who reads them.
    #[error(
        "{host} names {realm:?} as the server that gives tokens; credentials go over https alone"
    )]
    Realm {
        /// Host of the registry.
        host: String,
        /// The address that it names.
        realm: String,
    },
    /// The token server's answer holds no token.
    #[error("the server that gives tokens for {host} gave an answer without a token")]
    Token {
        /// Host of the registry.
        host: String,
    },
    /// The registry says nowhere where an upload goes.
    #[error("{host} does not say where {what} is to be sent")]
    Location {
        /// Host of the registry.
        host: String,
        /// What was to be sent.
        what: String,
    },
}

impl RegistryError {
    /// Whether the registry says that it has no such thing, or no such list.
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

    /// Whether the registry does not say, or not to this user.
    pub(in crate::oci) fn is_refusal(&self) -> bool {
        match self {
            Self::Forbidden { .. } => true,
            Self::Status { status, .. } => *status == StatusCode::METHOD_NOT_ALLOWED,
            _ => false,
        }
    }
}
