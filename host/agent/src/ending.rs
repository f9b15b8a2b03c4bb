//! The signals that end the agent before its work is done.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM, SIGINT and SIGHUP. Listening matters for PID 1 of a container, which the kernel otherwise spares.
pub(crate) struct Ending {
    term: Signal,
    int: Signal,
    hup: Signal,
}

impl Ending {
    /// Begins to listen. It needs a runtime.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one, and returns the exit code for it: 128 and its number.
    pub(crate) async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.term.recv() => 128 + 15,
            _ = self.int.recv() => 128 + 2,
            _ = self.hup.recv() => 128 + 1,
        }
    }
}
