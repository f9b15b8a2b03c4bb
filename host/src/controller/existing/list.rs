//! Lists the existing objects of a release one by one, so that few of them are in memory.

use http::Request as HttpRequest;
use ipu_api::labels::NATIVE_POD_LABEL;
use ipu_policies::match_input::ReviewedResource;
use ipu_policies::match_samples::POD;
use ipu_runtime::bounded_json::{self, BoundedJsonError, Budget};
use ipu_runtime::scope::Scope;
use kube::api::ListParams;
use kube::core::{Request, request};
use kube::{Client, Error};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Memory limit of the parsed response. Jobs have some 30 KiB.
const TREE: usize = 8 << 20;

/// Size limit of an object in etcd. A growing buffer is copied, and the old half lives a moment
/// longer.
const TEXT: usize = (3 << 20) / 2 * 3 / 2;

/// Maximum memory of a review: the text of an object, and the object as the guest and the match
/// conditions get it.
pub const MEMORY: usize = TEXT + 2 * TREE;

/// One object of a list.
#[derive(Debug, PartialEq)]
pub(super) enum Listed {
    /// The object.
    Object(Value),
    /// The metadata of an object that needs too much memory, with the reason.
    TooLarge(Value, String),
}

/// Failure to list the objects.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListError {
    /// The API server gives no usable answer.
    #[error("failed to list the objects")]
    Read(#[from] Error),
    /// The API server sends metadata that are none.
    #[error("failed to parse the metadata of an object")]
    Parse(#[from] serde_json::Error),
}

/// The objects of a resource in the namespaces of a release.
pub(super) struct ObjectList {
    /// The paths of the lists that have not ended, the current one last.
    paths: Vec<String>,
    selector: Option<String>,
    /// The token of the next object. Empty at the beginning of a list.
    token: String,
}

impl ObjectList {
    /// Starts before the first object.
    pub(super) fn new(resource: ReviewedResource, scope: &Scope) -> Self {
        let paths = match scope.namespaces() {
            None => vec![resource.list_path(None)],
            Some(names) => names
                .iter()
                .map(|name| resource.list_path(Some(name)))
                .collect(),
        };
        Self {
            paths,
            selector: (resource == POD).then(|| format!("{NATIVE_POD_LABEL}=true")),
            token: String::new(),
        }
    }

    /// Reads the next object. `None` at the end.
    pub(super) async fn next(&mut self, client: &Client) -> Result<Option<Listed>, ListError> {
        while let Some(path) = self.paths.last() {
            let request = Request::new(path);
            let text = match read(client, request.list(&self.params())).await {
                Ok(text) => text,
                Err(error) => {
                    self.token = renewed(&self.token, &error).ok_or(error)?;
                    continue;
                }
            };
            let (page, too_large) = match parsed(&text) {
                Ok(page) => (page, None),
                Err(error) => {
                    drop(text);
                    let metadata = read(client, request.list_metadata(&self.params())).await?;
                    (names(&metadata)?, Some(format!("the object {error}")))
                }
            };
            if let Some(listed) = self.advance(page, too_large) {
                return Ok(Some(listed));
            }
        }
        Ok(None)
    }

    /// Moves behind the object of a page, and returns it.
    fn advance(&mut self, mut page: Value, too_large: Option<String>) -> Option<Listed> {
        let next = page["metadata"]["continue"].as_str();
        next.unwrap_or_default().clone_into(&mut self.token);
        if self.token.is_empty() {
            self.paths.pop();
        }
        let object = page.pointer_mut("/items/0")?.take();
        Some(match too_large {
            None => Listed::Object(object),
            Some(reason) => Listed::TooLarge(object, reason),
        })
    }

    fn params(&self) -> ListParams {
        let mut params = ListParams::default().limit(1);
        if let Some(selector) = &self.selector {
            params = params.labels(selector);
        }
        if !self.token.is_empty() {
            params = params.continue_token(&self.token);
        }
        params
    }
}

/// Returns the token with which a list continues whose token has expired. The API server sends it
/// with the error.
fn renewed(token: &str, error: &Error) -> Option<String> {
    let Error::Api(status) = error else {
        return None;
    };
    let is_expired = status.code == 410 && !token.is_empty();
    let renewed = status.metadata.as_ref()?.continue_.clone()?;
    (is_expired && !renewed.is_empty() && renewed != token).then_some(renewed)
}

async fn read(
    client: &Client,
    request: Result<HttpRequest<Vec<u8>>, request::Error>,
) -> Result<String, Error> {
    let request = request.map_err(Error::BuildRequest)?;
    client.request_text(request).await
}

/// The first object of a page of metadata, with its name alone: its other metadata may be as large
/// as the object.
fn names(text: &str) -> Result<Value, serde_json::Error> {
    let page: NamePage = serde_json::from_str(text)?;
    serde_json::to_value(page)
}

#[derive(Deserialize, Serialize)]
struct NamePage {
    metadata: PageMetadata,
    items: Vec<NamedObject>,
}

#[derive(Deserialize, Serialize)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    token: String,
}

#[derive(Deserialize, Serialize)]
struct NamedObject {
    metadata: ObjectNames,
}

#[derive(Deserialize, Serialize)]
struct ObjectNames {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
}

fn parsed(text: &str) -> Result<Value, BoundedJsonError> {
    bounded_json::parse(text.as_bytes(), Budget::of_memory(TREE))
}

#[cfg(test)]
mod tests {
    use http::Response;
    use ipu_policies::match_samples::IPUJOB;
    use kube::client::Body;
    use serde_json::json;
    use tower::{BoxError, service_fn};

    use super::*;

    /// A cluster with three jobs in each namespace. The token of the second job has expired, and
    /// the job needs too much memory.
    fn cluster() -> Client {
        let service = service_fn(|request: HttpRequest<Body>| async move {
            let path = request.uri().path().to_owned();
            let query = request.uri().query().unwrap_or_default();
            let mut pairs = query.split('&');
            let token = pairs.find_map(|pair| pair.strip_prefix("continue="));
            let (code, body) = match token {
                None => (200, page(&json!({"path": path}), "old")),
                Some("old") => {
                    let metadata = json!({"continue": "2"});
                    let status = json!({"kind": "Status", "status": "Failure", "code": 410, "metadata": metadata});
                    (410, status)
                }
                Some("2") if is_metadata(&request) => {
                    let owners = vec![json!({"name": "owner"}); 50_000];
                    let metadata =
                        json!({"name": "large", "namespace": "a", "ownerReferences": owners});
                    (200, page(&json!({"metadata": metadata}), "3"))
                }
                Some("2") => (200, page(&json!(vec![0; 400_000]), "3")),
                Some(_) => (200, page(&json!({"last": true}), "")),
            };
            let response = Response::builder().status(code);
            Ok::<_, BoxError>(response.body(Body::from(body.to_string().into_bytes()))?)
        });
        Client::new(service, "default")
    }

    fn is_metadata(request: &HttpRequest<Body>) -> bool {
        let accepted = request.headers().get("accept");
        accepted.is_some_and(|accepted| {
            let accepted = accepted.to_str().unwrap();
            accepted.contains("as=PartialObjectMetadataList")
        })
    }

    fn page(object: &Value, next: &str) -> Value {
        json!({"metadata": {"continue": next}, "items": [object]})
    }

    #[tokio::test]
    async fn all_objects_are_read_and_an_expired_token_is_renewed() {
        let scope: Scope = "a,b".parse().unwrap();
        let (client, mut list) = (cluster(), ObjectList::new(IPUJOB, &scope));
        let mut objects = Vec::new();
        while let Some(listed) = list.next(&client).await.unwrap() {
            objects.push(match listed {
                Listed::Object(object) => object,
                Listed::TooLarge(metadata, reason) => {
                    assert!(reason.starts_with("the object "), "{reason}");
                    metadata
                }
            });
        }
        let path = |name| json!({"path": IPUJOB.list_path(Some(name))});
        let large = json!({"metadata": {"name": "large", "namespace": "a"}});
        let last = json!({"last": true});
        let of = |name| [path(name), large.clone(), last.clone()];
        assert_eq!(objects, [of("b"), of("a")].concat());
    }

    #[tokio::test]
    async fn an_empty_list_has_no_object() {
        let service = service_fn(|_: HttpRequest<Body>| async {
            let body = json!({"metadata": {}, "items": []}).to_string();
            Ok::<_, BoxError>(Response::new(Body::from(body.into_bytes())))
        });
        let client = Client::new(service, "default");
        let mut list = ObjectList::new(POD, &Scope::Cluster);
        assert_eq!(list.next(&client).await.unwrap(), None);
    }
}
