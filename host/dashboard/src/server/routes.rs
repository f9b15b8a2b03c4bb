//! The routes of the server.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use ipu_api::dns1123::is_subdomain;
use ipu_text::explain;
use jiff::Timestamp;
use kube::Client;
use serde::Serialize;
use serde_json::json;
use tokio::sync::Semaphore;

use super::assets::{self, ASSETS};
use super::events::events;
use super::guard::{Guard, HEADERS, Refusal, RequestHead};
use super::parameters::Parameters;
use crate::Advise;
use crate::cluster::Cluster;
use crate::reading::{self, ReadError};
use crate::shared::Shared;
use crate::view;

/// Most pages that follow the events at a time.
const PAGES: usize = 16;

/// Most partitions that are read from the API server at a time.
const READS: usize = 4;

/// Sources of the views.
#[derive(Clone)]
pub struct Sources {
    shared: Shared,
    client: Client,
    advise: Advise,
    pages: Arc<Semaphore>,
    reads: Arc<Semaphore>,
}

impl Sources {
    /// The watched objects, a client for reads on demand, and the advice for an IPUJob.
    pub fn new(shared: Shared, client: Client, advise: Advise) -> Self {
        Self {
            shared,
            client,
            advise,
            pages: Arc::new(Semaphore::new(PAGES)),
            reads: Arc::new(Semaphore::new(READS)),
        }
    }
}

/// All routes, behind the guard.
pub fn router(sources: Sources, guard: Guard) -> Router {
    let mut routes = Router::new();
    for &(path, type_, text) in ASSETS {
        let path = format!("/{{token}}/{path}");
        routes = routes.route(
            &path,
            get(move || async move { assets::response(type_, text) }),
        );
    }
    routes
        .route("/{token}", get(to_page))
        .route("/{token}/api/overview", get(overview))
        .route("/{token}/api/controllers", get(controllers))
        .route("/{token}/api/queue", get(queue))
        .route("/{token}/api/partitions", get(partitions))
        .route("/{token}/api/partition/{name}", get(partition))
        .route("/{token}/api/job/{namespace}/{name}", get(job))
        .route("/{token}/api/policies", get(policies))
        .route("/{token}/api/goodput", get(goodput))
        .route("/{token}/api/history", get(history))
        .route("/{token}/api/events", get(follow))
        .fallback(|| async { message(StatusCode::NOT_FOUND, "there is nothing at this path") })
        .with_state(sources)
        .layer(middleware::from_fn_with_state(Arc::new(guard), guarded))
}

/// Refuses requests that are not from the page, and adds the headers that every response has.
async fn guarded(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let mut response = match check(&guard, &request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            let status = match refusal {
                Refusal::Host => StatusCode::MISDIRECTED_REQUEST,
                Refusal::Token => StatusCode::NOT_FOUND,
                Refusal::Method => StatusCode::METHOD_NOT_ALLOWED,
            };
            (status, refusal.to_string()).into_response()
        }
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        let get = HeaderValue::from_static("GET");
        response.headers_mut().insert(header::ALLOW, get);
    }
    response
}

fn check(guard: &Guard, request: &Request) -> Result<(), Refusal> {
    let hosts = hosts(request.headers());
    guard.check(RequestHead {
        method: request.method().as_str(),
        path: request.uri().path(),
        authority: request.uri().authority().map(Authority::as_str),
        hosts: &hosts,
    })
}

fn hosts(headers: &HeaderMap) -> Vec<&str> {
    let hosts = headers.get_all(header::HOST).iter();
    hosts
        .map(|host| host.to_str().unwrap_or_default())
        .collect()
}

/// Without the slash at its end, the URL would resolve relative paths differently.
async fn to_page(Path(token): Path<String>) -> Response {
    (
        StatusCode::PERMANENT_REDIRECT,
        [(header::LOCATION, format!("/{token}/"))],
    )
        .into_response()
}

async fn overview(State(sources): State<Sources>, uri: Uri) -> Response {
    answer(&sources, &uri, &["namespace"], |cluster, asked, now| {
        view::overview(cluster, asked.namespace.as_deref(), now)
    })
}

async fn controllers(State(sources): State<Sources>, uri: Uri) -> Response {
    let known = ["limit", "namespace", "offset", "sort"];
    answer(&sources, &uri, &known, |cluster, asked, now| {
        let namespace = asked.namespace.as_deref();
        view::controllers_in(cluster, asked.order, namespace, asked.page, now)
    })
}

async fn queue(State(sources): State<Sources>, uri: Uri) -> Response {
    let known = ["limit", "namespace", "offset"];
    answer(&sources, &uri, &known, |cluster, asked, now| {
        view::queue(cluster, asked.namespace.as_deref(), asked.page, now)
    })
}

async fn partitions(State(sources): State<Sources>, uri: Uri) -> Response {
    let known = ["controller", "limit", "namespace", "offset"];
    answer(&sources, &uri, &known, |cluster, asked, now| {
        let namespace = asked.namespace.as_deref();
        let controller = asked.controller.as_deref();
        view::partitions(cluster, namespace, controller, asked.page, now)
    })
}

async fn policies(State(sources): State<Sources>, uri: Uri) -> Response {
    answer(
        &sources,
        &uri,
        &["limit", "offset"],
        |cluster, asked, now| view::policies(cluster, asked.page, now),
    )
}

async fn goodput(State(sources): State<Sources>, uri: Uri) -> Response {
    let known = ["limit", "namespace", "offset"];
    answer(&sources, &uri, &known, |cluster, asked, now| {
        view::goodput(cluster, asked.namespace.as_deref(), asked.page, now)
    })
}

async fn history(State(sources): State<Sources>, uri: Uri) -> Response {
    answer(&sources, &uri, &["namespace"], |cluster, asked, now| {
        view::history(cluster, asked.namespace.as_deref(), now)
    })
}

/// A partition with its owner and the owner's Pods, read now.
async fn partition(
    State(sources): State<Sources>,
    Path((_, name)): Path<(String, String)>,
) -> Response {
    if !is_subdomain(&name) {
        let text = "the path does not end with the name of an IPUPartition, as kubectl get ipupartitions lists it";
        return message(StatusCode::BAD_REQUEST, text);
    }
    let Ok(_permit) = sources.reads.acquire().await else {
        return message(StatusCode::SERVICE_UNAVAILABLE, "the server ends");
    };
    let partition = match reading::partition(&sources.client, &name).await {
        Ok(partition) => partition,
        Err(error) => return refused(&error),
    };
    let around = reading::around(&sources.client, &partition).await;
    let now = Timestamp::now();
    let shown = sources
        .shared
        .read(|cluster| view::detail(cluster, &partition, &around, now));
    Json(shown).into_response()
}

/// An IPUJob with its partitions, Pods and events, read now.
async fn job(
    State(sources): State<Sources>,
    Path((_, namespace, name)): Path<(String, String, String)>,
) -> Response {
    if !is_subdomain(&namespace) || !is_subdomain(&name) {
        let text = "the path does not end with the namespace and the name of an IPUJob, as kubectl get ipujobs lists them";
        return message(StatusCode::BAD_REQUEST, text);
    }
    let Ok(_permit) = sources.reads.acquire().await else {
        return message(StatusCode::SERVICE_UNAVAILABLE, "the server ends");
    };
    let partitions = |uid: &str| sources.shared.read(|cluster| cluster.partitions_of(uid));
    match reading::job(&sources.client, &namespace, &name, partitions).await {
        Ok(read) => {
            let advice = (sources.advise)(&read, Timestamp::now());
            Json(view::job(&read, advice)).into_response()
        }
        Err(error) => refused(&error),
    }
}

fn refused(error: &ReadError) -> Response {
    let status = match error {
        ReadError::NotFound(_) | ReadError::NoJob(_) => StatusCode::NOT_FOUND,
        ReadError::Denied { .. } | ReadError::JobDenied { .. } => StatusCode::FORBIDDEN,
        ReadError::Unreadable(_) | ReadError::Failed(..) | ReadError::JobFailed(..) => {
            StatusCode::BAD_GATEWAY
        }
    };
    message(status, &explain(error))
}

/// The stream of events.
async fn follow(State(sources): State<Sources>) -> Response {
    if let Ok(permit) = sources.pages.try_acquire_owned() {
        Sse::new(events(sources.shared, permit))
            .keep_alive(KeepAlive::default())
            .into_response()
    } else {
        let text = format!("{PAGES} pages follow this server already: close one of them");
        message(StatusCode::SERVICE_UNAVAILABLE, &text)
    }
}

/// A view as JSON, or the error of the parameters.
fn answer<T: Serialize>(
    sources: &Sources,
    uri: &Uri,
    known: &[&'static str],
    view: impl FnOnce(&Cluster, &Parameters, Timestamp) -> T,
) -> Response {
    match Parameters::parse(uri.query().unwrap_or_default(), known) {
        Ok(asked) => {
            let now = Timestamp::now();
            let shown = sources.shared.read(|cluster| view(cluster, &asked, now));
            Json(shown).into_response()
        }
        Err(error) => message(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}

fn message(status: StatusCode, words: &str) -> Response {
    (status, Json(json!({"message": words}))).into_response()
}
