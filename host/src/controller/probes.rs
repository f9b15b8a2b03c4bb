//! The kubelet's probes: `/healthz` reports that the process lives, `/readyz` that it can serve.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tokio_util::sync::CancellationToken;

/// Steps that the process must complete before it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// The built-in guests and the active policies are loaded.
    PoliciesLoaded = 1,
    /// The webhooks serve with a certificate.
    WebhooksServing = 2,
    /// The webhook configurations contain the CA.
    CaRegistered = 4,
}

impl Step {
    const ALL: [(Self, &'static str); 3] = [
        (Self::PoliciesLoaded, "the policies are not loaded yet"),
        (
            Self::WebhooksServing,
            "the webhooks have no certificate yet",
        ),
        (
            Self::CaRegistered,
            "the CA is not in the webhook configurations yet",
        ),
    ];
}

/// The completed steps. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicU8>);

impl Readiness {
    /// Records that a step is completed.
    pub fn reached(&self, step: Step) {
        self.0.fetch_or(step as u8, Ordering::AcqRel);
    }

    /// Describes the missing steps. Empty: the process is ready.
    pub fn missing(&self) -> Vec<&'static str> {
        let reached = self.0.load(Ordering::Acquire);
        let steps = Step::ALL.into_iter();
        steps
            .filter(|(step, _)| reached & *step as u8 == 0)
            .map(|(_, missing)| missing)
            .collect()
    }
}

/// The probes. From `stop` on, the process lives but is no longer ready.
pub fn router(readiness: Readiness, stop: CancellationToken) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state((readiness, stop))
}

async fn ready(
    State((readiness, stop)): State<(Readiness, CancellationToken)>,
) -> (StatusCode, String) {
    if stop.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "ending\n".to_owned());
    }
    let missing = readiness.missing();
    if missing.is_empty() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    (StatusCode::SERVICE_UNAVAILABLE, missing.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tokio_util::sync::CancellationToken;
    use tower::ServiceExt;

    use super::{Readiness, Step, router};

    async fn probe(path: &str, readiness: &Readiness, stop: &CancellationToken) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let router = router(readiness.clone(), stop.clone());
        let response = router.oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), 4096).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn ready_only_when_every_step_is_reached_and_not_at_the_end() {
        let (readiness, stop) = (Readiness::default(), CancellationToken::new());
        assert_eq!(probe("/healthz", &readiness, &stop).await.0, 200);
        for (step, missing) in Step::ALL {
            let (status, text) = probe("/readyz", &readiness, &stop).await;
            assert_eq!(status, 503);
            assert!(text.contains(missing), "{text}");
            readiness.reached(step);
        }
        assert_eq!(probe("/readyz", &readiness, &stop).await.0, 200);
        stop.cancel();
        assert_eq!(probe("/readyz", &readiness, &stop).await.0, 503);
        assert_eq!(probe("/healthz", &readiness, &stop).await.0, 200);
    }
}
