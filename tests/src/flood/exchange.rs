//! Sends requests to servers without verifying their certificates, each on a separate connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Longest wait for an answer.
pub(super) const ANSWER: Duration = Duration::from_secs(30);

/// Sends a request in plain text, and returns everything that the server sends until the connection
/// ends.
pub async fn exchange(address: SocketAddr, request: &[&[u8]]) -> std::io::Result<String> {
    timeout(ANSWER, async {
        said(TcpStream::connect(address).await?, request).await
    })
    .await?
}

/// Like [`exchange`], over TLS, without verification of the certificate.
pub async fn exchange_tls(address: SocketAddr, request: &[&[u8]]) -> std::io::Result<String> {
    timeout(ANSWER, async {
        said(connect_tls(address).await?, request).await
    })
    .await?
}

/// A connection with TLS. Each piece is sent in its own record.
pub(super) async fn connect_tls(address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::IpAddress(address.ip().into());
    connector().connect(name, stream).await
}

async fn said(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &[&[u8]],
) -> std::io::Result<String> {
    for part in request {
        // A server can refuse a request before the end of the body, and still answer it.
        if stream.write_all(part).await.is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer).await {
        // A server that closes the connection without a TLS close message has still answered.
        Err(error) if answer.is_empty() => Err(error),
        _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
    }
}

fn connector() -> TlsConnector {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("ring knows the default versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// Accepts every certificate.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
