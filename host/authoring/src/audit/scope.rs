//! Lists the objects of the namespaces of an audit.

use std::collections::BTreeMap;

use ipu_api::ipupolicy::Labels;
use ipu_api::labels::NATIVE_POD_LABEL;
use ipu_policies::match_input::ReviewedResource;
use ipu_policies::match_samples::POD;
use serde_json::Value;

use super::AuditError;
use super::cluster::{Cluster, PagedList, failed, has_code};
use super::report::Unlisted;
use super::served::Served;

/// The namespaces of an audit.
pub(super) struct Scope {
    /// Their labels, as far as the user may read them.
    pub(super) labels: BTreeMap<String, Labels>,
    /// The namespaces to list; all if empty.
    listed: Vec<String>,
}

impl Scope {
    /// Reads the labels of the served namespaces, or of the chosen ones of them. A chosen one must
    /// exist.
    pub(super) async fn read(
        cluster: &Cluster,
        served: &Served,
        chosen: &[String],
    ) -> Result<Self, AuditError> {
        let mut scope = Self {
            labels: BTreeMap::new(),
            listed: served.listed(chosen)?,
        };
        if scope.listed.is_empty() {
            scope.read_all(cluster).await?;
            return Ok(scope);
        }
        for name in scope.listed.clone() {
            match cluster.get("/api/v1/namespaces", &name).await {
                Ok(namespace) => scope.add(&namespace),
                // A release may serve a namespace that does not exist yet.
                Err(error) if has_code(&error, 404) && chosen.is_empty() => {}
                Err(error) if has_code(&error, 404) => {
                    return Err(AuditError::NoNamespace(name));
                }
                Err(error) if has_code(&error, 403) => {}
                Err(error) => return Err(failed(format!("Namespace {name}"), error)),
            }
        }
        Ok(scope)
    }

    /// Returns the audited namespaces of those that are served.
    pub(super) fn audited(&self, served: Served) -> Served {
        if self.listed.is_empty() {
            return served;
        }
        Served::Namespaces(self.listed.iter().cloned().collect())
    }

    async fn read_all(&mut self, cluster: &Cluster) -> Result<(), AuditError> {
        let mut list = PagedList::new("/api/v1/namespaces".to_owned(), None);
        loop {
            match list.next(cluster).await {
                Ok(Some(page)) => page.iter().for_each(|namespace| self.add(namespace)),
                Ok(None) => return Ok(()),
                Err(error) if has_code(&error, 403) => return Ok(()),
                Err(error) => return Err(failed("the namespaces".to_owned(), error)),
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
        let mut rest: Vec<_> = self.listed.iter().map(|name| Some(name.clone())).collect();
        rest.reverse();
        if rest.is_empty() {
            rest.push(None);
        }
        Lists {
            cluster,
            known: &self.labels,
            resource,
            rest,
            current: None,
            unlisted: Vec::new(),
        }
    }
}

/// The lists of one resource, read in turn.
pub(super) struct Lists<'a> {
    cluster: &'a Cluster,
    known: &'a BTreeMap<String, Labels>,
    resource: ReviewedResource,
    /// The namespaces whose lists have not ended, the current one last; `None` for the list of all
    /// namespaces.
    rest: Vec<Option<String>>,
    /// The list of the current namespace, once it has begun.
    current: Option<PagedList>,
    /// The lists that the user may not read.
    pub(super) unlisted: Vec<Unlisted>,
}

impl Lists<'_> {
    /// Reads the next page. `None` at the end. If the user may not list all namespaces at once, it
    /// lists each of them.
    pub(super) async fn next_page(&mut self) -> Result<Option<Vec<Value>>, AuditError> {
        while let Some(namespace) = self.rest.last() {
            let path = self.resource.list_path(namespace.as_deref());
            let selector = (self.resource == POD).then(|| format!("{NATIVE_POD_LABEL}=true"));
            let begun = || PagedList::new(path.clone(), selector);
            match self
                .current
                .get_or_insert_with(begun)
                .next(self.cluster)
                .await
            {
                Ok(Some(page)) => return Ok(Some(page)),
                Ok(None) => {
                    self.rest.pop();
                    self.current = None;
                }
                Err(error) if has_code(&error, 403) => self.skip(),
                Err(error) => return Err(failed(path, error)),
            }
        }
        Ok(None)
    }

    /// Skips a list that the user may not read.
    fn skip(&mut self) {
        self.current = None;
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

#[cfg(test)]
mod tests {
    use http::{Request as HttpRequest, Response};
    use ipu_policies::match_samples::IPUJOB;
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use tower::{BoxError, service_fn};

    use super::*;

    /// A cluster with one job in each of the namespaces a to d, in pages of one object, whose user
    /// may list the jobs of `listable` namespaces.
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
        listed_of(cluster, &Served::Everywhere, chosen).await
    }

    async fn listed_of(
        cluster: &Cluster,
        served: &Served,
        chosen: &[&str],
    ) -> (Vec<String>, Vec<Option<String>>) {
        let chosen: Vec<_> = chosen.iter().map(|&name| name.to_owned()).collect();
        let scope = Scope::read(cluster, served, &chosen).await.unwrap();
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
        let scope = Scope::read(&all, &Served::Everywhere, &[]).await.unwrap();
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
        let (cluster, missing) = (cluster(&["*"], true), ["missing".to_owned()]);
        let scope = Scope::read(&cluster, &Served::Everywhere, &missing).await;
        assert!(matches!(scope.err(), Some(AuditError::NoNamespace(name)) if name == "missing"));
    }
    #[tokio::test]
    async fn objects_that_no_release_serves_are_not_listed() {
        let some = cluster(&["a", "c", "missing"], true);
        let served = ["a", "missing"].map(str::to_owned);
        let served = Served::Namespaces(served.into());
        let found = vec!["a".to_owned(), "missing".to_owned()];
        assert_eq!(listed_of(&some, &served, &[]).await, (found, vec![]));
        let scope = Scope::read(&some, &Served::Unknown, &["a".to_owned()]).await;
        let audited = scope.unwrap().audited(Served::Unknown);
        assert_eq!(audited, Served::Namespaces(["a".to_owned()].into()));
        let chosen = Scope::read(&some, &served, &["c".to_owned()]).await;
        assert!(matches!(chosen.err(), Some(AuditError::NotServed { .. })));
    }
}
