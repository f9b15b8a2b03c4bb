//! An answer that all clients share for a second: any client may ask a hundred times a second.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Maximum age of a shared answer.
const AGE: Duration = Duration::from_secs(1);

/// The answers that clients share. Clones share them, too.
#[derive(Clone, Debug, Default)]
pub struct RecentAnswers {
    /// The answer of `/stats`.
    pub(super) stats: Recent,
    /// The answer of `/controllers` for clients without a token.
    pub(super) controllers: Recent,
}

/// An answer as JSON, as it was last computed.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent(Arc<Mutex<Option<(Instant, Bytes)>>>);

impl Recent {
    /// The answer, if it is recent; otherwise `compute` makes a new one. Clients that ask meanwhile
    /// wait for it.
    pub(super) async fn get(&self, compute: impl Future<Output = Bytes>) -> Bytes {
        let mut state = self.0.lock().await;
        if let Some((at, answer)) = &*state
            && at.elapsed() < AGE
        {
            return answer.clone();
        }
        let answer = compute.await;
        *state = Some((Instant::now(), answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_computed_once_a_second() {
        let (recent, computed) = (Recent::default(), AtomicUsize::new(0));
        let compute = async || {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Bytes::from(computed.fetch_add(1, Ordering::Relaxed).to_string())
        };
        let answers = futures::future::join_all((0..100).map(|_| recent.get(compute()))).await;
        assert!(answers.iter().all(|answer| *answer == "0"));
        tokio::time::advance(AGE).await;
        assert_eq!(recent.get(compute()).await, "1");
    }
}
