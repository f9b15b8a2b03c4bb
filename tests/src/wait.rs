//! Waits for a condition with a generous bound; the only place where a test's patience is written.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How often a condition is looked at.
const INTERVAL: Duration = Duration::from_millis(100);

/// What a look at the world found.
#[derive(Debug)]
pub enum Seen<T> {
    /// The condition holds.
    Yes(T),
    /// Not yet; what was seen instead, for the message when patience ends.
    NotYet(String),
}

/// The condition did not come true in time.
#[derive(Debug, thiserror::Error)]
#[error("waited {} s for {what}; last seen: {last}", waited.as_secs())]
pub struct WaitedTooLong {
    /// What was waited for.
    pub what: String,
    /// For how long.
    pub waited: Duration,
    /// What was seen at the last look.
    pub last: String,
}

/// Looks again and again until the condition holds. An error of a look is not final: servers come
/// and go in these tests; it is told when patience ends.
pub async fn until<T, E, F, W>(
    what: impl Into<String>,
    patience: Duration,
    mut look: F,
) -> Result<T, WaitedTooLong>
where
    E: Debug,
    F: FnMut() -> W,
    W: Future<Output = Result<Seen<T>, E>>,
{
    let begun = Instant::now();
    loop {
        let last = match look().await {
            Ok(Seen::Yes(value)) => return Ok(value),
            Ok(Seen::NotYet(seen)) => seen,
            Err(error) => format!("{error:?}"),
        };
        if begun.elapsed() > patience {
            return Err(WaitedTooLong {
                what: what.into(),
                waited: begun.elapsed(),
                last,
            });
        }
        sleep(INTERVAL).await;
    }
}
