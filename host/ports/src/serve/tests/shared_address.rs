//! Clients behind one address, of which one shows a certificate and the others never finish a
//! handshake.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedKey, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, generate_simple_self_signed,
};
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::certificates::clients::verifier;

const NAME: &str = "webhooks.example.com";

/// The TLS of a server that accepts clients of one CA, and that of such a client.
fn both() -> (RustlsConfig, TlsConnector) {
    let provider = Arc::new(ring::default_provider());
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    let ca = Issuer::new(params, key);
    let key = |key: &KeyPair| PrivateKeyDer::try_from(key.serialize_der()).unwrap();

    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed([NAME.to_owned()]).unwrap();
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier(&pem).unwrap())
        .with_single_cert(vec![cert.der().clone()], key(&signing_key));
    let server = RustlsConfig::from_config(Arc::new(server.unwrap()));

    let client = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["kube-apiserver".to_owned()]).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&client, &ca).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate.der().clone()], key(&client));
    (server, TlsConnector::from(Arc::new(client.unwrap())))
}

async fn is_answered(stream: &mut TlsStream<TcpStream>) -> bool {
    let request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"here") {
        match stream.read_buf(&mut answer).await {
            Ok(read) if read > 0 => {}
            _ => return false,
        }
    }
    true
}

#[tokio::test]
async fn whoever_never_finishes_a_handshake_keeps_nobody_else_of_its_address_out() {
    let limits = few(2 * BOUND);
    let port = Port::listen(0, limits, &Refused::default()).unwrap();
    let (tls, connector) = both();
    let (number, stop) = (port.number().unwrap(), CancellationToken::new());
    let routes = Router::new().route("/", get(async || "here"));
    let serving = tokio::spawn(port.serve_tls(routes, tls, stop.clone()));
    let connect = || TcpStream::connect(("127.0.0.1", number));

    // All that the address may have.
    let strangers = [connect().await.unwrap(), connect().await.unwrap()];
    let name = ServerName::try_from(NAME).unwrap();
    let stream = connector.connect(name, connect().await.unwrap());
    let mut stream = stream.await.expect("a stranger gives way");
    assert!(is_answered(&mut stream).await);
    let mut more = Vec::new();
    for _ in 0..2 * limits.connections.each {
        more.push(connect().await.unwrap());
    }
    // The last but one ends once the last has its permit.
    let last = more.len() - 2;
    assert_eq!(rest(&mut more[last]).await, b"");
    assert!(is_answered(&mut stream).await, "strangers give way first");
    drop((strangers, more));
    stop.cancel();
    drop(stream);
    serving.await.unwrap().unwrap();
}
