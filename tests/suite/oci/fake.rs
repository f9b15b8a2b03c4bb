//! A registry in this process that replies as a test defines, and records its requests.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use ipu_api::guest::digest::digest_of;
use ipu_oci::manifest::artefact;
use ipu_oci::reference::Reference;
use ipu_oci::registry::{Access, Registry};

/// A request to a registry.
#[derive(Clone, Debug)]
pub(super) struct RecordedRequest {
    /// The method, a blank, and the path with its query.
    pub line: String,
    /// The credentials of the client.
    pub authorization: Option<String>,
}

/// The reply to a request. `None`: that of a correct registry.
type Answer = dyn Fn(&RecordedRequest) -> Option<Response> + Send + Sync;

/// A registry on loopback.
pub(super) struct Fake {
    /// Its host and port.
    pub host: String,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

/// The content of a correct registry: one component as `team/policy:1`.
#[derive(Clone, Debug)]
pub(super) struct Content {
    /// The component.
    pub component: Vec<u8>,
    /// The manifest of its artefact.
    pub manifest: Vec<u8>,
    config: Vec<u8>,
}

impl Content {
    /// A component of some bytes.
    pub(super) fn new() -> Self {
        let component = b"not really a component".to_vec();
        let artefact = artefact(&component, &[], &[]);
        Self {
            component,
            manifest: artefact.manifest,
            config: artefact.config,
        }
    }

    /// Digest of the manifest.
    pub(super) fn digest(&self) -> String {
        digest_of(&self.manifest).to_string()
    }

    /// Path of the component.
    pub(super) fn blob(&self) -> String {
        format!("/v2/team/policy/blobs/{}", digest_of(&self.component))
    }

    fn answer(&self, line: &str) -> Response {
        let named = |bytes: &[u8]| digest_of(bytes).to_string();
        let files: BTreeMap<String, &Vec<u8>> = [
            ("manifests/1".to_owned(), &self.manifest),
            (format!("manifests/{}", self.digest()), &self.manifest),
            (format!("blobs/{}", named(&self.component)), &self.component),
            (format!("blobs/{}", named(&self.config)), &self.config),
        ]
        .into();
        let path = line.strip_prefix("GET /v2/team/policy/");
        match path.and_then(|path| files.get(path)) {
            Some(bytes) => (*bytes).clone().into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        }
    }
}

impl Fake {
    /// Starts it. For requests without a reply of `answer`, it replies as a correct registry.
    pub(super) async fn start(
        answer: impl Fn(&RecordedRequest) -> Option<Response> + Send + Sync + 'static,
    ) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let requests: Arc<Mutex<Vec<RecordedRequest>>> = Arc::default();
        let (content, seen) = (Content::new(), requests.clone());
        let answer: Arc<Answer> = Arc::new(answer);
        let serve = move |request: Request| {
            let recorded = read(&request);
            seen.lock().unwrap().push(recorded.clone());
            let answered = answer(&recorded).unwrap_or_else(|| content.answer(&recorded.line));
            std::future::ready(answered)
        };
        let router = Router::new().fallback(serve);
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { host, requests }
    }

    /// The same one under another address.
    pub(super) fn moved_to(self, host: &str) -> Self {
        Self {
            host: host.to_owned(),
            ..self
        }
    }

    /// Returns the reference of its component.
    pub(super) fn reference(&self, version: &str) -> Reference {
        format!("{}/team/policy{version}", self.host)
            .parse()
            .unwrap()
    }

    /// Returns a client for it.
    pub(super) fn client(&self, access: Access) -> Registry {
        let access = Access {
            plain_http: true,
            ..access
        };
        Registry::new(&self.reference(":1"), access).unwrap()
    }

    /// All requests so far.
    pub(super) fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

fn read(request: &Request) -> RecordedRequest {
    let shown = |headers: &HeaderMap| {
        let shown = headers.get(header::AUTHORIZATION)?;
        Some(shown.to_str().unwrap().to_owned())
    };
    RecordedRequest {
        line: format!("{} {}", request.method(), request.uri()),
        authorization: shown(request.headers()),
    }
}

/// A body without an end.
pub(super) fn endless() -> Response {
    let pieces = stream::repeat(Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 4096])));
    Body::from_stream(pieces).into_response()
}

/// A reply that begins and never continues.
pub(super) fn stuck() -> Response {
    Body::from_stream(stream::pending::<Result<Bytes, Infallible>>()).into_response()
}

/// A redirect.
pub(super) fn moved(to: &str) -> Response {
    let headers = [(header::LOCATION, to.to_owned())];
    (StatusCode::TEMPORARY_REDIRECT, headers).into_response()
}

/// A refusal with a challenge.
pub(super) fn challenged(challenge: &str) -> Response {
    let headers = [(header::WWW_AUTHENTICATE, challenge.to_owned())];
    (StatusCode::UNAUTHORIZED, headers).into_response()
}
