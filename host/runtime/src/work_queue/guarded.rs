//! One guarded reconcile: it has a time limit, it is measured, its panics are caught, and its
//! failure is logged.

use std::error::Error;
use std::fmt::Display;
use std::time::Duration;

use ipu_text::explain;

use super::Requeue;
use super::metrics::Reconciles;
use crate::panics::{self, Panicked};

/// Back-off of failed reconciles. Stale caches catch up within a second. Other causes end without a
/// change, or need a user.
const BACK_OFF: Requeue = Requeue::BackOff {
    first: Duration::from_millis(250),
    most: Duration::from_mins(1),
};

/// An error of the steps of a reconcile.
pub trait StepError: Error + 'static {
    /// Returns the value of the metrics label `category`, unless [`Self::is_stale`].
    fn category(&self) -> &'static str;

    /// Whether another client has changed the object since it was read, so that the cache was
    /// stale.
    fn is_stale(&self) -> bool;
}

/// A failed reconcile.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError<E> {
    /// A step failed.
    #[error(transparent)]
    Step(E),
    /// It exceeded its time limit.
    #[error("it did not end within {0:?}")]
    Deadline(Duration),
    /// It panicked.
    #[error(transparent)]
    Panicked(Panicked),
}

impl<E: StepError> ReconcileError<E> {
    fn category(&self) -> &'static str {
        match self {
            Self::Step(_) if self.is_stale() => "Conflict",
            Self::Step(error) => error.category(),
            Self::Deadline(_) => "Deadline",
            Self::Panicked(_) => "Panic",
        }
    }

    fn is_stale(&self) -> bool {
        matches!(self, Self::Step(error) if error.is_stale())
    }
}

/// Carries out the steps of one reconcile of `object`. After a failure the object backs off.
pub async fn guarded<E: StepError>(
    object: &impl Display,
    reconciles: &Reconciles,
    limit: Duration,
    steps: impl Future<Output = Result<Option<Duration>, E>>,
) -> Requeue {
    match measured(reconciles, Some(limit), steps).await {
        Ok(delay) => delay.into(),
        Err(error) => {
            let controller = reconciles.kind();
            if error.is_stale() {
                tracing::debug!(controller, %object, "the cache was stale; trying again");
            } else {
                let cause = explain(&error);
                tracing::warn!(controller, %object, "failed to reconcile: {cause}");
            }
            BACK_OFF
        }
    }
}

/// Carries out the steps of one reconcile, and leaves its failure to the caller. Without a limit it
/// takes any time.
pub async fn measured<T, E: StepError>(
    reconciles: &Reconciles,
    limit: Option<Duration>,
    steps: impl Future<Output = Result<T, E>>,
) -> Result<T, ReconcileError<E>> {
    let running = reconciles.begin();
    let limited = async move {
        let Some(limit) = limit else {
            return steps.await.map_err(ReconcileError::Step);
        };
        match tokio::time::timeout(limit, steps).await {
            Ok(ended) => ended.map_err(ReconcileError::Step),
            Err(_) => Err(ReconcileError::Deadline(limit)),
        }
    };
    let outcome = panics::caught(limited)
        .await
        .unwrap_or_else(|panicked| Err(ReconcileError::Panicked(panicked)));
    running.end(outcome.as_ref().err().map(ReconcileError::category));
    outcome
}

#[cfg(test)]
mod tests {
    use std::future;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("failed to write")]
    struct WriteError {
        is_stale: bool,
    }

    impl StepError for WriteError {
        fn category(&self) -> &'static str {
            "Write"
        }

        fn is_stale(&self) -> bool {
            self.is_stale
        }
    }

    type Delay = Result<Option<Duration>, WriteError>;

    #[tokio::test]
    async fn success_requeues_as_the_steps_say_and_failure_backs_off() {
        let minute = Duration::from_mins(1);
        for (steps, expected) in [
            (Ok(None), Requeue::Never),
            (Ok(Some(minute)), Requeue::After(minute)),
            (Err(WriteError { is_stale: true }), BACK_OFF),
            (Err(WriteError { is_stale: false }), BACK_OFF),
        ] {
            let shown = format!("{steps:?}");
            let steps = future::ready(steps);
            let requeue = guarded(&"team/mnist", &Reconciles::default(), minute, steps).await;
            assert_eq!(requeue, expected, "{shown}");
        }
    }

    #[tokio::test]
    async fn each_failure_has_a_category_and_a_cause() {
        let failed = |is_stale| async move {
            let steps = future::ready(Delay::Err(WriteError { is_stale }));
            measured(&Reconciles::default(), None, steps).await
        };
        let late = async {
            let steps = future::pending::<Delay>();
            measured(&Reconciles::default(), Some(Duration::ZERO), steps).await
        };
        let panicked = async {
            let steps = async { panic!("odd object") };
            measured::<Option<Duration>, WriteError>(&Reconciles::default(), None, steps).await
        };
        for (outcome, category, cause) in [
            (failed(true).await, "Conflict", "failed to write"),
            (failed(false).await, "Write", "failed to write"),
            (late.await, "Deadline", "it did not end within 0ns"),
            (
                panicked.await,
                "Panic",
                "it ended in a panic, which is a fault of the operator: odd object",
            ),
        ] {
            let error = outcome.unwrap_err();
            assert_eq!(error.category(), category);
            assert_eq!(explain(&error), cause);
        }
    }
}
