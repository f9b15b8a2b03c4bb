//! The signals that end the agent before its work is done.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that stop a container: SIGTERM, or that of its image or template, and SIGHUP.
/// Listening matters for PID 1 of a container, which the kernel otherwise spares.
pub(crate) struct Ending {
    term: Signal,
    int: Signal,
    hup: Signal,
    quit: Signal,
    user_1: Signal,
    user_2: Signal,
}

impl Ending {
    /// Begins to listen. It needs a runtime.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hup: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
            user_1: signal(SignalKind::user_defined1())?,
            user_2: signal(SignalKind::user_defined2())?,
        })
    }

    /// Waits for the next one, and returns the exit code for it: 128 and its number.
    pub(crate) async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.term.recv() => 128 + 15,
            _ = self.int.recv() => 128 + 2,
            _ = self.hup.recv() => 128 + 1,
            _ = self.quit.recv() => 128 + 3,
            _ = self.user_1.recv() => 128 + 10,
            _ = self.user_2.recv() => 128 + 12,
        }
    }
}
