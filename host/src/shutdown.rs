//! Shutdown of both processes.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Time limit of the work in progress after the stop signal. It is shorter than the Pod's grace
/// period.
const DRAIN: Duration = Duration::from_secs(15);

/// Cancels `stop` on SIGTERM or SIGINT.
pub(crate) fn on_signals(stop: &CancellationToken) -> io::Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let stop = stop.clone();
    tokio::spawn(async move {
        let name = tokio::select! {
            _ = term.recv() => "SIGTERM",
            _ = int.recv() => "SIGINT",
        };
        tracing::info!("{name}: ending; work under way is finished first");
        stop.cancel();
    });
    Ok(())
}

/// Returns when the time limit of the work in progress is over.
pub(crate) async fn drained(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(DRAIN).await;
}
