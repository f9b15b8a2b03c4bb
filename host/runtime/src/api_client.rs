//! The client of the API server, which counts all requests of a process.

mod request_info;

use std::task::{Context, Poll};

use axum::http::{Request, Response};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tower::{Layer, Service};

use self::request_info::request_info;
use crate::clock;

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
    pub fn client_of(&self, config: Config) -> Result<Client, kube::Error> {
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

/// A client's service that counts its requests. Answers set the clock.
#[derive(Clone, Debug)]
pub struct Counted<S> {
    inner: S,
    calls: ApiCalls,
}

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let uri = request.uri();
        let (verb, resource) = request_info(request.method().as_str(), uri.path(), uri.query());
        let calls = self.calls.clone();
        let asked = Timestamp::now();
        let answered = self.inner.call(request);
        let counted = answered.map(move |answer| {
            if let Ok(answer) = &answer {
                clock::heard(answer.headers(), asked);
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
