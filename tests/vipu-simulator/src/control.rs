//! The control port, with plain HTTP and JSON: orders faults while the simulator runs, and shows
//! its calls.
//!
//! | request | what it does |
//! | --- | --- |
//! | `GET /healthz` | answers 200 |
//! | `GET /state` | the pod, its partitions, its free capacity, the active orders, the codes |
//! | `GET /calls?after=N` | every call after number N, and how it ended |
//! | `POST /faults` | adds an order (`faults::Order`) and returns its number |
//! | `DELETE /faults`, `DELETE /faults/N` | removes all orders, or one |
//! | `PUT /timings` | sets how long work takes (`pod::Timings`) |
//! | `PUT /codes` | which gRPC code is sent in which case (`codes::Codes`) |
//! | `POST /partitions` | makes a partition by hand, at once (`pod::PartitionSpec`) |
//! | `DELETE /partitions/ID` | deletes a partition at once |
//! | `POST /partitions/ID/error` | breaks it: `{"message": "…", "needs_force": false}` |
//! | `POST /partitions/ID/auto-reset` | resets it as the server does by itself |

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::codes::Codes;
use crate::faults::Order;
use crate::journal::Call;
use crate::pod::{PartitionSpec, Rejection, Timings};
use crate::server::Server;

/// The control port's routes.
pub(super) fn router(server: Arc<Server>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/state", get(state))
        .route("/calls", get(calls))
        .route("/faults", post(order).delete(clear))
        .route("/faults/{number}", delete(cancel))
        .route("/timings", put(timings))
        .route("/codes", put(codes))
        .route("/partitions", post(take))
        .route("/partitions/{id}", delete(forget))
        .route("/partitions/{id}/error", post(break_down))
        .route("/partitions/{id}/auto-reset", post(auto_reset))
        .with_state(server)
}

/// Selection of the shown calls.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct After {
    #[serde(default)]
    after: u64,
}

/// Fault of a partition.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Breakdown {
    message: String,
    #[serde(default)]
    needs_force: bool,
}

async fn state(State(server): State<Arc<Server>>) -> Json<Value> {
    Json(server.with(|world, now| {
        let (free, largest) = world.pod.free(now);
        let partitions: Vec<_> = world.pod.partitions(now).cloned().collect();
        let orders: Vec<_> = world
            .orders
            .standing()
            .iter()
            .map(|(number, order)| json!({"number": number, "order": order}))
            .collect();
        json!({
            "name": world.pod.name,
            "ipus": world.pod.ipus,
            "clusters": world.pod.clusters(),
            "free": free,
            "largestFreeBlock": largest,
            "timings": world.pod.timings,
            "partitions": partitions,
            "faults": orders,
            "codes": world.codes,
        })
    }))
}

async fn calls(
    State(server): State<Arc<Server>>,
    Query(After { after }): Query<After>,
) -> Json<Vec<Call>> {
    Json(server.calls(after))
}

async fn order(State(server): State<Arc<Server>>, Json(order): Json<Order>) -> Json<Value> {
    Json(json!({"number": server.order(order)}))
}

async fn clear(State(server): State<Arc<Server>>) {
    server.clear();
}

async fn cancel(State(server): State<Arc<Server>>, Path(number): Path<u32>) -> Response {
    if server.with(|world, _| world.orders.cancel(number)) {
        StatusCode::OK.into_response()
    } else {
        let text = format!("order {number} is not active; GET /state lists the active orders");
        refuse(StatusCode::NOT_FOUND, &text)
    }
}

async fn timings(State(server): State<Arc<Server>>, Json(timings): Json<Timings>) {
    server.with(|world, _| world.pod.timings = timings);
}

async fn codes(State(server): State<Arc<Server>>, Json(codes): Json<Codes>) {
    server.with(|world, _| world.codes = codes);
}

async fn take(State(server): State<Arc<Server>>, Json(spec): Json<PartitionSpec>) -> Response {
    answer(server.with(|world, now| world.pod.take(&spec, now)))
}

async fn forget(State(server): State<Arc<Server>>, Path(id): Path<String>) -> Response {
    answer(server.with(|world, now| world.pod.forget(&id, now)))
}

async fn break_down(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    Json(how): Json<Breakdown>,
) -> Response {
    answer(server.with(|world, now| {
        world
            .pod
            .break_down(&id, &how.message, how.needs_force, now)
    }))
}

async fn auto_reset(State(server): State<Arc<Server>>, Path(id): Path<String>) -> Response {
    answer(server.with(|world, now| world.pod.auto_reset(&id, now).map(|_| ())))
}

fn answer(result: Result<(), Rejection>) -> Response {
    match result {
        Ok(()) => StatusCode::OK.into_response(),
        Err(rejection) => {
            let status = match rejection {
                Rejection::Unknown(_) => StatusCode::NOT_FOUND,
                Rejection::Invalid(_) => StatusCode::BAD_REQUEST,
                Rejection::Full { .. }
                | Rejection::Exists(_)
                | Rejection::Busy { .. }
                | Rejection::Broken { .. } => StatusCode::CONFLICT,
            };
            refuse(status, &rejection.to_string())
        }
    }
}

fn refuse(status: StatusCode, text: &str) -> Response {
    (status, Json(json!({"error": text}))).into_response()
}
