//! A round over the nodes of a fake API server.

use std::sync::{Arc, Mutex};

use http::{Request, Response};
use ipu_placement::samples::view;
use kube::client::Body;
use serde_json::Value;
use tower::{BoxError, service_fn};

use super::*;

/// Two pages of nodes, which all reach the one controller. The API server refuses to patch those
/// whose names begin with `refused`.
fn answer(method: &str, path: &str, query: &str) -> (u16, Value) {
    let node = |name: &str| json!({"metadata": {"name": name, "labels": {"ipunode": "here"}}});
    let list = |names: &[&str], token: &str| {
        let items: Vec<Value> = names.iter().map(|name| node(name)).collect();
        let body = json!({
            "apiVersion": "v1", "kind": "List", "metadata": {"continue": token}, "items": items,
        });
        (200, body)
    };
    match (method, path) {
        ("GET", _) if query.contains("fieldSelector") => list(&["any"], ""),
        ("GET", _) if query.contains("continue=next") => list(&["last"], ""),
        ("GET", _) => list(&["refused-1", "first", "refused-2"], "next"),
        (_, path) if path.contains("/refused") => {
            let message = "no right to patch it";
            let status =
                json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": message});
            (403, status)
        }
        _ => (200, node("any")),
    }
}

/// A client of the fake API server, and the paths of the patches that it accepted.
fn server() -> (Client, Arc<Mutex<Vec<String>>>) {
    let accepted = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&accepted);
    let service = service_fn(move |request: Request<Body>| {
        let (method, uri) = (request.method().to_string(), request.uri().clone());
        let (code, body) = answer(&method, uri.path(), uri.query().unwrap_or_default());
        if method == "PATCH" && code == 200 {
            log.lock().unwrap().push(uri.path().to_owned());
        }
        let response = Response::builder().status(code);
        let response = response.body(Body::from(body.to_string().into_bytes()));
        std::future::ready(response.map_err(BoxError::from))
    });
    (Client::new(service, "default"), accepted)
}

fn known() -> Known {
    Known::of(&[view("here", 16, 0)], None)
}

#[tokio::test]
async fn a_node_that_cannot_be_patched_keeps_no_other_from_its_ipus() {
    let (client, accepted) = server();
    let failures = round(&client, &known()).await;
    let expected = ["first", "last"].map(|node| format!("/api/v1/nodes/{node}/status"));
    assert_eq!(*accepted.lock().unwrap(), expected);
    let text = listed(&failures);
    for node in ["refused-1", "refused-2"] {
        assert!(text.contains(&format!("node {node}: ")), "{text}");
    }
    assert!(text.contains("no right to patch it"), "{text}");
}

#[test]
fn many_failures_are_counted() {
    let failure =
        |number: usize| AdvertiseError::Patch(format!("node-{number}"), kube::Error::TlsRequired);
    let failures: Vec<_> = (0..7).map(failure).collect();
    let text = listed(&failures);
    assert!(
        text.contains("node-4") && !text.contains("node-5"),
        "{text}"
    );
    assert!(text.ends_with("; and 2 more"), "{text}");
    assert!(!listed(&failures[..5]).contains("more"));
}
