//! Leadership around a fake API server.

use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::json;
use tower::{BoxError, service_fn};

use super::*;

/// An API server that accepts the creation of a Lease, counts writes, and does not respond to later
/// requests for Leases.
fn server(writes: Arc<AtomicUsize>) -> Client {
    let leases = Arc::new(AtomicUsize::new(0));
    let service = service_fn(move |request: Request<Body>| {
        let (leases, writes) = (leases.clone(), writes.clone());
        async move {
            if !request.method().is_safe() {
                writes.fetch_add(1, Ordering::SeqCst);
            }
            let is_lease = request.uri().path().contains("/leases");
            if is_lease && leases.fetch_add(1, Ordering::SeqCst) >= 2 {
                std::future::pending::<()>().await;
            }
            let (status, body) = match *request.method() {
                Method::GET => (
                    404,
                    json!({"kind": "Status", "code": 404, "reason": "NotFound"}),
                ),
                _ => (201, json!({"metadata": {"name": "made"}})),
            };
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, BoxError>(Response::builder().status(status).body(body)?)
        }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn the_leadership_ends_before_another_replica_acquires_it_without_a_response() {
    let (lease_duration, writes) = (Duration::from_secs(3), Arc::default());
    let elector = Elector::new(server(writes), "default", "lease", "me", lease_duration);
    let leadership = elector.acquire().await;
    let others_wait_until = Instant::now() + lease_duration * 4 / 5;
    let ended_in_time = tokio::select! {
        biased;
        () = elector.renew_until_lost(&leadership) => true,
        () = tokio::time::sleep_until(others_wait_until) => false,
    };
    assert!(ended_in_time);
    assert!(!leadership.is_valid());
}

#[tokio::test]
async fn a_replica_without_leadership_can_read_and_cannot_write() {
    let writes = Arc::new(AtomicUsize::new(0));
    let leadership = Arc::new(Leadership {
        valid_until: Mutex::new(Instant::now() + Duration::from_hours(1)),
    });
    let client = fenced(&server(writes.clone()), leadership.clone());
    let maps = Api::<k8s_openapi::api::core::v1::ConfigMap>::default_namespaced(client);
    let (params, map) = (PostParams::default(), Default::default());
    maps.create(&params, &map).await.unwrap();
    leadership.set_valid_until(Instant::now());
    let refused = maps.create(&params, &map).await.unwrap_err();
    let refused = ipu_text::explain(&refused);
    assert!(refused.contains("leadership has expired"), "{refused}");
    assert!(maps.get_opt("map").await.unwrap().is_none());
    assert_eq!(writes.load(Ordering::SeqCst), 1);
}
