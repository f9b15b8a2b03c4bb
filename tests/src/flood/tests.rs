//! Tests that every kind of load reaches its port and ends.

use std::net::Ipv4Addr;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::routing::{get, post};
use cluster::wait::{Seen, until};
use ipu_ports::limits::{Limits, REST};
use ipu_ports::metrics::Refused;
use ipu_ports::serve::Port;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::*;

/// Wait of the port for a body: long enough for a complete body on a busy machine.
const BODY: Duration = Duration::from_secs(3);

/// Forwards connections with TLS to a port in plain text.
async fn with_tls(port: SocketAddr, load: &mut JoinSet<()>) -> SocketAddr {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key);
    let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    load.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let (mut ours, mut theirs) =
                    tokio::try_join!(acceptor.accept(stream), TcpStream::connect(port))?;
                copy_bidirectional(&mut ours, &mut theirs).await
            });
        }
    });
    address
}

#[tokio::test]
async fn every_kind_of_load_ends() {
    let first = Duration::from_millis(200);
    let port = Port::listen(0, Limits { first, ..REST }, &Refused::default()).unwrap();
    let plain = (Ipv4Addr::LOCALHOST, port.number().unwrap()).into();
    let read = async |body: Body| drop(timeout(BODY, to_bytes(body, usize::MAX)).await);
    let routes = Router::new().route("/here", get(async || "here"));
    let stop = CancellationToken::new();
    let serving = tokio::spawn(port.serve(routes.fallback(post(read)), stop.clone()));

    let mut proxies = JoinSet::new();
    let tls = with_tls(plain, &mut proxies).await;
    let counts = Arc::<Counts>::default();
    let targets = Targets {
        idle: vec![plain],
        webhooks: vec![tls],
        guarded: vec![(tls, "/here".to_owned())],
        queries: vec![plain],
        partitions: vec![tls],
    };
    let mut load = begin(targets, &counts);
    let ended = until("all kinds of load", Duration::from_mins(2), async || {
        let all = |counts: &BTreeMap<_, _>| counts.values().all(|count| *count > 0);
        Ok::<_, std::io::Error>(Seen::when(counts.read(), all))
    });
    ended.await.unwrap();
    load.shutdown().await;
    proxies.shutdown().await;
    stop.cancel();
    serving.await.unwrap().unwrap();
}
