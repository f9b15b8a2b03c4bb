//! Takes a port of every address of the machine.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

/// Takes a port, without waiting in its calls: on both kinds of address where the machine has them,
/// else on the older one.
pub(crate) fn listen(port: u16) -> std::io::Result<TcpListener> {
    let any_v6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let any_v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let listener = TcpListener::bind(any_v6).or_else(|_| TcpListener::bind(any_v4))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
