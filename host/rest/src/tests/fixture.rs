//! Both ports in-process, with a fake API server. Every response is validated against the document.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode};
use ipu_guest_host::{GuestHost, GuestHostOptions};
use ipu_partitions::Guarded;
use ipu_partitions::controllers::ControllerPool;
use ipu_partitions::nodes::nodes;
use ipu_partitions::store::watch::{PartitionWatch, watched};
use ipu_policies::active_policies::ActivePolicies;
use ipu_policies::namespace_usage::namespaces;
use ipu_ports::metrics::Refused;
use ipu_runtime::scope::{Conflicts, Scope};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::client::Body as KubeBody;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use tower::{BoxError, ServiceExt, service_fn};
use vipu_client::controllers::KEY;
use vipu_client::{Deadlines, Registry};

use crate::authorizer::Authorizer;
use crate::limits::UserRate;
use crate::{Queries, SecureState, Sources, plain, secure};

/// The audience that the authorizer requires.
const AUDIENCE: &str = "ipu-operator";

/// The state of the fake API server, and the requests that it received.
#[derive(Default)]
pub(super) struct World {
    /// IPUPartitions by name.
    pub(super) partitions: BTreeMap<String, Value>,
    /// UIDs of IPUJobs by `namespace/name`.
    pub(super) jobs: BTreeMap<String, String>,
    /// Every request, as `METHOD path`.
    pub(super) asked: Vec<String>,
    /// The specs of all access reviews.
    pub(super) rights: Vec<Value>,
    /// Whether requests fail.
    pub(super) is_down: bool,
    /// Whether requests get no response.
    pub(super) is_silent: bool,
    /// The response to a create request instead of a success.
    pub(super) refusal: Option<(u16, Value)>,
}

/// A response of one of the ports.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
}

/// Both ports.
pub(super) struct Ports {
    world: Arc<Mutex<World>>,
    watch: PartitionWatch,
    registry: Arc<Registry>,
    plain: Router,
    secure: Router,
}

impl Ports {
    pub(super) async fn open() -> Self {
        Self::open_at(UserRate::default()).await
    }

    /// With another rate limit of each user.
    pub(super) async fn open_at(rate: UserRate) -> Self {
        let world: Arc<Mutex<World>> = Arc::default();
        let (partitions, watch) = watched(namespaces().0, Scope::default());
        let registry = Arc::new(Registry::new(Deadlines::default()));
        let pool = ControllerPool::new(registry.clone(), nodes().0, partitions.clone());
        let sources = Sources {
            partitions,
            pool: Arc::new(pool),
            guests: no_policies().await,
            namespaces: namespaces().0,
            backfill_limit: Duration::from_mins(10),
            queries: Queries::default(),
            recent: Default::default(),
        };
        let client = fake(Arc::clone(&world));
        let state = SecureState {
            sources: sources.clone(),
            authorizer: Arc::new(Authorizer::with_rate(client.clone(), Some(AUDIENCE), rate)),
            scope: "default,team".parse().unwrap(),
            conflicts: Conflicts::default(),
            client,
        };
        Self {
            world,
            plain: plain(sources, Refused::default()),
            watch,
            registry,
            secure: secure(state, Refused::default()),
        }
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// Replaces the list of V-IPU controllers.
    pub(super) async fn list_controllers(&self, entries: &str) {
        let map = ConfigMap {
            data: Some([(KEY.to_owned(), entries.to_owned())].into()),
            ..ConfigMap::default()
        };
        let maps = futures::stream::iter([Ok::<_, Infallible>(Some(map))]);
        self.registry.follow(maps).await;
    }

    /// Applies an event of the watch of IPUPartitions.
    pub(super) fn apply_event(&self, event: Event<Guarded>) {
        self.watch.apply_event(event);
    }

    /// Sends a request to port 8080.
    pub(super) async fn plain(&self, method: &str, path: &str, body: impl Into<Body>) -> Answer {
        let request = Request::builder().method(method).uri(path);
        ask(&self.plain, request.body(body.into()).unwrap()).await
    }

    /// Sends a request to port 8443 with a token.
    pub(super) async fn secure(&self, token: &str, method: &str, path: &str, body: &str) -> Answer {
        let request = Request::builder().method(method).uri(path);
        let request = request
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json");
        self.send(request.body(body.to_owned().into()).unwrap())
            .await
    }

    /// As [`Self::secure`], from the address 10.0.0.`last`.
    pub(super) async fn secure_from(&self, last: u8, token: &str, path: &str) -> Answer {
        let request = Request::get(path).header("authorization", format!("Bearer {token}"));
        let mut request = request.body(Body::empty()).unwrap();
        let peer = SocketAddr::from(([10, 0, 0, last], 1_024));
        request.extensions_mut().insert(ConnectInfo(peer));
        self.send(request).await
    }

    /// Sends any request to port 8443.
    pub(super) async fn send(&self, request: Request<Body>) -> Answer {
        ask(&self.secure, request).await
    }
}

/// Policies without a module: the built-in placement decides.
pub(super) async fn no_policies() -> ActivePolicies {
    let options = GuestHostOptions::default();
    ActivePolicies::new(GuestHost::open(options).await.unwrap())
}

/// The body of a valid `POST /partitions`.
pub(super) fn create_body(change: impl FnOnce(&mut Value)) -> Value {
    let mut create_body = json!({
        "owner": {
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob",
            "namespace": "default", "name": "mnist", "uid": "a-uid",
        },
        "slot": 0, "ipus": 4, "gcds": 1,
    });
    change(&mut create_body);
    create_body
}

async fn ask(router: &Router, request: Request<Body>) -> Answer {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = router.clone().oneshot(request).await.unwrap();
    let answer = read(response).await;
    let document = router
        .clone()
        .oneshot(Request::get("/openapi.json").body(Body::empty()).unwrap());
    let document = read(document.await.unwrap()).await;
    if document.status == 200 {
        hold_against(&document.body, &method, &path, &answer);
    }
    answer
}

async fn read(response: Response<Body>) -> Answer {
    let (parts, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
    }
}

/// The response conforms to the document, including the type of each field.
fn hold_against(document: &Value, method: &Method, path: &str, answer: &Answer) {
    let media_type = answer.headers["content-type"].to_str().unwrap();
    let paths = document["paths"].as_object().unwrap();
    let known = paths.iter().find(|(known, _)| fits(known, path));
    let operation = known.and_then(|(_, methods)| methods.get(method.as_str().to_lowercase()));
    let Some(operation) = operation else {
        let status = if known.is_some() { 405 } else { 404 };
        assert_eq!(answer.status, status, "{method} {path}");
        assert_eq!(
            answer.headers.contains_key("allow"),
            status == 405,
            "{method} {path}"
        );
        return;
    };
    let described = &operation["responses"][answer.status.to_string()];
    assert!(
        described.is_object(),
        "{method} {path}: the description lacks {}",
        answer.status
    );
    let schema = &described["content"][media_type]["schema"];
    assert!(
        schema.is_object(),
        "{method} {path}: the description lacks {media_type}"
    );
    let whole = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "components": document["components"],
        "allOf": [schema],
    });
    let validator = validator(&whole);
    let errors: Vec<_> = validator
        .iter_errors(&answer.body)
        .map(|error| error.to_string())
        .collect();
    assert!(
        errors.is_empty(),
        "{method} {path}: {errors:?} in {}",
        answer.body
    );
}

/// Creating a validator takes longer than the rest of a request.
fn validator(schema: &Value) -> Arc<jsonschema::Validator> {
    static MADE: OnceLock<Mutex<BTreeMap<String, Arc<jsonschema::Validator>>>> = OnceLock::new();
    let mut made = MADE.get_or_init(Mutex::default).lock().unwrap();
    let make = || Arc::new(jsonschema::validator_for(schema).unwrap());
    Arc::clone(made.entry(schema.to_string()).or_insert_with(make))
}

/// Whether a path fits a template such as `/partitions/{name}`.
pub(super) fn fits(template: &str, path: &str) -> bool {
    let (template, path): (Vec<_>, Vec<_>) =
        (template.split('/').collect(), path.split('/').collect());
    let same = |(template, path): (&&str, &&str)| template.starts_with('{') || template == path;
    template.len() == path.len() && template.iter().zip(&path).all(same)
}

/// A client of a fake API server.
fn fake(world: Arc<Mutex<World>>) -> Client {
    let service = service_fn(move |request: Request<KubeBody>| {
        let world = Arc::clone(&world);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let path = parts.uri.path();
            let is_silent = {
                let mut world = world.lock().unwrap();
                world.asked.push(format!("{} {path}", parts.method));
                world.is_silent
            };
            if is_silent {
                std::future::pending::<()>().await;
            }
            let mut world = world.lock().unwrap();
            if world.is_down {
                return Err::<_, BoxError>("connection refused".into());
            }
            let (status, answer) = match path.rsplit('/').next() {
                Some("tokenreviews") => (201, token_review(body)),
                Some("subjectaccessreviews") => (201, world.access_review(body)),
                _ if path.contains("/ipujobs/") => world.job(path),
                _ => world.partition(&parts.method, path, body),
            };
            let answer = Response::builder()
                .status(StatusCode::from_u16(status).unwrap())
                .body(KubeBody::from(answer.to_string().into_bytes()));
            Ok(answer.unwrap())
        }
    });
    Client::new(service, "default")
}

/// Tokens are identified by their content.
fn token_review(mut review: Value) -> Value {
    let ours = &review["spec"]["audiences"];
    let user = json!({
        "username": format!("system:serviceaccount:default:{}", review["spec"]["token"].as_str().unwrap()),
        "groups": ["system:serviceaccounts"], "uid": "of-the-account", "extra": {"a": ["b"]},
    });
    review["status"] = match review["spec"]["token"].as_str().unwrap() {
        "expired" => json!({"authenticated": false, "error": "token has expired"}),
        "elsewhere" => json!({"authenticated": true, "audiences": ["elsewhere"], "user": user}),
        "of-old" => json!({"authenticated": true, "user": user}),
        "nobody" => json!({"authenticated": true, "audiences": ours}),
        _ => json!({"authenticated": true, "audiences": ours, "user": user}),
    };
    review
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code,
    });
    (code, status)
}

impl World {
    /// `admin` has all permissions, `reader` may read, and others have none.
    fn access_review(&mut self, mut review: Value) -> Value {
        self.rights.push(review["spec"].clone());
        let verb = review["spec"]["resourceAttributes"]["verb"]
            .as_str()
            .unwrap();
        let user = review["spec"]["user"].as_str().unwrap();
        let allowed = user.ends_with(":admin")
            || user.ends_with(":reader") && verb != "create" && verb != "delete";
        review["status"] = json!({"allowed": allowed});
        review
    }

    fn job(&self, path: &str) -> (u16, Value) {
        let parts: Vec<_> = path.split('/').collect();
        let key = format!("{}/{}", parts[5], parts[7]);
        match self.jobs.get(&key) {
            Some(uid) => (200, json!({"metadata": {"name": parts[7], "uid": uid}})),
            None => failure(404, "NotFound"),
        }
    }

    fn partition(&mut self, method: &Method, path: &str, body: Value) -> (u16, Value) {
        if let (&Method::POST, Some((code, status))) = (method, self.refusal.clone()) {
            return (code, status);
        }
        let name = match method {
            &Method::POST => body["metadata"]["name"].as_str().unwrap().to_owned(),
            _ => path.rsplit('/').next().unwrap().to_owned(),
        };
        match (method, self.partitions.get_mut(&name)) {
            (&Method::POST, Some(_)) => failure(409, "AlreadyExists"),
            (&Method::POST, None) => {
                let mut made = body;
                made["metadata"]["uid"] = json!(format!("uid-of-{name}"));
                made["metadata"]["managedFields"] = json!([{"manager": "ipu-operator"}]);
                self.partitions.insert(name, made.clone());
                (201, made)
            }
            (&Method::DELETE, Some(found)) => {
                let asked = &body["preconditions"]["uid"];
                if *asked != found["metadata"]["uid"] {
                    return failure(409, "Conflict");
                }
                found["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                (200, found.clone())
            }
            (_, Some(found)) => (200, found.clone()),
            (_, None) => failure(404, "NotFound"),
        }
    }
}
