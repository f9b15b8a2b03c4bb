//! Waits for a condition, for a generous time. Only this file defines how long a test waits.

use std::convert::Infallible;
use std::error::Error;
use std::fmt::{Debug, Display};
use std::iter::successors;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Period of the checks of a condition.
const INTERVAL: Duration = Duration::from_millis(50);

/// Wait of a suite: far longer than a step takes on a busy machine, so that only a hang reaches it.
const PATIENCE: Duration = Duration::from_mins(4);

/// The result of a check.
#[derive(Debug)]
pub enum Seen<T> {
    /// The condition holds.
    Yes(T),
    /// It does not hold yet. The text describes the observed state, for the message of a timeout.
    NotYet(String),
}

impl<T: Debug> Seen<T> {
    /// Returns the found value if it is as expected.
    pub fn when(found: T, is_wanted: impl FnOnce(&T) -> bool) -> Self {
        if is_wanted(&found) {
            Self::Yes(found)
        } else {
            Self::NotYet(format!("{found:?}"))
        }
    }
}

impl<T> From<Option<T>> for Seen<T> {
    fn from(found: Option<T>) -> Self {
        found.map_or_else(|| Self::NotYet("nothing".to_owned()), Self::Yes)
    }
}

impl<T, E: Display> From<Result<T, E>> for Seen<T> {
    fn from(found: Result<T, E>) -> Self {
        found.map_or_else(|seen| Self::NotYet(seen.to_string()), Self::Yes)
    }
}

/// The condition did not hold in time.
#[derive(Debug, thiserror::Error)]
#[error("waited {} s without success: {what}; last seen: {last}", waited.as_secs())]
pub struct WaitedTooLong {
    /// The condition.
    pub what: String,
    /// For how long.
    pub waited: Duration,
    /// State at the last check.
    pub last: String,
}

/// Checks repeatedly until the condition holds. An error by which the API server refuses the request itself is final,
/// because no wait changes it. Other errors are not, because servers come and go in these tests. A failure reports the
/// last one.
pub async fn until<T, E: Into<Box<dyn Error + Send + Sync>>>(
    what: impl Into<String>,
    patience: Duration,
    mut look: impl AsyncFnMut() -> Result<Seen<T>, E>,
) -> Result<T, WaitedTooLong> {
    let begun = Instant::now();
    loop {
        let (last, is_final) = match look().await {
            Ok(Seen::Yes(value)) => return Ok(value),
            Ok(Seen::NotYet(seen)) => (seen, false),
            Err(error) => {
                let error = error.into();
                (format!("{error:?}"), is_refusal(&*error))
            }
        };
        if is_final || begun.elapsed() > patience {
            return Err(WaitedTooLong {
                what: what.into(),
                waited: begun.elapsed(),
                last,
            });
        }
        sleep(INTERVAL).await;
    }
}

/// Whether the API server refuses the request itself: it is malformed (400), not allowed (403), or invalid (422). Not
/// found (404), a conflict (409), and a webhook that does not answer (500) pass.
fn is_refusal<'error>(error: &'error (dyn Error + 'static)) -> bool {
    let cause = |error: &&'error (dyn Error + 'static)| (*error).source();
    let causes = successors(Some(error), cause);
    let mut answers = causes.filter_map(|cause| match cause.downcast_ref() {
        Some(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    });
    answers.any(|code| matches!(code, 400 | 403 | 422))
}

/// Waits until `answers`. An error of `check` is final: the server has ended. The outer error is the timeout.
pub async fn until_or_ended<E>(
    what: impl Into<String>,
    patience: Duration,
    check: impl Fn() -> Result<(), E>,
    mut answers: impl AsyncFnMut() -> bool,
) -> Result<Result<(), E>, WaitedTooLong> {
    until(what, patience, async || {
        if answers().await {
            return Ok::<_, Infallible>(Seen::Yes(Ok(())));
        }
        Ok(match check() {
            Ok(()) => Seen::NotYet("no answer".to_owned()),
            ended => Seen::Yes(ended),
        })
    })
    .await
}

/// [`until`] for the body of a test: a check returns the found value, or describes the observed state.
///
/// # Panics
/// Panics if the condition does not hold in time.
#[expect(
    clippy::panic,
    reason = "a condition that never holds fails the test that waits for it"
)]
pub async fn eventually<T, S: Into<Seen<T>>>(what: &str, mut look: impl AsyncFnMut() -> S) -> T {
    let found = until(what, PATIENCE, async || {
        Ok::<_, Infallible>(look().await.into())
    });
    match found.await {
        Ok(found) => found,
        Err(late) => panic!("{late}"),
    }
}
