//! Failure of the dashboard.

use std::io;
use std::net::SocketAddr;

/// The dashboard does not run.
#[derive(Debug, thiserror::Error)]
pub enum DashboardError {
    /// The port is in use, or not allowed.
    #[error("failed to listen on {0}; --port names another port, and --port 0 takes any free one")]
    Listen(SocketAddr, #[source] io::Error),
    /// The system gives no random numbers.
    #[error("the operating system gave no random numbers for the secret in the URL")]
    Random,
    /// Standard output is closed or full.
    #[error("failed to write to standard output")]
    Write(#[source] io::Error),
}
