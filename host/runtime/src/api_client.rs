//! The client of the API server, which counts all requests of a process and ends those without an
//! answer.

mod request_info;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::http::{Request, Response};
use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use jiff::Timestamp;
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tower::{BoxError, Layer, Service};

use self::request_info::request_info;
use crate::clock;

/// Longest time without data from the API server on a connection. A watch without events lasts 290
/// s.
const READ_TIMEOUT: Duration = Duration::from_mins(5);

/// Deadline of a request for which a client waits.
pub const API_TIMEOUT: Duration = Duration::from_secs(10);

/// Deadline of every request but a watch: a loop whose answer is lost must not stand still for as
/// long as a watch may. The API server itself ends a request after a minute, and a webhook may
/// delay it by half of that.
const BACKGROUND_TIMEOUT: Duration = Duration::from_secs(65);

/// The API server did not answer within [`BACKGROUND_TIMEOUT`].
#[derive(Debug, thiserror::Error)]
#[error("no answer within {} s", BACKGROUND_TIMEOUT.as_secs())]
struct NoAnswer;

/// Returns the answer to a request with its whole content, or an error after
/// [`BACKGROUND_TIMEOUT`]. The API server may still carry out the request.
pub fn with_timeout<T>(
    request: impl Future<Output = kube::Result<T>>,
) -> impl Future<Output = kube::Result<T>> {
    // Not an async function, whose future would contain the request twice.
    let answer = tokio::time::timeout(BACKGROUND_TIMEOUT, request);
    answer.map(|answer| answer.unwrap_or_else(|_| Err(kube::Error::Service(NoAnswer.into()))))
}

/// Bounds of the buckets of a request's duration, in seconds: those of Kubernetes' Go client.
const BUCKETS: [f64; 12] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];

/// Requests to the API server. Cheap to clone; all clones count the same.
#[derive(Clone, Debug)]
pub struct ApiCalls {
    calls: Family<Call, Counter>,
    requests: Family<StandardCall, Counter>,
    durations: Family<StandardVerb, Histogram, fn() -> Histogram>,
    /// Host of the API server, as the standard metrics name it.
    host: Arc<str>,
}

/// Labels of a request under the names of Kubernetes' Go client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StandardCall {
    code: String,
    host: String,
    method: String,
}

/// Labels of the duration of a request there. The method is called verb.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StandardVerb {
    host: String,
    verb: String,
}

impl Default for ApiCalls {
    fn default() -> Self {
        Self {
            calls: Family::default(),
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            host: "".into(),
        }
    }
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
        let calls = Self {
            host: config
                .cluster_url
                .authority()
                .map_or("", |host| host.as_str())
                .into(),
            ..self.clone()
        };
        Ok(ClientBuilder::try_from(config)?.with_layer(&calls).build())
    }

    /// Registers the metrics under the names of Kubernetes' Go client, in a registry without a
    /// prefix.
    pub fn register_standard(&self, registry: &mut Registry) {
        registry.register(
            "rest_client_requests",
            "Requests to the API server, by status code, method and host",
            self.requests.clone(),
        );
        registry.register_with_unit(
            "rest_client_request_duration",
            "How long the API server took to begin its answer, by method and host",
            Unit::Seconds,
            self.durations.clone(),
        );
    }

    /// Counts a request under the names of Kubernetes' Go client.
    fn count_standard(&self, method: &str, code: Option<u16>, took: Duration) {
        let (host, method) = (self.host.to_string(), method.to_owned());
        let call = StandardCall {
            code: code.map_or_else(|| "<error>".to_owned(), |code| code.to_string()),
            host: host.clone(),
            method: method.clone(),
        };
        self.requests.get_or_create(&call).inc();
        let verb = StandardVerb { host, verb: method };
        let took = took.as_secs_f64();
        self.durations.get_or_create(&verb).observe(took);
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

/// A client's service that counts its requests, and ends those without an answer. Answers set the
/// clock.
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
        let (asked, began) = (Timestamp::now(), Instant::now());
        let method = request.method().to_string();
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
            let code = answer.as_ref().ok().map(|answer| answer.status().as_u16());
            calls.count_standard(&method, code, began.elapsed());
            let code = code.unwrap_or_default();
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
    use tokio::time::timeout;

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
        let began = tokio::time::Instant::now();
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

    #[tokio::test]
    async fn a_request_without_an_answer_counts_under_the_standard_names() {
        let calls = ApiCalls::default();
        // Nothing listens on this port of the machine itself.
        let config = Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = calls.client_of(config).unwrap();
        client.apiserver_version().await.unwrap_err();
        let (mut registry, mut printed) = (Registry::default(), String::new());
        calls.register_standard(&mut registry);
        prometheus_client::encoding::text::encode(&mut printed, &registry).unwrap();
        let sample =
            "rest_client_requests_total{code=\"<error>\",host=\"127.0.0.1:1\",method=\"GET\"} 1";
        assert!(printed.lines().any(|line| line == sample), "{printed}");
    }
}
