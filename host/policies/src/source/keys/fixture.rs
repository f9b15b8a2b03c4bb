//! An API server with ConfigMaps of modules and keys, for the tests of signatures.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response, StatusCode};
use ipu_api::guest::digest::digest_of;
use ipu_api::ipupolicy::ModuleSource;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use rcgen::{KeyPair, SigningKey};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tower::{BoxError, service_fn};

use crate::source::Sources;
use crate::source::cache_dir::CacheDir;

pub(crate) const MODULE: &[u8] = b"\0asm, a module";

/// An API server with ConfigMaps, and the folder of a process.
pub(crate) struct World {
    pub(crate) maps: Arc<Mutex<BTreeMap<String, Value>>>,
    pub(crate) is_down: Arc<Mutex<bool>>,
    pub(crate) requests: Requests,
    pub(crate) folder: tempfile::TempDir,
}

/// Counts the requests that the API server answers at once.
#[derive(Clone, Default)]
pub(crate) struct Requests(Arc<Mutex<(usize, usize)>>);

impl Requests {
    async fn count(&self) {
        {
            let (present, most) = &mut *self.0.lock();
            *present += 1;
            *most = (*most).max(*present);
        }
        tokio::task::yield_now().await;
        self.0.lock().0 -= 1;
    }

    /// Returns the most requests at once.
    pub(crate) fn most(&self) -> usize {
        self.0.lock().1
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            maps: Arc::default(),
            is_down: Arc::default(),
            requests: Requests::default(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn put(&self, name: &str, data: &Value) {
        let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        json_patch::merge(&mut map, data);
        self.maps.lock().insert(name.to_owned(), map);
    }

    /// Writes the module, and its signature in this form.
    pub(crate) fn put_signed(&self, data: &Value) {
        self.put(
            "modules",
            &json!({"binaryData": {"x.wasm": STANDARD.encode(MODULE)}}),
        );
        let mut maps = self.maps.lock();
        json_patch::merge(maps.get_mut("modules").unwrap(), data);
    }

    pub(crate) fn sources(&self, required: Value) -> Sources {
        let (maps, is_down) = (self.maps.clone(), self.is_down.clone());
        let requests = self.requests.clone();
        let service = service_fn(move |request: Request<Body>| {
            let name = request.uri().path().rsplit('/').next().map(str::to_owned);
            let found = name.and_then(|name| maps.lock().get(&name).cloned());
            let (status, body) = match found {
                _ if *is_down.lock() => (StatusCode::INTERNAL_SERVER_ERROR, failure(500)),
                Some(map) => (StatusCode::OK, map),
                None => (StatusCode::NOT_FOUND, failure(404)),
            };
            let response = Response::builder().status(status);
            let response = response.body(Body::from(body.to_string().into_bytes()));
            let requests = requests.clone();
            async move {
                requests.count().await;
                Ok::<_, BoxError>(response.unwrap())
            }
        });
        let folder = self.folder.path().to_owned();
        Sources {
            client: Client::new(service, "default"),
            namespace: "default".to_owned(),
            guests_dir: folder.clone(),
            cache: Some(Arc::new(CacheDir::new(folder, 1 << 20))),
            shared: None,
            required_keys: serde_json::from_value(required).unwrap(),
            registries: Arc::new(Semaphore::new(1)),
        }
    }

    pub(crate) fn forget_cached(&self) {
        std::fs::remove_dir_all(self.folder.path().join("modules")).unwrap();
    }
}

fn failure(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code})
}

pub(crate) fn module() -> ModuleSource {
    let module = json!({
        "digest": digest_of(MODULE).as_str(),
        "configMap": {"name": "modules", "key": "x.wasm"},
    });
    serde_json::from_value(module).unwrap()
}

pub(crate) fn key() -> KeyPair {
    KeyPair::generate().unwrap()
}

pub(crate) fn pem(key: &KeyPair) -> Value {
    json!({"pem": key.public_key_pem()})
}

pub(crate) fn signature(key: &KeyPair) -> String {
    STANDARD.encode(key.sign(MODULE).unwrap())
}
