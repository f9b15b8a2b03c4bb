//! Leader election: of several replicas the one that holds a Kubernetes Lease reconciles.
//!
//! A lease is no fence: a process that is paused wakes up and believes that it leads. What it writes
//! is compared with the version that it read, and [`Held::is_valid`] is asked before each effect.

mod decide;
mod fence;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock;
use crate::scope::Conflicts;
use decide::Move;
pub use fence::fenced;

/// How long a replica leads after it last said so, as the components of Kubernetes have it.
pub const TTL: Duration = Duration::from_secs(15);

/// Why the Lease could not be read or written.
#[derive(Debug, thiserror::Error)]
enum LeaseError {
    #[error("failed to read the Lease {name}")]
    Read {
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("failed to write the Lease {name}")]
    Write {
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("failed to read or write the Lease {name}: the API server gave no answer in time")]
    Late { name: String },
}

/// A replica that wants to lead.
#[derive(Clone, Debug)]
pub struct Elector {
    api: Api<Lease>,
    name: String,
    me: String,
    ttl: Duration,
    leading: Leading,
    conflicts: Conflicts,
}

/// Whether a replica leads, for whoever wants to know. Cheap to clone; all clones know the same.
#[derive(Clone, Debug, Default)]
pub struct Leading(Arc<Mutex<Option<Arc<Held>>>>);

/// That this replica leads, for as long as it could say so to the API server.
#[derive(Debug)]
pub struct Held {
    until: Mutex<Instant>,
}

/// The Lease as it was last seen to change. Clocks of two machines differ, so that the times in it
/// are for people: what counts is for how long this process has seen it unchanged.
struct Seen {
    version: Option<String>,
    since: Instant,
}

/// How one look at the Lease ended.
enum Look {
    /// This replica leads.
    Mine,
    /// Another one does.
    Theirs,
    /// Somebody else wrote it at the same time: look again.
    Raced,
}

impl Elector {
    /// A replica called `me`, which no other live one is called, that wants the Lease `name`.
    pub fn new(client: Client, namespace: &str, name: &str, me: &str, ttl: Duration) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            me: me.to_owned(),
            ttl,
            leading: Leading::default(),
            conflicts: Conflicts::default(),
        }
    }

    /// The same, which lets `leading` know.
    #[must_use]
    pub fn telling(self, leading: Leading) -> Self {
        Self { leading, ..self }
    }

    /// The same, which does not lead while another release has what this one wants.
    #[must_use]
    pub fn unless(self, conflicts: Conflicts) -> Self {
        Self { conflicts, ..self }
    }

    /// Waits until this replica leads.
    pub async fn acquire(&self) -> Arc<Held> {
        let mut seen = None;
        let mut complained = false;
        loop {
            self.conflicts.none().await;
            let began = Instant::now();
            match self.within(self.attempt(&mut seen, began)).await {
                Ok(Look::Mine) => {
                    tracing::info!(lease = self.name, me = self.me, "leading");
                    let held = Arc::new(Held {
                        until: Mutex::new(began + self.validity()),
                    });
                    self.leading.put(held.clone());
                    return held;
                }
                Ok(Look::Theirs | Look::Raced) => complained = false,
                Err(error) if !complained => {
                    complained = true;
                    tracing::warn!("{}; trying again", ipu_text::explain(&error));
                }
                Err(_) => {}
            }
            tokio::time::sleep(self.pause()).await;
        }
    }

    /// Renews the Lease; ends once it is lost, or was not renewed in time, however long an answer takes, or
    /// another release has what this one wants.
    pub async fn keep(&self, held: &Held) {
        tokio::select! {
            () = self.renew(held) => tracing::warn!(lease = self.name, "another replica leads now"),
            () = held.ran_out() => {
                tracing::warn!(lease = self.name, "not renewed in time; no longer leading");
            }
            () = self.conflicts.any() => held.extend(Instant::now()),
        }
    }

    /// Renews the Lease until another replica has it.
    async fn renew(&self, held: &Held) {
        let mut seen = None;
        loop {
            tokio::time::sleep(self.pause()).await;
            let began = Instant::now();
            match self.within(self.attempt(&mut seen, began)).await {
                Ok(Look::Mine) => held.extend(began + self.validity()),
                Ok(Look::Raced) => {}
                Ok(Look::Theirs) => {
                    held.extend(began);
                    return;
                }
                Err(error) => tracing::warn!("{}", ipu_text::explain(&error)),
            }
        }
    }

    /// Gives the Lease back, so that another replica need not wait until it runs out.
    pub async fn release(&self, held: &Held) {
        held.extend(Instant::now());
        let given = self.within(async {
            let lease = self.read().await?;
            let Some(lease) = lease.filter(|lease| decide::holder(lease) == Some(&*self.me)) else {
                return Ok(());
            };
            let spec = decide::released(lease.spec.as_ref(), clock::now());
            self.write(&Lease {
                spec: Some(spec),
                ..lease
            })
            .await
            .map(|_| ())
        });
        match given.await {
            Ok(()) => tracing::info!(lease = self.name, "gave the lead back"),
            Err(error) => tracing::warn!("{}", ipu_text::explain(&error)),
        }
    }

    /// One look at the Lease, and what follows from it.
    async fn attempt(&self, seen: &mut Option<Seen>, now: Instant) -> Result<Look, LeaseError> {
        let lease = self.read().await?;
        let version = lease.as_ref().and_then(|lease| {
            let version = &lease.metadata.resource_version;
            version.clone()
        });
        let last = match seen.take().filter(|last| last.version == version) {
            Some(last) => seen.insert(last),
            None => seen.insert(Seen {
                version,
                since: now,
            }),
        };
        let unchanged = now.duration_since(last.since);
        let written = match decide::next(lease.as_ref(), &self.me, unchanged) {
            Move::Wait => return Ok(Look::Theirs),
            Move::Create => {
                let lease = Lease {
                    metadata: ObjectMeta {
                        name: Some(self.name.clone()),
                        ..ObjectMeta::default()
                    },
                    spec: Some(decide::spec(None, &self.me, self.ttl, clock::now())),
                };
                self.api.create(&PostParams::default(), &lease).await
            }
            Move::Take => {
                let lease = lease.unwrap_or_default();
                let spec = decide::spec(lease.spec.as_ref(), &self.me, self.ttl, clock::now());
                let lease = Lease {
                    spec: Some(spec),
                    ..lease
                };
                return self.write(&lease).await;
            }
        };
        taken(written, &self.name)
    }

    async fn read(&self) -> Result<Option<Lease>, LeaseError> {
        let found = self.api.get_opt(&self.name).await;
        found.map_err(|source| LeaseError::Read {
            name: self.name.clone(),
            source: Box::new(source),
        })
    }

    /// Replaces the Lease, unless it changed since it was read.
    async fn write(&self, lease: &Lease) -> Result<Look, LeaseError> {
        let params = PostParams::default();
        taken(
            self.api.replace(&self.name, &params, lease).await,
            &self.name,
        )
    }

    async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, LeaseError>>,
    ) -> Result<T, LeaseError> {
        let late = || LeaseError::Late {
            name: self.name.clone(),
        };
        let answered = tokio::time::timeout(self.ttl / 3, work).await;
        answered.unwrap_or_else(|_| Err(late()))
    }

    /// For how long after a renewal this replica may act: shorter than others wait.
    fn validity(&self) -> Duration {
        self.ttl * 2 / 3
    }

    /// Between two looks.
    fn pause(&self) -> Duration {
        self.ttl / 8
    }
}

impl Leading {
    /// Whether the replica may act now.
    pub fn is_valid(&self) -> bool {
        let held = self.0.lock();
        held.as_ref().is_some_and(|held| held.is_valid())
    }

    fn put(&self, held: Arc<Held>) {
        *self.0.lock() = Some(held);
    }
}

impl Held {
    /// Whether this replica may still act. Asked of the clock, so that a process that was paused
    /// knows before any answer of the API server does.
    pub fn is_valid(&self) -> bool {
        Instant::now() < self.until()
    }

    /// Waits until this replica may no longer act.
    async fn ran_out(&self) {
        while self.is_valid() {
            tokio::time::sleep_until(self.until()).await;
        }
    }

    fn until(&self) -> Instant {
        *self.until.lock()
    }

    fn extend(&self, until: Instant) {
        *self.until.lock() = until;
    }
}

/// Somebody else was quicker where the API server says that the object is there or has changed.
fn taken(written: Result<Lease, kube::Error>, name: &str) -> Result<Look, LeaseError> {
    match written {
        Ok(_) => Ok(Look::Mine),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(Look::Raced),
        Err(source) => Err(LeaseError::Write {
            name: name.to_owned(),
            source: Box::new(source),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Method, Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tower::{BoxError, service_fn};

    use super::*;

    /// An API server that lets a Lease be made, counts what is written, and then answers nothing that
    /// is about Leases.
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
    async fn a_lead_ends_before_another_replica_takes_it_though_no_answer_comes() {
        let (ttl, writes) = (Duration::from_secs(3), Arc::default());
        let elector = Elector::new(server(writes), "default", "lease", "me", ttl);
        let held = elector.acquire().await;
        let others_wait_until = Instant::now() + ttl * 4 / 5;
        let ended_in_time = tokio::select! {
            biased;
            () = elector.keep(&held) => true,
            () = tokio::time::sleep_until(others_wait_until) => false,
        };
        assert!(ended_in_time);
        assert!(!held.is_valid());
    }

    #[tokio::test]
    async fn who_no_longer_leads_reads_and_writes_nothing() {
        let writes = Arc::new(AtomicUsize::new(0));
        let held = Arc::new(Held {
            until: Mutex::new(Instant::now() + Duration::from_hours(1)),
        });
        let client = fenced(&server(writes.clone()), held.clone());
        let maps = Api::<k8s_openapi::api::core::v1::ConfigMap>::default_namespaced(client);
        let (params, map) = (PostParams::default(), Default::default());
        maps.create(&params, &map).await.unwrap();
        held.extend(Instant::now());
        let refused = maps.create(&params, &map).await.unwrap_err();
        let refused = ipu_text::explain(&refused);
        assert!(refused.contains("another replica may lead"), "{refused}");
        assert!(maps.get_opt("map").await.unwrap().is_none());
        assert_eq!(writes.load(Ordering::SeqCst), 1);
    }
}
