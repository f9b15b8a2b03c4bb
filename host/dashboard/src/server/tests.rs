//! The server as its clients see it.

mod job;

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use kube::Client;
use kube::core::DynamicObject;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::{ServiceExt, service_fn};

use super::assets::ASSETS;
use super::guard::{CONTENT_SECURITY_POLICY, Guard};
use super::routes::{Sources, router};
use crate::cluster::Kind;
use crate::projection::{Controller, Partition};
use crate::shared::Shared;

const HOST: &str = "127.0.0.1:8001";

/// A server with an API server that gives these answers by path, and the requests to it.
struct Server {
    routes: Router,
    shared: Shared,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(answers: &'static [(&'static str, u16, &'static str)]) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let api = service_fn(move |request: Request<kube::client::Body>| {
            let path = request.uri().path().to_owned();
            log.lock().push(path.clone());
            let found = answers.iter().find(|(own, ..)| *own == path);
            let (status, body) = found.map_or((500, "{}"), |(_, status, body)| (*status, *body));
            let response = Response::builder().status(status);
            let response = response.body(Body::from(body)).unwrap();
            async move { Ok::<_, Infallible>(response) }
        });
        let shared = Shared::default();
        let guard = Guard::new("secret", HOST, 8001);
        let client = Client::new(api, "default");
        Self {
            routes: router(
                Sources::new(shared.clone(), client, |_, _| vec!["wait".to_owned()]),
                guard,
            ),
            shared,
            asked,
        }
    }

    async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.routes.clone().oneshot(request).await.unwrap()
    }

    async fn get(&self, path: &str) -> Response<Body> {
        let request = Request::get(path).header(header::HOST, HOST);
        self.send(request.body(Body::empty()).unwrap()).await
    }

    async fn json(&self, path: &str) -> (StatusCode, Value) {
        let response = self.get(&format!("/secret/api/{path}")).await;
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    fn controllers(&self, count: usize) {
        let object = |number: usize| -> DynamicObject {
            let address = format!("pod{number:03}:8090");
            serde_json::from_value(json!({
                "apiVersion": "graphcore.ai/v1alpha1", "kind": "VIPUController",
                "metadata": {"name": format!("pod{number:03}-8090")}, "spec": {},
                "status": {
                    "address": address, "summary": "Ready",
                    "ipus": {"total": 64, "used": 0, "usedByOthers": 0, "largestFree": 64},
                },
            }))
            .unwrap()
        };
        self.shared.update(Kind::Controllers, |cluster| {
            cluster.controllers.apply(Event::Init, Controller::of);
            for number in 0..count {
                let event = Event::InitApply(object(number));
                cluster.controllers.apply(event, Controller::of);
            }
            cluster.controllers.apply(Event::InitDone, Controller::of);
        });
    }
}

fn is_guarded(response: &Response<Body>) {
    let headers = response.headers();
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-security-policy"), CONTENT_SECURITY_POLICY);
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert_eq!(header("referrer-policy"), "no-referrer");
    assert!(!headers.contains_key("access-control-allow-origin"));
    assert!(!headers.contains_key("set-cookie"));
}

#[tokio::test]
async fn the_page_is_served_with_a_policy_that_allows_nothing_else() {
    let server = Server::new(&[]);
    for &(path, type_, text) in ASSETS {
        let response = server.get(&format!("/secret/{path}")).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        assert_eq!(response.headers()[header::CONTENT_TYPE], type_);
        is_guarded(&response);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, text.as_bytes());
    }
    let response = server.get("/secret").await;
    assert_eq!(response.status(), StatusCode::PERMANENT_REDIRECT);
    assert_eq!(response.headers()[header::LOCATION], "/secret/");
    let response = server.get("/secret/other").await;
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    is_guarded(&response);
}

#[test]
fn the_page_names_nothing_of_the_internet_and_runs_no_text() {
    for (path, _, text) in ASSETS {
        let text = text.replace("http://www.w3.org/2000/svg", "");
        for wrong in [
            "http://",
            "https://",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "javascript:",
            " style=\"",
            " onclick",
            "<style",
            "@import",
        ] {
            assert!(!text.contains(wrong), "{path} contains {wrong}");
        }
    }
    let (_, _, page) = ASSETS[0];
    let scripts = page.matches("<script").count();
    let linked = page
        .matches("<script type=\"module\" src=\"page.js\"></script>")
        .count();
    assert_eq!((scripts, linked), (1, 1));
}

#[tokio::test]
async fn requests_without_secret_for_other_hosts_and_of_other_methods_are_refused() {
    let server = Server::new(&[]);
    server.controllers(1);
    let request = |method: Method, path: &str, host: &str| {
        let request = Request::builder().method(method).uri(path);
        request
            .header(header::HOST, host)
            .body(Body::empty())
            .unwrap()
    };
    let api = "/secret/api/controllers";
    for (method, path, host, expected) in [
        (Method::GET, api, HOST, 200),
        (Method::GET, api, "localhost:8001", 200),
        (Method::GET, api, "evil.example:8001", 421),
        (Method::GET, api, "127.0.0.1:9", 421),
        (Method::GET, "/other/api/controllers", HOST, 404),
        (Method::GET, "/api/controllers", HOST, 404),
        (Method::GET, "/", HOST, 404),
        (Method::GET, "http://evil.example/secret/", HOST, 421),
        (Method::HEAD, api, HOST, 405),
        (Method::POST, api, HOST, 405),
        (Method::DELETE, api, HOST, 405),
        (Method::OPTIONS, api, HOST, 405),
        (Method::POST, "/other/", HOST, 404),
    ] {
        let described = format!("{method} {path} {host}");
        let response = server.send(request(method, path, host)).await;
        assert_eq!(response.status(), expected, "{described}");
        is_guarded(&response);
        if expected == 405 {
            assert_eq!(response.headers()[header::ALLOW], "GET");
        }
    }
}

#[tokio::test]
async fn pages_are_bounded_and_wrong_parameters_are_named() {
    let server = Server::new(&[]);
    server.controllers(256);
    for (query, rows) in [
        ("", 50),
        ("?offset=250", 6),
        ("?offset=256", 0),
        ("?offset=10000000&limit=256", 0),
        ("?limit=256", 256),
    ] {
        let (status, json) = server.json(&format!("controllers{query}")).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(json["total"], 256);
        assert_eq!(json["rows"].as_array().unwrap().len(), rows, "{query}");
    }
    for (path, expected) in [
        ("controllers?limit=257", "from 1 to 256"),
        ("controllers?sort=size", "give address or problems"),
        (
            "controllers?offset=18446744073709551616",
            "from 0 to 10000000",
        ),
        ("queue?controller=a", "\"controller\" is unknown here"),
        ("partitions?namespace=%00", "no name of a namespace"),
        ("overview?offset=1", "\"offset\" is unknown here"),
        ("history?offset=1", "\"offset\" is unknown here"),
        ("partition/Up%20per", "name of an IPUPartition"),
        ("job/a/Up%20per", "name of an IPUJob"),
    ] {
        let (status, json) = server.json(path).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}");
        let message = json["message"].as_str().unwrap();
        assert!(message.contains(expected), "{path}: {message}");
    }
    assert!(server.asked.lock().is_empty());
}

#[tokio::test]
async fn each_view_names_what_the_rights_do_not_show() {
    let server = Server::new(&[]);
    server.shared.update(Kind::Partitions, |cluster| {
        cluster.partitions.refuse("forbidden".to_owned());
    });
    server.controllers(1);
    for view in ["overview", "controllers", "queue", "partitions"] {
        let (status, json) = server.json(view).await;
        assert_eq!(status, StatusCode::OK);
        let described = json["notShown"].to_string();
        let expected = "the IPUPartitions: forbidden (an admin can bind";
        assert!(described.contains(expected), "{view}: {described}");
    }
    for view in ["policies", "goodput", "history"] {
        let (status, json) = server.json(view).await;
        assert_eq!(status, StatusCode::OK);
        assert!(json["notShown"].is_array(), "{view}: {json}");
    }
}

/// The text of the next event of a stream.
async fn next(body: &mut Body) -> Option<String> {
    let frame = body.frame().await?.unwrap();
    Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
}

#[tokio::test]
async fn events_name_the_views_that_changed_and_end_with_the_rights() {
    let server = Server::new(&[]);
    server.controllers(1);
    let response = server.get("/secret/api/events").await;
    is_guarded(&response);
    assert_eq!(
        response.headers()[header::CONTENT_TYPE],
        "text/event-stream"
    );
    let mut body = response.into_body();
    let first = next(&mut body).await.unwrap();
    assert!(first.contains("event: changed"), "{first}");
    assert!(first.contains("policies"), "{first}");

    server.shared.update(Kind::Partitions, |cluster| {
        cluster.partitions.apply(Event::Init, Partition::of);
        cluster.partitions.apply(Event::InitDone, Partition::of);
    });
    let second = next(&mut body).await.unwrap();
    assert!(
        second.contains("[\"overview\",\"controllers\",\"queue\",\"partitions\"]"),
        "{second}"
    );

    server.shared.update(Kind::Partitions, |cluster| {
        cluster.partitions.refuse("forbidden".to_owned());
    });
    let last = next(&mut body).await.unwrap();
    assert!(last.contains("event: ended"), "{last}");
    assert!(
        last.contains("the API server ended the watch: forbidden"),
        "{last}"
    );
    assert_eq!(next(&mut body).await, None);

    // Another page gets the event at once.
    let mut body = server.get("/secret/api/events").await.into_body();
    let first = next(&mut body).await.unwrap();
    assert!(first.contains("event: ended"), "{first}");
}

#[tokio::test]
async fn so_many_pages_follow_and_no_more() {
    let server = Server::new(&[]);
    let mut pages = Vec::new();
    for _ in 0..16 {
        let response = server.get("/secret/api/events").await;
        assert_eq!(response.status(), StatusCode::OK);
        pages.push(response);
    }
    let (status, json) = server.json("events").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(json["message"].as_str().unwrap().starts_with("16 pages"));
    drop(pages);
    let response = server.get("/secret/api/events").await;
    assert_eq!(response.status(), StatusCode::OK);
}

const PARTITION: &str = r#"{
    "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition", "metadata": {"name": "a.train-0"},
    "spec": {
        "owner": {
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "namespace": "a", "name": "train",
            "uid": "u1"
        },
        "slot": 0, "ipus": 4, "gcds": 1
    }
}"#;

const FORBIDDEN: &str = r#"{
    "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403,
    "message": "pods is forbidden"
}"#;

#[tokio::test]
async fn a_partition_is_read_with_its_owner_and_missing_rights_are_named() {
    let partitions = "/apis/graphcore.ai/v1alpha1/ipupartitions";
    let server = Server::new(&[
        (
            "/apis/graphcore.ai/v1alpha1/ipupartitions/a.train-0",
            200,
            PARTITION,
        ),
        (
            "/apis/graphcore.ai/v1alpha1/ipupartitions/hidden",
            403,
            FORBIDDEN,
        ),
        (
            "/apis/graphcore.ai/v1alpha1/ipupartitions/gone",
            404,
            r#"{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}"#,
        ),
        (
            "/apis/graphcore.ai/v1alpha1/namespaces/a/ipujobs/train",
            403,
            FORBIDDEN,
        ),
        ("/api/v1/namespaces/a/pods", 403, FORBIDDEN),
    ]);
    let (status, json) = server.json("partition/a.train-0").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(json["state"], "waiting");
    let described = json["notShown"].to_string();
    for part in [
        "the IPUJob: pods is forbidden (an admin",
        "the Pods: pods is forbidden",
    ] {
        assert!(described.contains(part), "{described}");
    }
    assert_eq!(server.asked.lock()[0], format!("{partitions}/a.train-0"));
    let (status, _) = server.json("partition/hidden").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let (status, json) = server.json("partition/gone").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(
        json["message"]
            .as_str()
            .unwrap()
            .contains("there is no IPUPartition gone")
    );
}
