//! Authentication of the calls to V-IPU controllers: plain text or TLS, and the credentials.
//!
//! The files belong to an admin or to the volume of a Secret. `Auth::new` validates their contents
//! before it uses them, so that an error names the file.

pub mod files;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;
use tonic::Request;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use ipu_api::naming;

/// Names that gRPC and HTTP/2 reserve.
const RESERVED: [&str; 4] = ["content-type", "host", "te", "user-agent"];

/// Files with the certificates and credentials, and the names of the credentials on the wire.
#[derive(Args, Clone, Debug)]
pub struct AuthOptions {
    /// Folder with ca.crt, the CA of the V-IPU controllers, and tls.crt and tls.key where they
    /// ask for a client certificate. Missing: calls to them are in plain text.
    #[arg(long, env = "IPU_OPERATOR_VIPU_TLS_DIR")]
    pub vipu_tls_dir: Option<PathBuf>,
    /// Name that every V-IPU controller's certificate must hold. Missing: the controller's host.
    #[arg(long, env = "IPU_OPERATOR_VIPU_TLS_SERVER_NAME")]
    pub vipu_tls_server_name: Option<String>,
    /// Folder with the files user-id and api-key, which are sent with every call. Missing: none.
    #[arg(long, env = "IPU_OPERATOR_VIPU_CREDENTIALS_DIR")]
    pub vipu_credentials_dir: Option<PathBuf>,
    /// Name of the gRPC metadata that holds the user id.
    #[arg(
        long,
        env = "IPU_OPERATOR_VIPU_USER_ID_METADATA",
        default_value = "user-id"
    )]
    pub vipu_user_id_metadata: String,
    /// Name of the gRPC metadata that holds the API key.
    #[arg(
        long,
        env = "IPU_OPERATOR_VIPU_API_KEY_METADATA",
        default_value = "api-key"
    )]
    pub vipu_api_key_metadata: String,
}

impl Default for AuthOptions {
    /// Plain text, without credentials.
    fn default() -> Self {
        AuthOptions {
            vipu_tls_dir: None,
            vipu_tls_server_name: None,
            vipu_credentials_dir: None,
            vipu_user_id_metadata: "user-id".to_owned(),
            vipu_api_key_metadata: "api-key".to_owned(),
        }
    }
}

/// The current authentication, or the reason why there is none.
pub type AuthState = Result<Arc<Auth>, Arc<AuthError>>;

/// Authentication of calls. The default is plain text without credentials.
#[derive(Clone, Default)]
pub struct Auth {
    tls: Option<ClientTlsConfig>,
    server_name: Option<String>,
    metadata: Vec<(AsciiMetadataKey, AsciiMetadataValue)>,
    account: Option<String>,
}

/// Content of a file of the admin.
#[derive(Clone, PartialEq, Eq)]
pub struct Content {
    /// Its path.
    pub file: PathBuf,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The files of certificates and credentials. `None`: the file does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Material {
    /// CA certificates that verify the controllers (PEM).
    pub ca: Option<Content>,
    /// The operator's own certificate and its chain (PEM).
    pub certificate: Option<Content>,
    /// Its private key (PEM).
    pub key: Option<Content>,
    /// The user id.
    pub user_id: Option<Content>,
    /// The API key.
    pub api_key: Option<Content>,
}

/// Error of the admin's certificates or credentials.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// A name cannot be that of gRPC metadata.
    #[error(
        "failed to use {0:?} as a name of gRPC metadata: write one to 64 lower-case letters, \
         digits, `-`, `_` and `.`, not a name that gRPC uses itself, and without `-bin` at its end"
    )]
    MetadataName(String),
    /// User id and API key would overwrite each other.
    #[error(
        "failed to send user id and API key under one name of gRPC metadata, {0:?}: give each its own"
    )]
    SameName(String),
    /// A name cannot be that of a server.
    #[error("failed to use {0:?} as the name of a TLS server: write a DNS name or an IP address")]
    ServerName(String),
    /// A file cannot be read.
    #[error("failed to read {0}: the operator needs the right to read it")]
    Read(PathBuf, #[source] std::io::Error),
    /// A file is not there.
    #[error("failed to find {}: put it into the Secret that is mounted there, {why}", file.display())]
    Missing {
        /// The file.
        file: PathBuf,
        /// Its purpose.
        why: &'static str,
    },
    /// A file does not contain the expected PEM.
    #[error("failed to find {wanted} in {}: it must be PEM, whole and unencrypted", file.display())]
    Pem {
        /// The file.
        file: PathBuf,
        /// Its expected content.
        wanted: &'static str,
        /// The problem.
        #[source]
        source: pem::Error,
    },
    /// The content of a PEM file cannot be used.
    #[error("failed to use {}: {rule}", file.display())]
    Unusable {
        /// The file.
        file: PathBuf,
        /// The violated rule, and the fix.
        rule: &'static str,
        /// The problem.
        #[source]
        source: rustls::Error,
    },
    /// A credential of this file cannot be sent. Its content is secret, so no message contains it.
    #[error("failed to send what is in {0}: it must be one line of visible ASCII characters")]
    Credential(PathBuf),
}

impl Auth {
    /// Builds the authentication from these files.
    pub fn new(material: &Material, options: &AuthOptions) -> Result<Self, AuthError> {
        let (user_name, key_name) = check(options)?;
        let credentials = [
            (user_name, &material.user_id, false),
            (key_name, &material.api_key, true),
        ];
        let mut metadata = Vec::new();
        for (name, content, is_secret) in credentials {
            if let Some(content) = content {
                let mut value = credential(content)?;
                value.set_sensitive(is_secret);
                metadata.push((name, value));
            }
        }
        let tls = match &material.ca {
            Some(ca) => Some(tls(
                ca,
                material.certificate.as_ref().zip(material.key.as_ref()),
            )?),
            None => None,
        };
        Ok(Auth {
            tls,
            server_name: options.vipu_tls_server_name.clone(),
            metadata,
            account: material.user_id.as_ref().map(account).transpose()?,
        })
    }

    /// Short hash of the user id in calls. `None`: calls contain none.
    pub(super) fn account(&self) -> Option<&str> {
        self.account.as_deref()
    }

    /// TLS configuration for a controller at `host`. `None`: plain text.
    pub(super) fn tls(&self, host: &str) -> Option<ClientTlsConfig> {
        let name = self.server_name.as_deref().unwrap_or(host);
        self.tls.clone().map(|tls| tls.domain_name(name))
    }

    /// A request with the credentials.
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        for (name, value) in &self.metadata {
            request.metadata_mut().insert(name.clone(), value.clone());
        }
        request
    }
}

impl fmt::Debug for Content {
    /// The content may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Content").field(&self.file).finish()
    }
}

impl fmt::Debug for Auth {
    /// Keys never reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.metadata.iter().map(|(name, _)| name).collect();
        f.debug_struct("Auth")
            .field("tls", &self.tls.is_some())
            .field("server_name", &self.server_name)
            .field("metadata", &names)
            .field("account", &self.account)
            .finish()
    }
}

/// Auth that never changes: plain text, without credentials.
pub(super) fn plain() -> watch::Receiver<AuthState> {
    watch::channel(Ok(Arc::default())).1
}

/// Returns the metadata names of user id and API key, if the options are valid.
pub(super) fn check(
    options: &AuthOptions,
) -> Result<(AsciiMetadataKey, AsciiMetadataKey), AuthError> {
    let user = metadata_name(&options.vipu_user_id_metadata)?;
    let key = metadata_name(&options.vipu_api_key_metadata)?;
    if user == key {
        return Err(AuthError::SameName(options.vipu_user_id_metadata.clone()));
    }
    match &options.vipu_tls_server_name {
        Some(name) if ServerName::try_from(name.as_str()).is_err() => {
            Err(AuthError::ServerName(name.clone()))
        }
        _ => Ok((user, key)),
    }
}

fn metadata_name(name: &str) -> Result<AsciiMetadataKey, AuthError> {
    let inner = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
    let is_free = !name.starts_with("grpc-") && !RESERVED.contains(&name);
    let key = (1..=64).contains(&name.len()) && name.bytes().all(inner) && is_free;
    let key = key.then(|| name.parse().ok()).flatten();
    key.ok_or_else(|| AuthError::MetadataName(name.to_owned()))
}

fn account(user_id: &Content) -> Result<String, AuthError> {
    let value = credential(user_id)?;
    Ok(naming::account(&String::from_utf8_lossy(value.as_bytes())))
}

/// A credential without the newline that editors add.
fn credential(content: &Content) -> Result<AsciiMetadataValue, AuthError> {
    let text = content.bytes.trim_ascii();
    let is_visible = text.iter().all(|byte| matches!(byte, b' '..=b'~'));
    let value = (!text.is_empty() && is_visible)
        .then(|| AsciiMetadataValue::try_from(text).ok())
        .flatten();
    value.ok_or_else(|| AuthError::Credential(content.file.clone()))
}

/// TLS with these CAs and, if given, with the operator's own certificate.
fn tls(ca: &Content, identity: Option<(&Content, &Content)>) -> Result<ClientTlsConfig, AuthError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca)? {
        roots
            .add(certificate)
            .map_err(|source| AuthError::Unusable {
                file: ca.file.clone(),
                rule: "each certificate in it must be a CA certificate",
                source,
            })?;
    }
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&ca.bytes));
    let Some((certificate, key)) = identity else {
        return Ok(config);
    };
    let chain = certificates(certificate)?;
    let private = PrivateKeyDer::from_pem_slice(&key.bytes)
        .map_err(|source| not_pem(&key.file, "a private key", source))?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, private, &provider).map_err(|source| AuthError::Unusable {
        file: key.file.clone(),
        rule: "it must be an RSA, ECDSA or Ed25519 key, and that of the certificate beside it",
        source,
    })?;
    Ok(config.identity(Identity::from_pem(&certificate.bytes, &key.bytes)))
}

/// Every certificate in a file; at least one.
fn certificates(content: &Content) -> Result<Vec<CertificateDer<'static>>, AuthError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content.bytes).collect();
    match found {
        Ok(found) if found.is_empty() => Err(pem::Error::NoItemsFound),
        found => found,
    }
    .map_err(|source| not_pem(&content.file, "a certificate", source))
}

fn not_pem(file: &Path, wanted: &'static str, source: pem::Error) -> AuthError {
    AuthError::Pem {
        file: file.to_owned(),
        wanted,
        source,
    }
}

#[cfg(test)]
mod tests;
