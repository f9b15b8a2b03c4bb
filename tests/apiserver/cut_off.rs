//! A client whose writes about an object end before the n-th one, as if its process were killed at
//! that moment.
//!
//! Each object has a number of its own, so that one process is at all of these moments at the same
//! time.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;

use cluster::wait::{Seen, eventually};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;
use tower::service_fn;

/// The writes of one process about several objects.
#[derive(Clone, Default)]
pub(crate) struct Writes(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Object>,
    /// In their order.
    created: Vec<Created>,
}

/// An object that the process has created.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Created {
    /// Its kind, in the plural.
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// The writes about an object.
#[derive(Clone, Copy, Default)]
struct Object {
    sent: usize,
    /// Number of writes that are sent. `None`: all.
    limit: Option<usize>,
    is_cut_off: bool,
    is_complete: bool,
}

impl Writes {
    /// Writes about objects of these names, of which at most the number is sent. No name may be a
    /// part of another one.
    pub(crate) fn limited<'a>(limits: impl IntoIterator<Item = (&'a str, Option<usize>)>) -> Self {
        let object = |(name, limit): (&str, Option<usize>)| {
            let object = Object {
                limit,
                ..Object::default()
            };
            (name.to_owned(), object)
        };
        let objects = limits.into_iter().map(object).collect();
        let state = State {
            objects,
            ..State::default()
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// The client of the process.
    pub(crate) fn client(&self, client: &Client) -> Client {
        let (inner, writes) = (client.clone(), self.clone());
        let service = service_fn(move |request: Request<Body>| {
            let (inner, writes) = (inner.clone(), writes.clone());
            async move {
                let query = request.uri().query().unwrap_or_default();
                let is_trial = query.contains("dryRun=");
                if request.method() == Method::GET || is_trial {
                    return inner.send(request).await;
                }
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await?;
                let written = Written::of(&parts, &body);
                if writes.is_over(&written) {
                    return pending().await;
                }
                let answer = inner.send(Request::from_parts(parts, body.to_vec().into()));
                let answer = answer.await?;
                if answer.status() != StatusCode::CREATED {
                    return Ok(answer);
                }
                let (parts, body) = answer.into_parts();
                let body = body.collect_bytes().await?;
                let made: Value = serde_json::from_slice(&body).map_err(kube::Error::SerdeError)?;
                writes.0.lock().created.push(Created {
                    kind: written.kind,
                    name: written.name,
                    uid: made["metadata"]["uid"]
                        .as_str()
                        .unwrap_or_default()
                        .to_owned(),
                });
                Ok(Response::from_parts(parts, body.to_vec().into()))
            }
        });
        Client::new(service, "default")
    }

    /// Counts a write. Returns whether it must not be sent. Events are no steps, and are sent at
    /// any time.
    fn is_over(&self, written: &Written) -> bool {
        let mut state = self.0.lock();
        let mut objects = state.objects.iter_mut();
        let about = objects.find(|(name, _)| written.name.contains(name.as_str()));
        let Some((_, object)) = about.filter(|_| written.kind != "events") else {
            return false;
        };
        object.is_cut_off |= object.limit == Some(object.sent);
        if !object.is_cut_off {
            object.sent += 1;
        }
        object.is_cut_off
    }

    /// Returns the number of writes about an object so far.
    pub(crate) fn sent(&self, name: &str) -> usize {
        self.0.lock().objects[name].sent
    }

    /// Notes that no write about an object will follow.
    pub(crate) fn complete(&self, name: &str) {
        let mut state = self.0.lock();
        state.objects.get_mut(name).unwrap().is_complete = true;
    }

    /// Waits until the writes about each object have been cut off or are complete.
    pub(crate) async fn once_cut_off(&self) {
        eventually("the writes about each object end", async || {
            let objects = self.0.lock().objects.clone();
            let left = objects.into_iter();
            let left = left.filter(|(_, object)| !object.is_cut_off && !object.is_complete);
            let left = left.map(|(name, object)| format!("{name}: {} sent", object.sent));
            Seen::when(left.collect::<Vec<_>>(), Vec::is_empty)
        })
        .await;
    }

    /// Waits until a write about any object has been cut off. Returns the name of the object.
    pub(crate) async fn once_any_cut_off(&self) -> String {
        eventually("a write about an object is cut off", async || {
            let state = self.0.lock();
            let mut objects = state.objects.iter();
            let cut_off = objects.find(|(_, object)| object.is_cut_off);
            cut_off.map(|(name, _)| name.clone())
        })
        .await
    }

    /// Returns each object that was created, without events.
    pub(crate) fn created(&self) -> Vec<Created> {
        let mut created = self.0.lock().created.clone();
        created.retain(|object| object.kind != "events");
        created
    }
}

/// Returns the UIDs of the objects of a kind that have been created, by their names.
pub(crate) fn uids(created: &[Created], kind: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut uids: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for object in created.iter().filter(|object| object.kind == kind) {
        let of_name = uids.entry(object.name.clone()).or_default();
        of_name.insert(object.uid.clone());
    }
    uids
}

/// The object of a write.
struct Written {
    /// Its kind, in the plural.
    kind: String,
    name: String,
}

impl Written {
    fn of(parts: &Parts, body: &[u8]) -> Self {
        let mut path: Vec<&str> = parts.uri.path().trim_matches('/').split('/').collect();
        // `api/v1/…` or `apis/group/version/…`, and the namespace, if any.
        path.drain(..if path[0] == "api" { 2 } else { 3 });
        if path[0] == "namespaces" && path.len() > 2 {
            path.drain(..2);
        }
        let name = path.get(1).map(|name| (*name).to_owned());
        let name = name.or_else(|| {
            let object: Value = serde_json::from_slice(body).ok()?;
            Some(object["metadata"]["name"].as_str()?.to_owned())
        });
        Self {
            kind: path[0].to_owned(),
            name: name.unwrap_or_default(),
        }
    }
}
