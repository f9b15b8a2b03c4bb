//! Handles panics: a panic in the work on one object or request ends only that work. Any other
//! panic ends the process, because otherwise a task would be missing unnoticed.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::LazyLock;
use std::task::Poll;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::task::{JoinError, spawn_blocking};

const _: () = assert!(
    cfg!(panic = "unwind"),
    "a panic on one object would end the process"
);

/// Number of caught panics in this process.
static CAUGHT: LazyLock<Counter> = LazyLock::new(Counter::default);

thread_local! {
    /// Whether a panic of this thread is caught.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Work that ended with a panic, which is a defect of the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it ended in a panic, which is a fault of the operator: {0}")]
pub struct Panicked(String);

impl From<JoinError> for Panicked {
    fn from(error: JoinError) -> Self {
        Self(error.to_string())
    }
}

/// Logs every panic, and ends the process after an uncaught one.
pub fn install() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string);
        let place = place.unwrap_or_default();
        let reason = text(info.payload());
        if IS_CAUGHT.get() {
            tracing::error!(
                place,
                "work on one object or request ended in a panic: {reason}"
            );
        } else {
            tracing::error!(place, "the process ends with a panic: {reason}");
            std::process::abort();
        }
    }));
}

/// Does the work on one object or request. A panic ends nothing else.
pub fn caught<T>(work: impl Future<Output = T>) -> impl Future<Output = Result<T, Panicked>> {
    // On the heap, so that the waiting future stays small.
    let mut work = Box::pin(work);
    std::future::poll_fn(move |context| {
        let work = work.as_mut();
        match caught_now(|| work.poll(context)) {
            Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(panicked) => Poll::Ready(Err(panicked)),
        }
    })
}

/// The same for synchronous work. Partial changes are dropped with the work, or a lock protects
/// complete ones.
pub fn caught_now<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    let outer = IS_CAUGHT.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(outer);
    done.map_err(|cause| {
        CAUGHT.inc();
        Panicked(text(&*cause))
    })
}

/// The same for work that would block other tasks, on a separate thread.
pub async fn caught_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Panicked> {
    spawn_blocking(|| caught_now(work)).await?
}

/// Responds to a request even if the handler panics.
pub async fn answered(request: Request, next: Next) -> Response {
    let answered = caught(next.run(request)).await;
    answered.unwrap_or_else(|panicked| {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        (status, format!("there is no answer: {panicked}\n")).into_response()
    })
}

/// Registers the count of panics.
pub fn register(registry: &mut Registry) {
    registry.register(
        "panics",
        "Reconciles, requests and other work on one object that ended in a panic",
        CAUGHT.clone(),
    );
}

fn text(cause: &(dyn Any + Send)) -> String {
    let text = cause.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| cause.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no reason given".to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use axum::Router;
    use axum::body::Body;
    use axum::middleware;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn a_panic_ends_the_work_and_nothing_else() {
        let before = CAUGHT.get();
        let odd = caught(async {
            tokio::task::yield_now().await;
            panic!("odd object {}", 7)
        });
        let (odd, good): (Result<(), _>, _) = tokio::join!(odd, caught(async { 5 }));
        assert!(odd.unwrap_err().to_string().ends_with("odd object 7"));
        assert_eq!(good, Ok(5));
        assert!(CAUGHT.get() > before);
        assert!(!IS_CAUGHT.get(), "it counts for the work alone");
    }

    #[tokio::test]
    async fn a_request_that_panics_is_answered_and_so_is_the_next() {
        async fn odd() {
            panic!("odd request");
        }
        let routes = Router::new()
            .route("/odd", get(odd))
            .route("/good", get(async || "good"))
            .layer(middleware::from_fn(answered));
        for (path, status) in [("/odd", 500), ("/good", 200), ("/odd", 500)] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let answer = routes.clone().oneshot(request).await.unwrap();
            assert_eq!(answer.status(), status, "{path}");
        }
    }

    /// Identifies the child process of the test.
    const CHILD: &str = "IPU_OPERATOR_TEST_OF_PANICS";

    #[test]
    fn a_panic_ends_the_process_where_nobody_catches_it() {
        if std::env::var_os(CHILD).is_some() {
            install();
            assert!(caught_now(|| panic!("caught")).is_err());
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let elsewhere = caught_blocking(|| panic!("caught elsewhere"));
            let elsewhere: Result<(), _> = runtime.unwrap().block_on(elsewhere);
            assert!(elsewhere.is_err());
            eprintln!("goes on");
            let _ = std::thread::spawn(|| panic!("not caught")).join();
            return;
        }
        let this = "panics::tests::a_panic_ends_the_process_where_nobody_catches_it";
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", this, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&child.stderr);
        assert!(printed.contains("goes on"), "{printed}");
        assert_eq!(child.status.signal(), Some(6), "{printed}");
    }
}
