//! Registries over TLS: trusted certificates, and that no redirect leads from TLS to a server
//! without it.

use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::Json;
use axum::response::IntoResponse;
use ipu_oci::fetch::{component, find};
use ipu_oci::registry::{Access, Registry};
use ipu_text::explain;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::fake::{Content, Fake, RecordedRequest, challenged, moved};
use super::{BASIC, LIMIT, user};

/// A self-signed certificate, and a port that is not served yet.
struct Front {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    /// Host and port.
    host: String,
    /// The certificate in PEM.
    ca: Vec<u8>,
}

impl Front {
    async fn new() -> Self {
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        Self {
            host: listener.local_addr().unwrap().to_string(),
            listener,
            acceptor: TlsAcceptor::from(Arc::new(config.unwrap())),
            ca: own.cert.pem().into_bytes(),
        }
    }

    /// Forwards to a registry without TLS. From now on, that registry is reached over TLS.
    fn before(self, fake: Fake) -> Fake {
        let (plain, host) = (fake.host.clone(), self.host);
        let (listener, acceptor) = (self.listener, self.acceptor);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, plain) = (acceptor.clone(), plain.clone());
                tokio::spawn(async move {
                    let (mut ours, mut theirs) =
                        tokio::try_join!(acceptor.accept(stream), TcpStream::connect(plain))?;
                    copy_bidirectional(&mut ours, &mut theirs).await
                });
            }
        });
        fake.moved_to(&host)
    }
}

/// Fetches over TLS, as the operator does. Returns the component, or the error.
async fn fetched(fake: &Fake, ca: Option<&[u8]>) -> Result<Vec<u8>, String> {
    let access = Access {
        ca_pem: ca.map(<[u8]>::to_vec),
        ..user()
    };
    let reference = fake.reference(":1");
    let registry = Registry::new(&reference, access).unwrap();
    let found = find(&registry, &reference).await;
    let found = found.map_err(|error| explain(&error))?;
    let bytes = component(&registry, &found, LIMIT).await;
    bytes.map_err(|error| explain(&error))
}

#[tokio::test]
async fn only_the_given_authority_is_trusted() {
    let front = Front::new().await;
    let ca = front.ca.clone();
    let fake = front.before(Fake::start(|_| None).await);
    let bytes = fetched(&fake, Some(&ca)).await;
    assert_eq!(bytes, Ok(Content::new().component));

    let count = fake.requests().len();
    let stranger = Front::new().await.ca;
    for others in [None, Some(&*stranger)] {
        let error = fetched(&fake, others).await.unwrap_err();
        assert!(error.contains("gave no answer to the request"), "{error}");
        assert!(error.contains("invalid peer certificate"), "{error}");
    }
    assert_eq!(fake.requests().len(), count, "{:?}", fake.requests());
}

/// A registry over TLS that requires a token of the server at an address, and its CA.
async fn with_tokens_of(front: Front, realm: &str) -> Fake {
    let challenge = format!("Bearer realm=\"{realm}\",service=\"reg\"");
    let answer = move |request: &RecordedRequest| {
        if request.line.starts_with("GET /token") {
            return Some(Json(json!({"token": "good"})).into_response());
        }
        match request.authorization.as_deref() {
            Some("Bearer good") => None,
            _ => Some(challenged(&challenge)),
        }
    };
    front.before(Fake::start(answer).await)
}

#[tokio::test]
async fn user_and_password_go_to_a_server_of_tokens_over_tls_alone() {
    let front = Front::new().await;
    let ca = front.ca.clone();
    let realm = format!("https://{}/token", front.host);
    let fake = with_tokens_of(front, &realm).await;
    let bytes = fetched(&fake, Some(&ca)).await;
    assert_eq!(bytes, Ok(Content::new().component));
    let shown = fake
        .requests()
        .into_iter()
        .find(|request| request.line.starts_with("GET /token"))
        .and_then(|request| request.authorization);
    assert_eq!(shown.as_deref(), Some(BASIC));

    let thief = Fake::start(|_| Some(Json(json!({"token": "good"})).into_response())).await;
    let front = Front::new().await;
    let ca = front.ca.clone();
    let fake = with_tokens_of(front, &format!("http://{}/token", thief.host)).await;
    let error = fetched(&fake, Some(&ca)).await.unwrap_err();
    assert!(
        error.contains("sends credentials over https only"),
        "{error}"
    );
    assert!(thief.requests().is_empty(), "{:?}", thief.requests());
}

#[tokio::test]
async fn no_redirect_leads_from_tls_to_a_server_without() {
    let blob = Content::new().blob();
    for end in ["manifests/1", &*blob] {
        let other = Fake::start(|_| None).await;
        let to = format!("http://{}", other.host);
        let end = end.to_owned();
        let answer = move |request: &RecordedRequest| {
            let path = request.line.strip_prefix("GET ")?;
            path.ends_with(&end).then(|| moved(&format!("{to}{path}")))
        };
        let front = Front::new().await;
        let ca = front.ca.clone();
        let fake = front.before(Fake::start(answer).await);
        let error = fetched(&fake, Some(&ca)).await.unwrap_err();
        assert!(
            error.contains("a redirect to no address, or to one without TLS"),
            "{error}"
        );
        assert!(other.requests().is_empty(), "{:?}", other.requests());
    }
}
