//! Waits for a condition, for a generous time. Only this file defines how long a test waits.

use std::any::Any;
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

/// How much longer than its median a step may take that a user waits for.
const SLOWER: u32 = 10;

/// Least bound of such a step: other work on the machine delays any step by seconds.
const LEAST_BOUND: Duration = Duration::from_mins(1);

/// The result of a check.
#[derive(Debug)]
pub enum Seen<T> {
    /// The condition holds.
    Yes(T),
    /// It does not hold yet. The text describes the observed state, for the message of a timeout.
    NotYet(String),
    /// It will not hold: the API server refuses the request itself. The text is the error.
    Refused(String),
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

    /// Returns the first listed item that is as expected.
    pub fn first(listed: Result<Vec<T>, kube::Error>, is_wanted: impl FnMut(&T) -> bool) -> Self {
        match listed {
            Ok(items) => {
                let seen = format!("{items:#?}");
                let found = items.into_iter().find(is_wanted);
                found.map_or(Self::NotYet(seen), Self::Yes)
            }
            Err(error) => Self::of_error(&error),
        }
    }
}

impl<T> Seen<T> {
    /// What an error means for the check that has met it.
    pub fn of_error(error: &(dyn Error + 'static)) -> Self {
        if is_refusal(error) {
            Self::Refused(error.to_string())
        } else {
            Self::NotYet(error.to_string())
        }
    }

    /// The result of a request that the API server refuses until it has noticed a change, such as
    /// that of a definition.
    pub fn once_accepted(answer: Result<T, kube::Error>) -> Self {
        answer.map_or_else(|error| Self::NotYet(error.to_string()), Self::Yes)
    }
}

impl<T> From<Option<T>> for Seen<T> {
    fn from(found: Option<T>) -> Self {
        found.map_or_else(|| Self::NotYet("nothing".to_owned()), Self::Yes)
    }
}

impl<T, E: Display + 'static> From<Result<T, E>> for Seen<T> {
    /// The error is a description of the observed state, or that of a request.
    fn from(found: Result<T, E>) -> Self {
        let seen = match found {
            Ok(value) => return Self::Yes(value),
            Err(seen) => seen,
        };
        let any: &dyn Any = &seen;
        match any.downcast_ref::<kube::Error>() {
            Some(error) => Self::of_error(error),
            None => Self::NotYet(seen.to_string()),
        }
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

/// Checks repeatedly until the condition holds. An error by which the API server refuses the
/// request itself is final, because no wait changes it. Other errors are not, because servers come
/// and go in these tests. A failure reports the last one.
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
            Ok(Seen::Refused(error)) => (error, true),
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

/// Whether the API server refuses the request itself: it is malformed (400), not allowed (403), or
/// invalid (422). Not found (404), a conflict (409), and a webhook that does not answer (500) pass.
fn is_refusal<'error>(error: &'error (dyn Error + 'static)) -> bool {
    let cause = |error: &&'error (dyn Error + 'static)| (*error).source();
    let causes = successors(Some(error), cause);
    let mut answers = causes.filter_map(|cause| match cause.downcast_ref() {
        Some(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    });
    answers.any(|code| matches!(code, 400 | 403 | 422))
}

/// Waits until `answers`. An error of `check` is final: the server has ended. The outer error is
/// the timeout.
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

/// [`until`] for the body of a test: a check returns the found value, or describes the observed
/// state.
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

/// Runs a step that a user waits for, and prints its time. Its bound is ten times the median of
/// recorded runs, and at least a minute.
///
/// # Panics
/// Panics if the step took longer.
pub async fn within<T>(what: &str, median: Duration, step: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let done = step.await;
    let (took, bound) = (begun.elapsed(), LEAST_BOUND.max(median * SLOWER));
    println!("{what}: {took:.2?}; the median is {median:.2?}, and the bound {bound:?}");
    assert!(took <= bound, "{what}: {took:?}, longer than {bound:?}");
    done
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answer(code: u16) -> Result<(), kube::Error> {
        let status = Status::failure("no", "Reason").with_code(code);
        Err(kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn only_an_error_that_no_wait_changes_is_final() {
        for (code, is_final) in [
            (400, true),
            (403, true),
            (422, true),
            (404, false),
            (409, false),
            (500, false),
        ] {
            let seen = Seen::from(answer(code));
            assert_eq!(matches!(seen, Seen::Refused(_)), is_final, "{code}");
            assert!(
                matches!(Seen::once_accepted(answer(code)), Seen::NotYet(_)),
                "{code}"
            );
        }
        assert!(matches!(Seen::<()>::from(Err("no Pod")), Seen::NotYet(_)));
    }

    #[tokio::test]
    async fn a_refusal_ends_a_wait_at_once() {
        let mut looks = 0;
        let waited = until("a Pod", PATIENCE, async || {
            looks += 1;
            Ok::<_, Infallible>(Seen::from(answer(403)))
        });
        let error = waited.await.expect_err("it is refused").to_string();
        assert!(error.contains("a Pod; last seen: "), "{error}");
        assert_eq!(looks, 1);
    }
}
