//! The REST of the V-IPU proxy: reads for everybody on a plain port; the same, and IPUPartitions
//! for users with a token, on a port with TLS.
//!
//! Entry points: [`plain`], [`secure`] and [`probes`] are the routes of the three ports, which the
//! proxy serves. It reads what `ipu-partitions` knows, and creates and deletes IPUPartitions; it
//! decides on none of them.
#![forbid(unsafe_code)]

pub mod answers;
mod api_error;
pub mod authorizer;
mod bearer;
mod caller;
mod controllers;
pub mod create_request;
mod duplicate_keys;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
#[cfg(any(test, fuzzing))]
mod invariants;
mod largest_size;
pub mod limits;
mod openapi;
mod operation;
mod owner_metadata;
mod page;
mod partitions;
pub mod problem;
mod query;
mod query_permits;
pub mod query_request;
mod reads;
mod recent;
mod representation;
mod sources;
mod token_cache;
pub mod what_if;

#[cfg(test)]
mod tests;

use axum::extract::{FromRef, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};

use openapi::ErrorFormat;
use operation::Operation;
use problem::{Kind, Problem};

use ipu_ports::limits::{REST, SECURE_REST};
use ipu_ports::metrics::Refused;
use ipu_runtime::panics;

pub use caller::Caller;
pub use partitions::SecureState;
pub use query_permits::Queries;
pub use sources::Sources;

/// The routes of port 8080.
pub fn plain(sources: Sources, refused: Refused) -> Router {
    let mut operations = reads::operations();
    operations.push(reads::summaries());
    let limits = (REST.port, refused);
    router(sources, operations, ErrorFormat::Plain, limits)
}

/// The routes of the port of the probes.
pub fn probes(sources: Sources) -> Router {
    reads::probes().with_state(sources)
}

/// The routes of port 8443.
pub fn secure(state: SecureState, refused: Refused) -> Router {
    let mut operations = reads::operations();
    operations.extend(partitions::operations());
    operations.push(partitions::controllers());
    let limits = (SECURE_REST.port, refused);
    router(state, operations, ErrorFormat::Problem, limits)
}

fn router<S>(
    state: S,
    operations: Vec<Operation<S>>,
    error_format: ErrorFormat,
    limits: (&'static str, Refused),
) -> Router
where
    S: Clone + Send + Sync + 'static,
    Sources: FromRef<S>,
{
    let operations = reads::with_document(operations, error_format);
    let paths: Vec<_> = operations.iter().map(|one| one.description.path).collect();
    let known = known(paths);
    operation::routes(operations, |router, bodies| {
        limits::bounded(router, bodies, limits)
    })
    .method_not_allowed_fallback(wrong_method)
    .fallback(
        move |uri: Uri| async move { Problem::of_field(Kind::Absent, "path", uri.path(), &known) },
    )
    .with_state(state)
    .layer(middleware::from_fn_with_state(error_format, render_problem))
    .layer(middleware::from_fn(panics::answered))
}

/// Adds the limits of the REST and the error format of port 8443 to other routes.
pub fn with_limits(routes: Router, limits: (&'static str, Refused)) -> Router {
    limits::bounded(routes, limits::BodyMax::new(), limits)
        .layer(middleware::from_fn_with_state(
            ErrorFormat::Problem,
            render_problem,
        ))
        .layer(middleware::from_fn(panics::answered))
}

/// The paths in words: `one of /a, /b and /c`.
fn known(mut paths: Vec<&str>) -> String {
    paths.sort_unstable();
    paths.dedup();
    let last = paths.pop().unwrap_or_default();
    format!("one of {} and {last}", paths.join(", "))
}

async fn wrong_method(method: Method, uri: Uri) -> Problem {
    let rule = match uri.path() {
        "/query" => "POST with a body such as {\"size\": 2}",
        "/partitions" => "GET to list, POST to create",
        path if path.starts_with("/partitions/") => "GET to read, DELETE to release",
        _ => "GET",
    };
    Problem::of_field(Kind::WrongMethod, "method", method.as_str(), rule)
}

/// Stores a problem in the extensions of the answer, until the port renders it in its error format.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.kind.status());
        let mut response = status
            .expect("every kind has a status of HTTP")
            .into_response();
        for (name, value) in &self.headers {
            // An invalid header value is omitted; the problem contains the same text.
            if let Ok(value) = HeaderValue::from_str(value) {
                response
                    .headers_mut()
                    .insert(HeaderName::from_static(name), value);
            }
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// Renders a problem in the error format of the port.
async fn render_problem(
    State(error_format): State<ErrorFormat>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path().to_owned();
    let mut response = next.run(request).await;
    let Some(problem) = response.extensions_mut().remove::<Problem>() else {
        return response;
    };
    let body = match error_format {
        ErrorFormat::Plain => Json(problem.plain()).into_response(),
        ErrorFormat::Problem => Json(problem.document(&path)).into_response(),
    };
    let (_, body) = body.into_parts();
    *response.body_mut() = body;
    let media_type = HeaderValue::from_static(error_format.media_type());
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response
}
