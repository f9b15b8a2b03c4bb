//! An HTTP client with limits for the time, the size and the redirects of a response.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, USER_AGENT};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;
use tokio::time::timeout;

use super::address::{leads_to, may_be_asked, same_origin};

/// Most redirects.
const REDIRECTS: usize = 5;

/// Bytes of a request for each timeout period: a longer request has a longer timeout.
const PIECE: usize = 1 << 20;

/// The user agent.
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("ipu-operator/", env!("CARGO_PKG_VERSION")));

/// A client that uses TLS, unless configured otherwise.
#[derive(Clone, Debug)]
pub(super) struct Http {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    without_tls: bool,
    timeout: Duration,
}

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Whether to follow redirects.
    pub(super) follows: bool,
}

/// A response whose body is not read yet.
#[derive(Debug)]
pub(super) struct Answer {
    /// Its address, after all redirects.
    pub(super) uri: Uri,
    response: Response<hyper::body::Incoming>,
}

/// Failure of a request. No error has an address, because redirects can contain secrets.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The server is unreachable.
    #[error("failed to connect")]
    Send(#[source] ClientError),
    /// The connection broke.
    #[error("the answer broke off")]
    Body(#[source] hyper::Error),
    /// The server sent nothing within the timeout.
    #[error("the registry sent nothing for {} ms", .0.as_millis())]
    Stalled(Duration),
    /// The response is too large.
    #[error("the answer is longer than {0} bytes")]
    TooLarge(u64),
    /// There are too many redirects.
    #[error("the answer is a redirect after {REDIRECTS} others")]
    Redirects,
    /// A redirect is invalid, or leads from TLS to a server without TLS.
    #[error("the answer is a redirect to no address, or to one without TLS")]
    Redirect,
}

impl Http {
    /// Creates a client with this TLS configuration. `timeout` limits the wait for the response,
    /// and between two parts of it.
    pub(super) fn new(tls: ClientConfig, plain_http: bool, timeout: Duration) -> Self {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .build();
        Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            without_tls: plain_http,
            timeout,
        }
    }

    /// Sends a request. Its credentials go only to the server of its address, not to the servers of
    /// redirects.
    pub(super) async fn send(&self, mut request: Outgoing) -> Result<Answer, HttpError> {
        let first = request.uri.clone();
        for _ in 0..=REDIRECTS {
            let response = self
                .once(&request, same_origin(&first, &request.uri))
                .await?;
            let answer = Answer {
                uri: request.uri.clone(),
                response,
            };
            if !request.follows || !is_redirect(&request.method, answer.status()) {
                return Ok(answer);
            }
            let location = answer.header(LOCATION.as_str());
            let next = location.and_then(|location| leads_to(&request.uri, location));
            let next = next.filter(|uri| may_be_asked(uri, self.without_tls));
            request.uri = next.ok_or(HttpError::Redirect)?;
        }
        Err(HttpError::Redirects)
    }

    async fn once(
        &self,
        request: &Outgoing,
        shows: bool,
    ) -> Result<Response<hyper::body::Incoming>, HttpError> {
        let mut sent = Request::new(Full::new(request.body.clone()));
        *sent.method_mut() = request.method.clone();
        *sent.uri_mut() = request.uri.clone();
        *sent.headers_mut() = request.headers.clone();
        sent.headers_mut().insert(USER_AGENT, AGENT);
        if !shows {
            sent.headers_mut().remove(AUTHORIZATION);
        }
        let pieces = u32::try_from(request.body.len() / PIECE).unwrap_or(u32::MAX);
        let limit = self.timeout.saturating_mul(pieces.saturating_add(1));
        match timeout(limit, self.client.request(sent)).await {
            Ok(response) => response.map_err(HttpError::Send),
            Err(_) => Err(HttpError::Stalled(limit)),
        }
    }

    /// Reads the body, up to `limit` bytes.
    pub(super) async fn read(&self, answer: Answer, limit: u64) -> Result<Vec<u8>, HttpError> {
        let mut body = answer.response.into_body();
        let mut bytes = Vec::new();
        loop {
            let piece = timeout(self.timeout, body.frame()).await;
            let Some(piece) = piece.map_err(|_| HttpError::Stalled(self.timeout))? else {
                return Ok(bytes);
            };
            // Other frames are trailers.
            if let Ok(data) = piece.map_err(HttpError::Body)?.into_data() {
                if (bytes.len() + data.len()) as u64 > limit {
                    return Err(HttpError::TooLarge(limit));
                }
                bytes.extend_from_slice(&data);
            }
        }
    }
}

impl Answer {
    pub(super) fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Returns a header, if it is text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// Returns all headers with a name that are text.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let all = self.response.headers().get_all(name).into_iter();
        all.filter_map(|value| value.to_str().ok())
    }
}

/// Whether a status is a redirect of the same request.
fn is_redirect(method: &Method, status: StatusCode) -> bool {
    match status {
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => {
            *method == Method::GET || *method == Method::HEAD
        }
        _ => false,
    }
}
