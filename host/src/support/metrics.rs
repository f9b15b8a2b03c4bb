//! Reads the metrics of a Pod through the API server's port forwarding.

use std::sync::Arc;

use ipu_text::explain;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::plan::MetricsPort;
use super::{LARGEST, PATIENCE};

/// The metrics of a Pod, or why there are none.
pub(super) async fn read(
    client: &Client,
    namespace: &str,
    port: &MetricsPort,
    token: Option<&str>,
) -> Result<String, String> {
    let token = token.ok_or(
        "no token was given; give one of an account with the ClusterRole <release>-metrics-reader by \
         --metrics-token",
    )?;
    let late = |_| format!("no answer within {} s", PATIENCE.as_secs());
    let read = ask(client, namespace, port, token);
    let answer = timeout(PATIENCE, read).await.map_err(late)??;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) == Some("200") {
        Ok(body.to_owned())
    } else {
        Err(format!("the Pod answers {status:?}"))
    }
}

/// One request of HTTP/1.0: its answer ends with the connection.
async fn ask(
    client: &Client,
    namespace: &str,
    port: &MetricsPort,
    token: &str,
) -> Result<String, String> {
    let failed = |error: &(dyn std::error::Error + 'static)| explain(error);
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let forwarded = pods.portforward(&port.pod, &[port.port]).await;
    let mut forwarded = forwarded.map_err(|error| failed(&error))?;
    let stream = forwarded.take_stream(port.port);
    let stream = stream.ok_or("the port was not forwarded")?;
    let name = ServerName::try_from("localhost").map_err(|error| failed(&error))?;
    let connected = connector()?.connect(name, stream).await;
    let mut stream = connected.map_err(|error| failed(&error))?;
    let request = format!(
        "GET /metrics HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    let sent = stream.write_all(request.as_bytes()).await;
    sent.map_err(|error| failed(&error))?;
    let mut answer = Vec::new();
    let mut limited = stream.take(LARGEST);
    // If the server closes the connection without a response, the received part counts.
    let _ = limited.read_to_end(&mut answer).await;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn connector() -> Result<TlsConnector, String> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| explain(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Accepts any certificate. The connection goes through the API server, which connects it to that
/// Pod, and the CA is in a Secret, which is not read.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
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
