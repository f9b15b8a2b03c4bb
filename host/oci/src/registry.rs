//! The client of one repository. Every response has limits for size and time, and is verified
//! against its digest.

mod authorization;
mod error;

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LINK};
use http::{Method, StatusCode, Uri};
use parking_lot::Mutex;
use serde::Deserialize;

use super::address::{next_page, same_origin};
use super::credentials::Credentials;
use super::http::{Answer, Http, HttpError, Outgoing};
use super::manifest::{ACCEPTED, Descriptor};
use super::reference::Reference;
use super::{EXCERPT_MAX, tls};
pub use error::RegistryError;
use ipu_api::guest::digest::digest_of;
use ipu_text::sanitize;

/// Size limit of a manifest, in bytes: the minimum that registries must accept.
const MANIFEST: u64 = 4 << 20;

/// Most pages of a list.
const PAGES: usize = 8;

/// Size limit of an error response, in bytes.
const ERROR_REPLY_MAX: u64 = 16 << 10;

/// Access to a registry.
#[derive(Clone, Debug)]
pub struct Access {
    /// The credentials. `None` for anonymous access.
    pub credentials: Option<Credentials>,
    /// The CA certificates of the registry, as PEM. By default the public ones.
    pub ca_pem: Option<Vec<u8>>,
    /// Whether to use plain HTTP.
    pub plain_http: bool,
    /// Timeout of a connection, and between two parts of a response.
    pub timeout: Duration,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            credentials: None,
            ca_pem: None,
            plain_http: false,
            timeout: Duration::from_secs(15),
        }
    }
}

/// One repository of a registry.
#[derive(Debug)]
pub struct Registry {
    http: Http,
    base: Uri,
    host: String,
    plain_http: bool,
    credentials: Option<Credentials>,
    /// The last authorization that the registry required.
    authorization: Mutex<Option<HeaderValue>>,
}

/// A manifest from a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Their digest.
    pub digest: String,
}

impl Registry {
    /// Creates a client for the repository of a reference. It sends nothing yet.
    ///
    /// # Panics
    /// Never: the parts of a reference are valid in an address.
    pub fn new(reference: &Reference, access: Access) -> Result<Self, RegistryError> {
        let host = reference.registry().to_owned();
        let ca_pem = access.ca_pem.as_deref();
        let tls = tls::config(ca_pem).map_err(|source| RegistryError::Ca(host.clone(), source))?;
        let scheme = if access.plain_http { "http" } else { "https" };
        let repository = reference.repository();
        let base = format!("{scheme}://{}/v2/{repository}/", reference.host());
        let base = base
            .parse()
            .expect("the parts of a reference are parts of an address");
        Ok(Self {
            http: Http::new(tls, access.plain_http, access.timeout),
            base,
            host,
            plain_http: access.plain_http,
            credentials: access.credentials,
            authorization: Mutex::new(None),
        })
    }

    /// Returns the host of the registry.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether to use plain HTTP.
    pub(super) fn is_plain(&self) -> bool {
        self.plain_http
    }

    /// Fetches a manifest by its tag or digest.
    pub async fn manifest(&self, version: &str) -> Result<Document, RegistryError> {
        let what = format!("the manifest {version}");
        let uri = self.at(&format!("manifests/{version}"));
        let answer = self.get(uri, &what).await?;
        let reported = answer.header("docker-content-digest").map(str::to_owned);
        let bytes = self.read(answer, &what, MANIFEST).await?;
        let digest = digest_of(&bytes).to_string();
        let wanted = Some(version)
            .filter(|version| version.starts_with("sha256:"))
            .or(reported
                .as_deref()
                .filter(|reported| reported.starts_with("sha256:")));
        match wanted {
            Some(wanted) if wanted != digest => Err(RegistryError::Digest {
                host: self.host.clone(),
                what,
                wanted: wanted.to_owned(),
                found: digest,
            }),
            _ => Ok(Document { bytes, digest }),
        }
    }

    /// Fetches a blob, of at most `limit` bytes.
    pub async fn blob(&self, blob: &Descriptor, limit: u64) -> Result<Vec<u8>, RegistryError> {
        let what = format!("the blob {}", blob.digest);
        if blob.size > limit {
            return Err(self.failed(&what, HttpError::TooLarge(limit)));
        }
        let uri = self.at(&format!("blobs/{}", blob.digest));
        let answer = self.get(uri, &what).await?;
        let bytes = self.read(answer, &what, blob.size).await?;
        let found = digest_of(&bytes).to_string();
        if found != blob.digest {
            return Err(RegistryError::Digest {
                host: self.host.clone(),
                what,
                wanted: blob.digest.clone(),
                found,
            });
        }
        Ok(bytes)
    }

    /// Fetches the pages of the referrers of a manifest. `None` if the registry does not support
    /// the referrers API.
    pub async fn referrers(&self, digest: &str) -> Result<Option<Vec<Vec<u8>>>, RegistryError> {
        let what = format!("what refers to {digest}");
        let (mut next, mut pages) = (Some(self.at(&format!("referrers/{digest}"))), Vec::new());
        while let Some(uri) = next.filter(|_| pages.len() < PAGES) {
            let answer = match self.get(uri, &what).await {
                Ok(answer) => answer,
                Err(error) if pages.is_empty() && error.is_absence() => return Ok(None),
                Err(error) => return Err(error),
            };
            let links = answer.all(LINK.as_str());
            next = links
                .filter_map(|link| next_page(&answer.uri, link))
                .find(|uri| same_origin(uri, &self.base));
            pages.push(self.read(answer, &what, MANIFEST).await?);
        }
        Ok(Some(pages))
    }

    /// Returns an address in the repository.
    pub(super) fn at(&self, path: &str) -> Uri {
        let joined = format!("{}{path}", self.base).parse();
        joined.expect("what names a manifest or a blob is part of an address")
    }

    async fn get(&self, uri: Uri, what: &str) -> Result<Answer, RegistryError> {
        let accepted = HeaderValue::from_str(&ACCEPTED.join(", "));
        let accepted = accepted.expect("the types of manifests are text");
        let headers = HeaderMap::from_iter([(ACCEPT, accepted)]);
        self.send(Method::GET, uri, headers, Bytes::new(), what)
            .await
    }

    /// Sends a blob, a manifest or an empty body to an address.
    pub(super) async fn put(
        &self,
        method: Method,
        uri: Uri,
        kind: &'static str,
        body: Bytes,
        what: &str,
    ) -> Result<Answer, RegistryError> {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
        self.send(method, uri, headers, body, what).await
    }

    /// Sends a request, and repeats it with credentials if the registry requires them. Only the
    /// registry itself gets them.
    async fn send(
        &self,
        method: Method,
        uri: Uri,
        headers: HeaderMap,
        body: Bytes,
        what: &str,
    ) -> Result<Answer, RegistryError> {
        let is_ours = |uri: &Uri| same_origin(uri, &self.base);
        let mut request = Outgoing {
            method,
            uri,
            headers,
            body,
            follows: true,
        };
        let shown = self.authorization.lock().clone();
        if let Some(shown) = shown.filter(|_| is_ours(&request.uri)) {
            request.headers.insert(AUTHORIZATION, shown);
        }
        let answer = self.once(request.clone(), what).await?;
        let asks = answer.status() == StatusCode::UNAUTHORIZED && is_ours(&answer.uri);
        if !asks || !is_ours(&request.uri) {
            return self.good(answer, what).await;
        }
        let Some(authorization) = self.authorization(&answer, what).await? else {
            return self.good(answer, what).await;
        };
        *self.authorization.lock() = Some(authorization.clone());
        request.headers.insert(AUTHORIZATION, authorization);
        let answer = self.once(request, what).await?;
        self.good(answer, what).await
    }

    async fn once(&self, request: Outgoing, what: &str) -> Result<Answer, RegistryError> {
        let sent = self.http.send(request).await;
        sent.map_err(|source| self.failed(what, source))
    }

    /// Returns a successful response, or its error.
    async fn good(&self, answer: Answer, what: &str) -> Result<Answer, RegistryError> {
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let (host, what) = (self.host.clone(), what.to_owned());
        let words = self.read(answer, &what, ERROR_REPLY_MAX).await;
        let detail = error_messages(&words.unwrap_or_default());
        Err(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => RegistryError::Forbidden {
                who: match &self.credentials {
                    Some(credentials) => format!("the user {:?}", short(&credentials.user)),
                    None => "clients without credentials".to_owned(),
                },
                host,
                what,
                detail,
            },
            StatusCode::NOT_FOUND => RegistryError::Absent { host, what, detail },
            _ => RegistryError::Status {
                host,
                status,
                what,
                detail,
            },
        })
    }

    async fn read(&self, answer: Answer, what: &str, limit: u64) -> Result<Vec<u8>, RegistryError> {
        let read = self.http.read(answer, limit).await;
        read.map_err(|source| self.failed(what, source))
    }

    fn failed(&self, what: &str, source: HttpError) -> RegistryError {
        let (host, what) = (self.host.clone(), what.to_owned());
        match source {
            HttpError::TooLarge(limit) => RegistryError::TooLarge { host, what, limit },
            source => RegistryError::Unreachable { host, what, source },
        }
    }
}

/// Extracts the messages of an OCI error response. Empty for other formats.
fn error_messages(bytes: &[u8]) -> String {
    #[derive(Deserialize)]
    struct ErrorReply {
        errors: Vec<One>,
    }
    #[derive(Deserialize)]
    struct One {
        #[serde(default)]
        code: String,
        #[serde(default)]
        message: String,
    }
    let Ok(reply) = serde_json::from_slice::<ErrorReply>(bytes) else {
        return String::new();
    };
    let Some(One { code, message }) = reply.errors.into_iter().next() else {
        return String::new();
    };
    format!(" ({})", short(format!("{code} {message}").trim()))
}

/// Makes a text of a registry fit for a message.
fn short(text: &str) -> String {
    sanitize(text, EXCERPT_MAX)
}
