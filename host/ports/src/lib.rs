//! Ports for clients from anywhere.
//!
//! Entry points:
//! - [`listen`] binds a port, and [`serve`] serves it within [`limits`] of connections, time and
//!   size.
//! - [`preemptive_semaphore`] and [`rate_limiter`] divide what clients share, and [`body`] reads
//!   what they send.
//! - [`certificates`] issues, renews, registers and loads the certificates of TLS.
//!
//! It must not know what is served: each area has its own routes and rights.
#![forbid(unsafe_code)]

pub mod body;
pub mod certificates;
mod client_timeout;
mod closable;
mod connection_limiter;
pub mod limits;
pub mod metrics;
pub mod preemptive_semaphore;
pub mod rate_limiter;
pub mod serve;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// Connections that the kernel queues until they are accepted. It drops further ones from any
/// client, and the client retries after a second. So a burst of connections must fit. The kernel
/// itself has the same limit (`net.core.somaxconn`, since Linux 5.4).
const BACKLOG: u32 = 4_096;

/// Binds a port for IPv4 and IPv6, or for IPv4 if the machine has no IPv6.
pub fn listen(port: u16) -> std::io::Result<std::net::TcpListener> {
    let any_v6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let any_v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let listener =
        bound(TcpSocket::new_v6, any_v6).or_else(|_| bound(TcpSocket::new_v4, any_v4))?;
    listener.into_std()
}

fn bound(
    socket: fn() -> std::io::Result<TcpSocket>,
    address: SocketAddr,
) -> std::io::Result<TcpListener> {
    let socket = socket()?;
    // Connections of an earlier process may still be closing.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::future::try_join_all;
    use tokio::net::TcpStream;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_burst_is_held_before_anybody_accepts() {
        let listener = listen(0).unwrap();
        let port = listener.local_addr().unwrap().port();
        let burst = try_join_all((0..400).map(|_| TcpStream::connect(("127.0.0.1", port))));
        let connected = timeout(Duration::from_secs(30), burst).await;
        let connected = connected.expect("no connection is dropped").unwrap();
        assert_eq!(connected.len(), 400);
    }
}
