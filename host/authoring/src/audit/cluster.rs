//! Reads the objects of a cluster page by page, with the rights of the user of the kubeconfig.

use std::collections::BTreeSet;

use kube::api::ListParams;
use kube::config::KubeConfigOptions;
use kube::core::Request;
use kube::{Client, Config};
use serde::Deserialize;
use serde_json::Value;

use super::AuditError;
use super::served::Release;

/// Objects of one page. A page of large jobs has some 10 MiB.
const PAGE: u32 = 200;

/// Path of the webhook configurations.
const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// Selects the webhook configurations of the operator.
const OURS: &str = "app.kubernetes.io/part-of=ipu-operator";

/// A cluster.
pub(super) struct Cluster(pub(super) Client);

/// One page of a list. Its objects are the JSON of the API server, which guests see.
#[derive(Deserialize)]
struct Page {
    metadata: PageMetadata,
    items: Vec<Value>,
}

#[derive(Deserialize)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: String,
}

impl Cluster {
    /// Connects to the cluster of a context. Without one, to that of the current context or of this
    /// Pod.
    pub(super) async fn connect(context: Option<&str>) -> Result<Self, AuditError> {
        let config = match context {
            Some(context) => {
                let options = KubeConfigOptions {
                    context: Some(context.to_owned()),
                    ..KubeConfigOptions::default()
                };
                let config = Config::from_kubeconfig(&options).await;
                config.map_err(|error| AuditError::Config(error.into()))?
            }
            None => Config::infer()
                .await
                .map_err(|error| AuditError::Config(error.into()))?,
        };
        let client = Client::try_from(config);
        Ok(Self(
            client.map_err(|error| AuditError::Config(error.into()))?,
        ))
    }

    /// Reads an IPUPolicy.
    pub(super) async fn policy(&self, name: &str) -> Result<Value, AuditError> {
        let path = format!("/apis/{}/ipupolicies", ipu_api::API_VERSION);
        let read = self.get(&path, name).await;
        read.map_err(|source| failed(format!("IPUPolicy {name}"), source))
    }

    /// Reads the releases of the operator. `None`: the user may not list their webhook
    /// configurations.
    pub(super) async fn releases(&self) -> Result<Option<Vec<Release>>, AuditError> {
        let mut list = PagedList::new(CONFIGURATIONS.to_owned(), Some(OURS.to_owned()));
        let mut releases = Vec::new();
        loop {
            match list.next(self).await {
                Ok(Some(page)) => releases.extend(page.iter().map(Release::of)),
                Ok(None) => return Ok(Some(releases)),
                Err(error) if has_code(&error, 403) => return Ok(None),
                Err(error) => return Err(failed("the releases of the operator".to_owned(), error)),
            }
        }
    }

    pub(super) async fn get(&self, path: &str, name: &str) -> Result<Value, kube::Error> {
        let request = Request::new(path).get(name, &kube::api::GetParams::default());
        let request = request.map_err(kube::Error::BuildRequest)?;
        self.0.request(request).await
    }

    async fn page(
        &self,
        path: &str,
        selector: Option<&str>,
        token: &str,
    ) -> Result<Page, kube::Error> {
        let mut params = ListParams::default().limit(PAGE);
        if let Some(selector) = selector {
            params = params.labels(selector);
        }
        if !token.is_empty() {
            params = params.continue_token(token);
        }
        let request = Request::new(path).list(&params);
        let request = request.map_err(kube::Error::BuildRequest)?;
        self.0.request(request).await
    }
}

/// A list that is read page by page, and each object once.
pub(super) struct PagedList {
    path: String,
    selector: Option<String>,
    /// The token of the next page. Empty at the beginning.
    token: String,
    has_ended: bool,
    /// Namespaces and names of the objects that were returned.
    returned: BTreeSet<[String; 2]>,
    /// Whether an object was returned since the list started.
    has_progressed: bool,
}

impl PagedList {
    /// Starts before the first page of the list at this path.
    pub(super) fn new(path: String, selector: Option<String>) -> Self {
        Self {
            path,
            selector,
            token: String::new(),
            has_ended: false,
            returned: BTreeSet::new(),
            has_progressed: false,
        }
    }

    /// Reads the next page. `None` at the end.
    pub(super) async fn next(
        &mut self,
        cluster: &Cluster,
    ) -> Result<Option<Vec<Value>>, kube::Error> {
        while !self.has_ended {
            let read = cluster.page(&self.path, self.selector.as_deref(), &self.token);
            match read.await {
                Ok(page) => return Ok(Some(self.advance(page))),
                Err(error) => self.token = self.renewed(&error).ok_or(error)?,
            }
        }
        Ok(None)
    }

    /// Moves behind a page. Returns its objects that are new.
    fn advance(&mut self, page: Page) -> Vec<Value> {
        self.token = page.metadata.next;
        self.has_ended = self.token.is_empty();
        let mut objects = page.items;
        objects.retain(|object| {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
            let names = [text("namespace"), text("name")].map(str::to_owned);
            self.returned.insert(names)
        });
        self.has_progressed |= !objects.is_empty();
        objects
    }

    /// Returns the token with which a list continues whose token has expired: the one that the API
    /// server sends with the error, or that of the beginning. A list that starts over without an
    /// object in between never ends.
    fn renewed(&mut self, error: &kube::Error) -> Option<String> {
        let kube::Error::Api(status) = error else {
            return None;
        };
        if status.code != 410 || self.token.is_empty() {
            return None;
        }
        let metadata = status.metadata.as_ref();
        let sent = metadata.and_then(|metadata| metadata.continue_.clone());
        let sent = sent.filter(|sent| !sent.is_empty() && *sent != self.token);
        if sent.is_some() {
            return sent;
        }
        std::mem::take(&mut self.has_progressed).then(String::new)
    }
}

/// Whether the API server answers with this code.
pub(super) fn has_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// Returns the error of a read.
pub(super) fn failed(what: String, source: kube::Error) -> AuditError {
    AuditError::Read {
        what,
        source: Box::new(source),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request as HttpRequest, Response};
    use kube::client::Body;
    use serde_json::json;
    use tower::{BoxError, service_fn};

    use super::*;

    /// A list of three objects in pages of one. The first `expired` tokens of the second page have
    /// expired, and the API server sends `renewed` with the error.
    fn cluster(expired: usize, renewed: &'static str) -> Cluster {
        let left = Arc::new(AtomicUsize::new(expired));
        let service = service_fn(move |request: HttpRequest<Body>| {
            let left = left.clone();
            async move {
                let query = request.uri().query().unwrap_or_default();
                let mut pairs = query.split('&');
                let token = pairs.find_map(|pair| pair.strip_prefix("continue="));
                let has_expired = token == Some("old")
                    && left
                        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                            left.checked_sub(1)
                        })
                        .is_ok();
                let body = match token {
                    _ if has_expired => {
                        let metadata = json!({"continue": renewed});
                        json!({"kind": "Status", "status": "Failure", "code": 410, "metadata": metadata})
                    }
                    None => page("a", "old"),
                    Some("old" | "new") => page("b", "last"),
                    Some(_) => page("c", ""),
                };
                let code = if has_expired { 410 } else { 200 };
                let response = Response::builder().status(code);
                Ok::<_, BoxError>(response.body(Body::from(body.to_string().into_bytes()))?)
            }
        });
        Cluster(Client::new(service, "default"))
    }

    fn page(name: &str, next: &str) -> Value {
        json!({"metadata": {"continue": next}, "items": [{"metadata": {"name": name}}]})
    }

    /// The names of the objects of a list.
    async fn names(cluster: &Cluster) -> Result<Vec<String>, kube::Error> {
        let mut list = PagedList::new("/api/v1/things".to_owned(), None);
        let mut names = Vec::new();
        while let Some(page) = list.next(cluster).await? {
            let found = page
                .iter()
                .map(|object| object["metadata"]["name"].as_str());
            names.extend(found.map(|name| name.unwrap().to_owned()));
        }
        Ok(names)
    }

    #[tokio::test]
    async fn a_list_whose_token_has_expired_continues_or_starts_over() {
        let all = ["a", "b", "c"];
        assert_eq!(names(&cluster(0, "")).await.unwrap(), all);
        assert_eq!(names(&cluster(1, "new")).await.unwrap(), all);
        assert_eq!(names(&cluster(1, "")).await.unwrap(), all);
        let error = names(&cluster(usize::MAX, "")).await.unwrap_err();
        assert!(has_code(&error, 410), "it ends: {error}");
    }
}
