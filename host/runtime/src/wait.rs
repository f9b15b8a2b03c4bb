//! Waits for a value that another task updates.

use tokio::sync::watch::Receiver;

/// Waits until the value meets a condition. Waits for ever if nothing updates it any more: then the
/// process ends.
pub async fn until<T>(mut value: Receiver<T>, is_met: impl FnMut(&T) -> bool) {
    if value.wait_for(is_met).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits until the value changes. Waits for ever if nothing updates it any more.
pub async fn changed<T>(value: &mut Receiver<T>) {
    if value.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
