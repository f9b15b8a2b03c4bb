//! Reads the objects of a cluster page by page, with the rights of the user of the kubeconfig.

use std::collections::BTreeMap;

use ipu_api::ipupolicy::Labels;
use ipu_api::labels::NATIVE_POD_LABEL;
use ipu_policies::match_input::ReviewedResource;
use ipu_policies::match_samples::POD;
use kube::api::ListParams;
use kube::config::KubeConfigOptions;
use kube::core::Request;
use kube::{Client, Config};
use serde::Deserialize;
use serde_json::Value;

use super::AuditError;
use super::report::Unlisted;

/// Objects of one page. A page of large jobs has some 10 MiB.
const PAGE: u32 = 200;

/// A cluster.
pub(super) struct Cluster(Client);

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
    /// Connects to the cluster of a context. Without one, to that of the current context or of this Pod.
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

    async fn get(&self, path: &str, name: &str) -> Result<Value, kube::Error> {
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

/// The namespaces of an audit.
pub(super) struct Scope {
    /// Their labels, as far as the user may read them.
    pub(super) labels: BTreeMap<String, Labels>,
    /// The chosen namespaces; all if empty.
    chosen: Vec<String>,
}

impl Scope {
    /// Reads the labels of the namespaces. A chosen one must exist.
    pub(super) async fn read(cluster: &Cluster, chosen: &[String]) -> Result<Self, AuditError> {
        let mut scope = Self {
            labels: BTreeMap::new(),
            chosen: chosen.to_vec(),
        };
        if chosen.is_empty() {
            scope.read_all(cluster).await?;
            return Ok(scope);
        }
        for name in chosen {
            match cluster.get("/api/v1/namespaces", name).await {
                Ok(namespace) => scope.add(&namespace),
                Err(error) if has_code(&error, 404) => {
                    return Err(AuditError::NoNamespace(name.clone()));
                }
                Err(error) if has_code(&error, 403) => {}
                Err(error) => return Err(failed(format!("Namespace {name}"), error)),
            }
        }
        Ok(scope)
    }

    async fn read_all(&mut self, cluster: &Cluster) -> Result<(), AuditError> {
        let mut token = String::new();
        loop {
            let page = match cluster.page("/api/v1/namespaces", None, &token).await {
                Ok(page) => page,
                Err(error) if has_code(&error, 403) => return Ok(()),
                Err(error) => return Err(failed("the namespaces".to_owned(), error)),
            };
            page.items.iter().for_each(|namespace| self.add(namespace));
            token = page.metadata.next;
            if token.is_empty() {
                return Ok(());
            }
        }
    }

    fn add(&mut self, namespace: &Value) {
        let metadata = &namespace["metadata"];
        let labels = metadata["labels"].as_object().into_iter().flatten();
        let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.into())));
        let name = metadata["name"].as_str().unwrap_or_default();
        self.labels.insert(name.to_owned(), labels.collect());
    }

    /// Returns the lists of a resource in these namespaces.
    pub(super) fn lists<'a>(
        &'a self,
        cluster: &'a Cluster,
        resource: ReviewedResource,
    ) -> Lists<'a> {
        let mut rest: Vec<_> = self.chosen.iter().map(|name| Some(name.clone())).collect();
        rest.reverse();
        if rest.is_empty() {
            rest.push(None);
        }
        Lists {
            cluster,
            known: &self.labels,
            resource,
            rest,
            token: String::new(),
            unlisted: Vec::new(),
        }
    }
}

/// The lists of one resource, read in turn.
pub(super) struct Lists<'a> {
    cluster: &'a Cluster,
    known: &'a BTreeMap<String, Labels>,
    resource: ReviewedResource,
    /// The namespaces whose lists are still to be read, the next one last; `None` for the list of all namespaces.
    rest: Vec<Option<String>>,
    token: String,
    /// The lists that the user may not read.
    pub(super) unlisted: Vec<Unlisted>,
}

impl Lists<'_> {
    /// Reads the next page. `None` at the end. If the user may not list all namespaces at once, it lists each of them.
    pub(super) async fn next_page(&mut self) -> Result<Option<Vec<Value>>, AuditError> {
        while let Some(namespace) = self.rest.last() {
            let path = self.resource.list_path(namespace.as_deref());
            let selector = (self.resource == POD).then(|| format!("{NATIVE_POD_LABEL}=true"));
            let read = self.cluster.page(&path, selector.as_deref(), &self.token);
            match read.await {
                Ok(page) => {
                    self.token = page.metadata.next;
                    if self.token.is_empty() {
                        self.rest.pop();
                    }
                    return Ok(Some(page.items));
                }
                Err(error) if has_code(&error, 403) => self.skip(),
                Err(error) => return Err(failed(path, error)),
            }
        }
        Ok(None)
    }

    /// Skips a list that the user may not read.
    fn skip(&mut self) {
        self.token.clear();
        let namespace = self.rest.pop().flatten();
        if namespace.is_none() && !self.known.is_empty() {
            self.rest.extend(self.known.keys().rev().cloned().map(Some));
            return;
        }
        self.unlisted.push(Unlisted {
            resource: self.resource.resource,
            namespace,
        });
    }
}

fn has_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

fn failed(what: String, source: kube::Error) -> AuditError {
    AuditError::Read {
        what,
        source: Box::new(source),
    }
}

#[cfg(test)]
mod tests {
    use http::{Request as HttpRequest, Response};
    use ipu_policies::match_samples::IPUJOB;
    use kube::client::Body;
    use serde_json::json;
    use tower::{BoxError, service_fn};

    use super::*;

    /// A cluster with one job in each of the namespaces a to d, in pages of one object, whose user may list the jobs of
    /// `listable` namespaces.
    fn cluster(listable: &'static [&'static str], sees_namespaces: bool) -> Cluster {
        let service = service_fn(move |request: HttpRequest<Body>| async move {
            let path = request.uri().path().to_owned();
            let query = request.uri().query().unwrap_or_default().to_owned();
            let (code, body) = match path.as_str() {
                "/api/v1/namespaces" if sees_namespaces => (
                    200,
                    page(
                        &query,
                        |name| json!({"metadata": {"name": name, "labels": {"name": name}}}),
                    ),
                ),
                "/api/v1/namespaces/a" if sees_namespaces => (
                    200,
                    json!({"metadata": {"name": "a", "labels": {"name": "a"}}}),
                ),
                "/api/v1/namespaces/missing" => (404, json!({})),
                _ => jobs(&path, &query, listable),
            };
            let body = match code {
                200 => body,
                code => json!({"kind": "Status", "status": "Failure", "code": code}),
            };
            let response = Response::builder().status(code);
            Ok::<_, BoxError>(response.body(Body::from(body.to_string().into_bytes()))?)
        });
        Cluster(Client::new(service, "default"))
    }

    fn jobs(path: &str, query: &str, listable: &[&str]) -> (u16, Value) {
        let job = |name: &str| json!({"metadata": {"name": "job", "namespace": name}});
        if path == "/apis/graphcore.ai/v1alpha1/ipujobs" && listable == ["*"] {
            return (200, page(query, job));
        }
        let name = path
            .strip_prefix("/apis/graphcore.ai/v1alpha1/namespaces/")
            .and_then(|rest| rest.strip_suffix("/ipujobs"));
        match name.filter(|name| listable.contains(name)) {
            Some(name) => (200, json!({"metadata": {}, "items": [job(name)]})),
            None => (403, Value::Null),
        }
    }

    /// The page with the object of the next namespace.
    fn page(query: &str, object: impl Fn(&str) -> Value) -> Value {
        let names = ["a", "b", "c", "d"];
        let token = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("continue="));
        let index: usize = token.map_or(0, |token| token.parse().unwrap());
        let mut metadata = json!({});
        if index + 1 < names.len() {
            metadata["continue"] = json!((index + 1).to_string());
        }
        json!({"metadata": metadata, "items": [object(names[index])]})
    }

    /// The namespaces of the listed jobs, and those that cannot be listed.
    async fn listed(cluster: &Cluster, chosen: &[&str]) -> (Vec<String>, Vec<Option<String>>) {
        let chosen: Vec<_> = chosen.iter().map(|&name| name.to_owned()).collect();
        let scope = Scope::read(cluster, &chosen).await.unwrap();
        let mut lists = scope.lists(cluster, IPUJOB);
        let mut found = Vec::new();
        while let Some(page) = lists.next_page().await.unwrap() {
            let names = page.iter().map(|job| job["metadata"]["namespace"].as_str());
            found.extend(names.map(|name| name.unwrap().to_owned()));
        }
        let hidden = lists.unlisted.into_iter();
        (found, hidden.map(|unlisted| unlisted.namespace).collect())
    }

    #[tokio::test]
    async fn all_pages_of_all_namespaces_are_read() {
        let all = cluster(&["*"], true);
        let expected = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        assert_eq!(listed(&all, &[]).await, (expected, vec![]));
        let scope = Scope::read(&all, &[]).await.unwrap();
        assert_eq!(scope.labels["d"]["name"], "d");
    }

    #[tokio::test]
    async fn each_namespace_is_listed_where_all_cannot_be() {
        let some = cluster(&["a", "c"], true);
        let (found, hidden) = listed(&some, &[]).await;
        assert_eq!(found, ["a", "c"]);
        assert_eq!(hidden, [Some("b".to_owned()), Some("d".to_owned())]);
        let (found, hidden) = listed(&some, &["a", "b"]).await;
        assert_eq!(found, ["a"]);
        assert_eq!(hidden, [Some("b".to_owned())]);
        let blind = cluster(&["a"], false);
        assert_eq!(listed(&blind, &[]).await, (vec![], vec![None]));
        assert_eq!(listed(&blind, &["a"]).await, (vec!["a".to_owned()], vec![]));
    }

    #[tokio::test]
    async fn a_chosen_namespace_must_exist() {
        let scope = Scope::read(&cluster(&["*"], true), &["missing".to_owned()]).await;
        assert!(matches!(scope.err(), Some(AuditError::NoNamespace(name)) if name == "missing"));
    }
}
