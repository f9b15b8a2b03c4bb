//! A small API server in memory with watches, for tests of the I/O.

mod admission;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::http::{Method, Request, Response, StatusCode};
use ipu_api::ipujob::IPUJob;
use ipu_api::labels;
use ipu_runtime::scope::Scope;
use ipu_runtime::served_group::ServedGroup;
use kube::Client;
use kube::client::Body;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tower::service_fn;

use self::admission::refusal;
use super::fixtures::{JobFixture, MAX_IPUS, settings};
use crate::build::PodSettings;
use crate::context::Context;
use crate::job_object::{JobObject, JobRef};
use crate::metrics::JobMetrics;
use crate::plan::DependentKind;
use crate::raw::RawJob;
use crate::views::View;
use crate::{JobSettings, Shared, dependents_watch};

const GROUP: &str = "/apis/graphcore.ai/v1alpha1";
const JOBS: &str = "/apis/graphcore.ai/v1alpha1/namespaces/default/ipujobs";
const PARTITIONS: &str = "/apis/graphcore.ai/v1alpha1/ipupartitions";
const PODS: &str = "/api/v1/namespaces/default/pods";
const RIGHTS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";

/// An API server with the objects of the namespace `default`.
#[derive(Clone, Default)]
pub(crate) struct Cluster(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// By path.
    objects: BTreeMap<String, Value>,
    version: u64,
    /// Method and path of every request, but for events.
    asked: Vec<String>,
    /// Pods that are refused.
    refused: Vec<String>,
    /// The label without which Pods are refused.
    demanded_label: Option<String>,
    /// Pods whose creation fails.
    failing: Vec<String>,
    /// Pods that are made, and of which the answer is lost.
    lost: Vec<String>,
    /// Whether requests to write events are never answered.
    forgets_events: bool,
    /// Whether it drops the volumes of Pods, as an API server without image volumes does.
    drops_volumes: bool,
}

impl Cluster {
    /// The controller's context, on this API server, which serves Kueue's API too.
    pub(crate) fn context(&self) -> Context {
        self.context_with(settings())
    }

    /// The context of a controller with these settings for Pods.
    pub(crate) fn context_with(&self, pods: PodSettings) -> Context {
        let state = Arc::clone(&self.0);
        let api_server = service_fn(move |request: Request<Body>| {
            let state = Arc::clone(&state);
            async move {
                let is_event = request.uri().path().contains("/events");
                if is_event && state.lock().unwrap().forgets_events {
                    std::future::pending::<()>().await;
                }
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let path = parts.uri.path();
                let query = parts.uri.query().unwrap_or_default();
                let mut state = state.lock().unwrap();
                let (code, answer) = if query.contains("dryRun=All") {
                    state.try_create(body)
                } else {
                    state.answer(&parts.method, path, body)
                };
                let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
                *response.status_mut() = code;
                Ok::<_, Infallible>(response)
            }
        });
        let settings = JobSettings {
            pods,
            max_ipus_per_job: MAX_IPUS,
            lost_node: Some(std::time::Duration::from_secs(1)),
            instance: None,
            scope: Scope::Cluster,
        };
        let client = Client::new(api_server, "default");
        let shared = Shared {
            kueue: ServedGroup::served(),
            ..Shared::default()
        };
        Context::new(client, settings, shared, &JobMetrics::default())
    }

    /// The user makes a job.
    pub(crate) fn submit(&self, job: &IPUJob) -> JobRef {
        let path = format!("{JOBS}/{}", job.metadata.name.as_deref().unwrap());
        self.put(&path, job.object());
        let object = self.state().objects[&path].clone();
        let job: RawJob = serde_json::from_value(object).unwrap();
        job.job().unwrap()
    }

    /// Stores an object of any creator.
    pub(crate) fn put(&self, path: &str, object: Value) {
        self.state().store(path, object);
    }

    /// Changes every object below a path.
    pub(crate) fn change(&self, below: &str, patch: &Value) {
        let mut state = self.state();
        let paths: Vec<_> = state
            .objects
            .keys()
            .filter(|path| path.starts_with(below))
            .cloned()
            .collect();
        for path in paths {
            let mut object = state.objects[&path].clone();
            json_patch::merge(&mut object, patch);
            state.store(&path, object);
        }
    }

    /// The proxy: every partition is there.
    pub(crate) fn partitions_ready(&self) {
        self.change(
            PARTITIONS,
            &json!({"status": {
                "phase": "Ready", "partitionId": "p-0", "generation": 1,
                "controller": {
                    "name": "pod1:8090", "host": "pod1", "port": 8090,
                    "labelKey": "ipunode", "labelValue": "pod1",
                },
            }}),
        );
    }

    /// The kubelet: every Pod runs.
    pub(crate) fn pods_run(&self) {
        self.change(
            PODS,
            &json!({"status": {
                "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
            }}),
        );
    }

    /// A user edits the Roles.
    pub(crate) fn edit_rights(&self) {
        self.change(&format!("{RIGHTS}/roles/"), &json!({"rules": []}));
    }

    /// An object is gone.
    pub(crate) fn remove(&self, path: &str) {
        self.state().objects.remove(path).unwrap();
    }

    /// A webhook of the cluster fails for these Pods from now on.
    pub(crate) fn fail(&self, pods: &[&str]) {
        self.state().failing = pods.iter().map(|pod| (*pod).to_owned()).collect();
    }

    /// The answers to requests for these Pods are lost from now on.
    pub(crate) fn lose_answers(&self, pods: &[&str]) {
        self.state().lost = pods.iter().map(|pod| (*pod).to_owned()).collect();
    }

    /// Events are not answered from now on.
    pub(crate) fn forget_events(&self) {
        self.state().forgets_events = true;
    }

    /// The requests since the last call: `<method> <last part of the path>`.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state().asked)
    }

    /// All IPUPartitions.
    pub(crate) fn partitions(&self) -> Vec<Value> {
        self.below(PARTITIONS)
    }

    /// The object at a path.
    pub(crate) fn object(&self, path: &str) -> Value {
        self.state().objects.get(path).cloned().unwrap_or_default()
    }

    /// All watches report their events.
    pub(crate) fn deliver(&self, context: &Context) {
        self.deliver_without_pods(context);
        for event in listed(self.below(PODS)) {
            let is_known = |job| context.views.jobs.contains(job);
            context.views.uncreated.apply_event(&event, is_known);
            context.views.pods.apply_event(event);
        }
    }

    /// All watches report their events, but the watch of Pods is late.
    pub(crate) fn deliver_without_pods(&self, context: &Context) {
        deliver(&context.views.jobs, self.below(JOBS));
        deliver(&context.views.partitions, self.below(PARTITIONS));
        let core = "/api/v1/namespaces/default";
        self.deliver_files::<k8s_openapi::api::core::v1::ServiceAccount>(
            context,
            DependentKind::ServiceAccount,
            &format!("{core}/serviceaccounts/"),
        );
        self.deliver_files::<k8s_openapi::api::rbac::v1::Role>(
            context,
            DependentKind::Role,
            &format!("{RIGHTS}/roles/"),
        );
        self.deliver_files::<k8s_openapi::api::rbac::v1::RoleBinding>(
            context,
            DependentKind::RoleBinding,
            &format!("{RIGHTS}/rolebindings/"),
        );
    }

    fn deliver_files<K>(&self, context: &Context, file: DependentKind, below: &str)
    where
        PartialObjectMeta<K>: DeserializeOwned,
    {
        let mut verified = context.verified.lock();
        let files = self.below::<PartialObjectMeta<K>>(below);
        for event in listed(files) {
            dependents_watch::apply_event(&mut verified, (file, ""), event);
        }
    }

    fn below<K: DeserializeOwned>(&self, path: &str) -> Vec<K> {
        let state = self.state();
        let all = state
            .objects
            .iter()
            .filter(|(found, _)| found.starts_with(path));
        all.map(|(_, object)| serde_json::from_value(object.clone()).unwrap())
            .collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

/// Path of a Pod.
pub(crate) fn pod(name: &str) -> String {
    format!("{PODS}/{name}")
}

/// Path of a job.
pub(crate) fn job(name: &str) -> String {
    format!("{JOBS}/{name}")
}

fn listed<K>(objects: Vec<K>) -> impl Iterator<Item = Event<K>> {
    let each = objects.into_iter().map(Event::InitApply);
    std::iter::once(Event::Init)
        .chain(each)
        .chain(std::iter::once(Event::InitDone))
}

fn deliver<K: JobObject>(view: &View<K>, objects: Vec<K>) {
    for event in listed(objects) {
        view.apply_event(event);
    }
}

impl State {
    fn answer(&mut self, method: &Method, path: &str, body: Value) -> (StatusCode, Value) {
        if path.contains("/events") {
            return (StatusCode::CREATED, json!({"metadata": {}}));
        }
        let shown = path.strip_prefix(GROUP).unwrap_or(path);
        self.asked.push(format!("{method} {shown}"));
        let own = path.strip_suffix("/status").unwrap_or(path);
        let found = self.objects.get(own).cloned();
        match (method.as_str(), found) {
            ("POST", _) => self.create(path, body),
            ("GET", Some(found)) => (StatusCode::OK, found),
            ("GET", None) if path.ends_with("/pods") => {
                let items = self
                    .objects
                    .iter()
                    .filter(|(found, _)| found.starts_with(PODS));
                let items: Vec<&Value> = items.map(|(_, object)| object).collect();
                (StatusCode::OK, json!({"metadata": {}, "items": items}))
            }
            ("PUT", Some(mut found)) => {
                if found["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
                    return refusal(StatusCode::CONFLICT, "Conflict");
                }
                found["status"] = body["status"].clone();
                (StatusCode::OK, self.store(own, found))
            }
            ("PATCH", found) => {
                let mut object = found.unwrap_or_default();
                json_patch::merge(&mut object, &body);
                (StatusCode::OK, self.store(own, object))
            }
            ("DELETE", Some(_)) => {
                self.objects.remove(own);
                (
                    StatusCode::OK,
                    json!({"kind": "Status", "status": "Success"}),
                )
            }
            _ => refusal(StatusCode::NOT_FOUND, "NotFound"),
        }
    }

    fn create(&mut self, path: &str, mut object: Value) -> (StatusCode, Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let path = format!("{path}/{name}");
        if self.refuses(&object) {
            return refusal(StatusCode::FORBIDDEN, "Forbidden");
        }
        if self.failing.contains(&name) {
            return refusal(StatusCode::INTERNAL_SERVER_ERROR, "InternalError");
        }
        if self.objects.contains_key(&path) {
            return refusal(StatusCode::CONFLICT, "AlreadyExists");
        }
        self.drop_volumes_of(&mut object);
        let made = self.store(&path, object);
        if self.lost.contains(&name) {
            return refusal(StatusCode::GATEWAY_TIMEOUT, "Timeout");
        }
        (StatusCode::CREATED, made)
    }

    fn store(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = format!("uid-{}", self.version).into();
        }
        self.objects.insert(path.to_owned(), object.clone());
        object
    }
}

/// The owner reference of the job.
pub(crate) fn owned_by(job: &IPUJob) -> Value {
    let uid = job.metadata.uid.clone().unwrap();
    json!({
        "labels": {labels::JOB_UID_LABEL: uid},
        "ownerReferences": [{
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "name": "sample", "uid": uid,
        }],
    })
}
