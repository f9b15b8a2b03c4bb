//! The client of the API server, which counts all requests of a process and ends those without an answer.

mod request_info;

use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{Request, Response};
use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use jiff::Timestamp;
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tower::{BoxError, Layer, Service};

use self::request_info::request_info;
use crate::clock;

/// Longest time without data from the API server on a connection. A watch without events lasts 290 s.
const READ_TIMEOUT: Duration = Duration::from_mins(5);

/// Deadline of a request for which a client waits.
pub const API_TIMEOUT: Duration = Duration::from_secs(10);

/// Deadline of every request but a watch: a loop whose answer is lost must not stand still for as long as a watch may.
/// The API server itself ends a request after a minute, and a webhook may delay it by half of that.
const BACKGROUND_TIMEOUT: Duration = Duration::from_secs(65);

/// The API server did not answer within [`BACKGROUND_TIMEOUT`].
#[derive(Debug, thiserror::Error)]
#[error("no answer within {} s", BACKGROUND_TIMEOUT.as_secs())]
struct NoAnswer;

/// Returns the answer to a request with its whole content, or an error after [`BACKGROUND_TIMEOUT`]. The API server may
/// still carry out the request.
pub fn with_timeout<T>(
    request: impl Future<Output = kube::Result<T>>,
) -> impl Future<Output = kube::Result<T>> {
    // Not an async function, whose future would contain the request twice.
    let answer = tokio::time::timeout(BACKGROUND_TIMEOUT, request);
    answer.map(|answer| answer.unwrap_or_else(|_| Err(kube::Error::Service(NoAnswer.into()))))
}

/// Requests to the API server. Cheap to clone; all clones count the same.
#[derive(Clone, Debug, Default)]
pub struct ApiCalls {
    calls: Family<Call, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    verb: &'static str,
    resource: String,
    code: u16,
}

impl ApiCalls {
    /// A client of the Pod's API server, or of the kubeconfig. It counts its requests.
    pub async fn client(&self) -> Result<Client, kube::Error> {
        let config = Config::infer().await.map_err(kube::Error::InferConfig)?;
        self.client_of(config)
    }

    /// A client with this configuration. It counts its requests.
    pub fn client_of(&self, mut config: Config) -> Result<Client, kube::Error> {
        config.read_timeout = Some(READ_TIMEOUT);
        // Otherwise the time since the last answer on the connection counts too.
        config.reset_reader_on_write = true;
        Ok(ClientBuilder::try_from(config)?.with_layer(self).build())
    }

    /// Registers these metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "api_requests",
            "Requests to the API server, by verb, resource and status code; 0 if no answer came",
            self.calls.clone(),
        );
    }
}

impl<S> Layer<S> for ApiCalls {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted {
            inner,
            calls: self.clone(),
        }
    }
}

/// A client's service that counts its requests, and ends those without an answer. Answers set the clock.
#[derive(Clone, Debug)]
pub struct Counted<S> {
    inner: S,
    calls: ApiCalls,
}

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError> + 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let uri = request.uri();
        let (verb, resource) = request_info(request.method().as_str(), uri.path(), uri.query());
        let calls = self.calls.clone();
        let asked = Timestamp::now();
        let answered = self.inner.call(request).map_err(Into::into);
        let answered = if verb == "watch" {
            answered.left_future()
        } else {
            let answer = tokio::time::timeout(BACKGROUND_TIMEOUT, answered);
            let answer = answer.map(|answer| answer.unwrap_or_else(|_| Err(NoAnswer.into())));
            answer.right_future()
        };
        let counted = answered.map(move |answer| {
            if let Ok(answer) = &answer {
                clock::adjust(answer.headers(), asked);
            }
            let code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
            let call = Call {
                verb,
                resource,
                code,
            };
            calls.calls.get_or_create(&call).inc();
            answer
        });
        counted.boxed()
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::time::{Instant, timeout};

    use super::*;

    /// Longer than every deadline.
    const BOUND: Duration = Duration::from_hours(1);

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_ends_long_before_a_watch() {
        // The kernel accepts the connection.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let config = Config::new(address.parse().unwrap());
        let client = ApiCalls::default().client_of(config).unwrap();
        let began = Instant::now();
        let answer = timeout(BOUND, client.apiserver_version()).await;
        let error = answer.expect("it has a deadline").unwrap_err();
        let text = ipu_text::explain(&error);
        assert!(text.contains("no answer within 65 s"), "{text}");
        let waited = began.elapsed();
        let watch = Request::get("/api/v1/pods?watch=true").body(Vec::new());
        let answer = timeout(BOUND, client.request_text(watch.unwrap())).await;
        answer.expect("it has a deadline").unwrap_err();
        let watched = began.elapsed().saturating_sub(waited);
        assert!(watched > Duration::from_secs(290), "{watched:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_fails_at_its_deadline() {
        let request = std::future::pending::<kube::Result<()>>();
        let answer = timeout(BOUND, with_timeout(request)).await;
        let error = answer.expect("it has a deadline").unwrap_err();
        let text = ipu_text::explain(&error);
        assert!(text.contains("no answer within 65 s"), "{text}");
    }
}
