//! Connects to V-IPU controllers by TCP, as a program in a Pod does, and closes the connections.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::time::Duration;

use futures::future::join_all;
use ipu_api::ipupartition::ControllerRef;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::facts::Connection;

/// Connects to all controllers at the same time. Returns the results by their names.
pub(crate) async fn all(
    controllers: &[&ControllerRef],
    limit: Duration,
) -> BTreeMap<String, Connection> {
    let connections = controllers.iter().map(|controller| async {
        let (host, port) = (controller.host.as_str(), controller.port);
        let connection = timeout(limit, connect(host, port)).await;
        let connection = connection.unwrap_or(Connection::NoAnswer(limit.as_secs()));
        (controller.name.clone(), connection)
    });
    join_all(connections).await.into_iter().collect()
}

/// Tries the addresses of a host one after the other. Returns the result of the last one.
async fn connect(host: &str, port: u16) -> Connection {
    let Ok(addresses) = lookup_host((host, port)).await else {
        return Connection::NoAddress;
    };
    let mut last = Connection::NoAddress;
    for address in addresses {
        last = match TcpStream::connect(address).await {
            Ok(_) => return Connection::Established,
            Err(error) => failed(&error),
        };
    }
    last
}

fn failed(error: &io::Error) -> Connection {
    match error.kind() {
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => Connection::NoRoute,
        ErrorKind::ConnectionRefused => Connection::Refused,
        kind => Connection::Error(kind.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn controller(host: &str, port: u16) -> ControllerRef {
        ControllerRef {
            name: format!("{host}:{port}"),
            host: host.to_owned(),
            port,
            label_key: String::new(),
            label_value: String::new(),
        }
    }

    #[tokio::test]
    async fn each_controller_has_its_result() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open = listener.local_addr().unwrap().port();
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let refused = closed.local_addr().unwrap().port();
        drop(closed);
        let here = controller("127.0.0.1", open);
        let there = controller("127.0.0.1", refused);
        let nowhere = controller("pod1.invalid", 8090);
        let found = all(&[&here, &there, &nowhere], Duration::from_mins(1)).await;
        assert_eq!(found[&here.name], Connection::Established);
        assert_eq!(found[&there.name], Connection::Refused);
        assert_eq!(found[&nowhere.name], Connection::NoAddress);
    }

    #[tokio::test]
    async fn a_controller_without_an_answer_takes_no_longer_than_the_limit() {
        let here = controller("127.0.0.1", 1);
        let found = all(&[&here], Duration::ZERO).await;
        assert!(matches!(
            found[&here.name],
            Connection::NoAnswer(0) | Connection::Refused
        ));
    }

    #[test]
    fn a_missing_route_differs_from_other_errors() {
        for (kind, expected) in [
            (ErrorKind::NetworkUnreachable, Connection::NoRoute),
            (ErrorKind::HostUnreachable, Connection::NoRoute),
            (ErrorKind::ConnectionRefused, Connection::Refused),
        ] {
            assert_eq!(failed(&kind.into()), expected);
        }
        let other = failed(&ErrorKind::PermissionDenied.into());
        assert_eq!(other, Connection::Error("permission denied".to_owned()));
    }
}
