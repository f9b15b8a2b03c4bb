//! Leader election: the replica that holds a Kubernetes Lease reconciles.
//!
//! A Lease does not stop a replica that was paused: it wakes up and considers itself the leader.
//! Therefore each write has the version that was read, and [`Leadership::is_valid`] is checked
//! before each effect. The durations have the names of Kubernetes' client-go.

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
use decide::Action;
pub use fence::fenced;

/// Default duration of a Lease, as for the components of Kubernetes.
pub const LEASE_DURATION: Duration = Duration::from_secs(15);

/// A failed read or write of the Lease.
#[derive(Debug, thiserror::Error)]
enum LeaseError {
    #[error("failed to {action} the Lease {name}")]
    Request {
        action: &'static str,
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("failed to read or write the Lease {name}: the API server gave no answer in time")]
    Timeout { name: String },
}

/// A candidate for the leadership.
#[derive(Clone, Debug)]
pub struct Elector {
    api: Api<Lease>,
    name: String,
    identity: String,
    lease_duration: Duration,
    status: LeadershipStatus,
    conflicts: Conflicts,
}

/// Whether a replica leads. Clones share the value.
#[derive(Clone, Debug, Default)]
pub struct LeadershipStatus(Arc<Mutex<Option<Arc<Leadership>>>>);

/// The leadership of this replica, valid until the last renewal expires.
#[derive(Debug)]
pub struct Leadership {
    valid_until: Mutex<Instant>,
}

/// The Lease at its last observed change. Clocks of two machines differ, so decisions use the time
/// for which this process has observed the Lease unchanged, and not the times in it.
struct Observed {
    version: Option<String>,
    since: Instant,
}

/// The result of one attempt to acquire or renew the Lease.
enum Attempt {
    /// This replica leads.
    Acquired,
    /// Another replica leads.
    HeldByOther,
    /// Another replica wrote the Lease at the same time: try again.
    Conflict,
}

impl Elector {
    /// Creates a candidate for the Lease `name`. No other live replica has the same `identity`.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        identity: &str,
        lease_duration: Duration,
    ) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity: identity.to_owned(),
            lease_duration,
            status: LeadershipStatus::default(),
            conflicts: Conflicts::default(),
        }
    }

    /// Publishes the leadership in `status`.
    #[must_use]
    pub fn with_status(self, status: LeadershipStatus) -> Self {
        Self { status, ..self }
    }

    /// Prevents the leadership while this release conflicts with an older one.
    #[must_use]
    pub fn with_conflicts(self, conflicts: Conflicts) -> Self {
        Self { conflicts, ..self }
    }

    /// Waits until this replica leads.
    pub async fn acquire(&self) -> Arc<Leadership> {
        let mut observed = None;
        let mut has_warned = false;
        loop {
            self.conflicts.wait_none().await;
            let began = Instant::now();
            match self.with_timeout(self.attempt(&mut observed, began)).await {
                Ok(Attempt::Acquired) => {
                    tracing::info!(lease = self.name, me = self.identity, "leading");
                    let leadership = Arc::new(Leadership {
                        valid_until: Mutex::new(began + self.renew_deadline()),
                    });
                    self.status.set(leadership.clone());
                    return leadership;
                }
                Ok(Attempt::HeldByOther | Attempt::Conflict) => has_warned = false,
                Err(error) if !has_warned => {
                    has_warned = true;
                    tracing::warn!("{}; trying again", ipu_text::explain(&error));
                }
                Err(_) => {}
            }
            tokio::time::sleep(self.retry_period()).await;
        }
    }

    /// Renews the Lease until it is lost, is not renewed in time, or the release conflicts with an
    /// older one.
    pub async fn renew_until_lost(&self, leadership: &Leadership) {
        tokio::select! {
            () = self.renew(leadership) => tracing::warn!(lease = self.name, "another replica leads now"),
            () = leadership.expired() => {
                tracing::warn!(lease = self.name, "not renewed in time; no longer leading");
            }
            () = self.conflicts.wait_any() => leadership.set_valid_until(Instant::now()),
        }
    }

    /// Renews the Lease until another replica holds it.
    async fn renew(&self, leadership: &Leadership) {
        let mut observed = None;
        loop {
            tokio::time::sleep(self.retry_period()).await;
            let began = Instant::now();
            match self.with_timeout(self.attempt(&mut observed, began)).await {
                Ok(Attempt::Acquired) => leadership.set_valid_until(began + self.renew_deadline()),
                Ok(Attempt::Conflict) => {}
                Ok(Attempt::HeldByOther) => {
                    leadership.set_valid_until(began);
                    return;
                }
                Err(error) => tracing::warn!("{}", ipu_text::explain(&error)),
            }
        }
    }

    /// Releases the Lease, so that another replica does not wait until it expires.
    pub async fn release(&self, leadership: &Leadership) {
        leadership.set_valid_until(Instant::now());
        let released = self.with_timeout(async {
            let lease = self.read().await?;
            let Some(lease) = lease.filter(|lease| decide::holder(lease) == Some(&*self.identity))
            else {
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
        match released.await {
            Ok(()) => tracing::info!(lease = self.name, "released the Lease"),
            Err(error) => tracing::warn!("{}", ipu_text::explain(&error)),
        }
    }

    /// Reads the Lease, and acquires or renews it if this is allowed.
    async fn attempt(
        &self,
        observed: &mut Option<Observed>,
        now: Instant,
    ) -> Result<Attempt, LeaseError> {
        let lease = self.read().await?;
        let version = lease.as_ref().and_then(|lease| {
            let version = &lease.metadata.resource_version;
            version.clone()
        });
        let last = match observed.take().filter(|last| last.version == version) {
            Some(last) => observed.insert(last),
            None => observed.insert(Observed {
                version,
                since: now,
            }),
        };
        let unchanged = now.duration_since(last.since);
        let written = match decide::next_action(lease.as_ref(), &self.identity, unchanged) {
            Action::Wait => return Ok(Attempt::HeldByOther),
            Action::Create => {
                let lease = Lease {
                    metadata: ObjectMeta {
                        name: Some(self.name.clone()),
                        ..ObjectMeta::default()
                    },
                    spec: Some(decide::spec(
                        None,
                        &self.identity,
                        self.lease_duration,
                        clock::now(),
                    )),
                };
                self.api.create(&PostParams::default(), &lease).await
            }
            Action::Acquire => {
                let lease = lease.unwrap_or_default();
                let spec = decide::spec(
                    lease.spec.as_ref(),
                    &self.identity,
                    self.lease_duration,
                    clock::now(),
                );
                let lease = Lease {
                    spec: Some(spec),
                    ..lease
                };
                return self.write(&lease).await;
            }
        };
        attempt_result(written, &self.name)
    }

    async fn read(&self) -> Result<Option<Lease>, LeaseError> {
        let found = self.api.get_opt(&self.name).await;
        found.map_err(|source| LeaseError::Request {
            action: "read",
            name: self.name.clone(),
            source: Box::new(source),
        })
    }

    /// Replaces the Lease, unless it changed since it was read.
    async fn write(&self, lease: &Lease) -> Result<Attempt, LeaseError> {
        let params = PostParams::default();
        attempt_result(
            self.api.replace(&self.name, &params, lease).await,
            &self.name,
        )
    }

    async fn with_timeout<T>(
        &self,
        work: impl Future<Output = Result<T, LeaseError>>,
    ) -> Result<T, LeaseError> {
        let late = || LeaseError::Timeout {
            name: self.name.clone(),
        };
        let completed = tokio::time::timeout(self.lease_duration / 3, work).await;
        completed.unwrap_or_else(|_| Err(late()))
    }

    /// Time after a renewal for which this replica may act. Other replicas wait longer.
    fn renew_deadline(&self) -> Duration {
        self.lease_duration * 2 / 3
    }

    /// Time between two attempts.
    fn retry_period(&self) -> Duration {
        self.lease_duration / 8
    }
}

impl LeadershipStatus {
    /// The status of a replica with this leadership.
    #[cfg(any(test, feature = "fixtures"))]
    pub fn of(leadership: Leadership) -> Self {
        let status = Self::default();
        status.set(Arc::new(leadership));
        status
    }

    /// Whether the replica may act now.
    pub fn is_valid(&self) -> bool {
        let leadership = self.0.lock();
        leadership
            .as_ref()
            .is_some_and(|leadership| leadership.is_valid())
    }

    fn set(&self, leadership: Arc<Leadership>) {
        *self.0.lock() = Some(leadership);
    }
}

impl Leadership {
    /// A leadership until this time.
    #[cfg(any(test, feature = "fixtures"))]
    pub fn until(valid_until: Instant) -> Self {
        Self {
            valid_until: Mutex::new(valid_until),
        }
    }

    /// Whether this replica may still act, by its own clock. A process that was paused knows it
    /// before any response of the API server.
    pub fn is_valid(&self) -> bool {
        Instant::now() < self.valid_until()
    }

    /// Waits until this replica may no longer act.
    async fn expired(&self) {
        while self.is_valid() {
            tokio::time::sleep_until(self.valid_until()).await;
        }
    }

    fn valid_until(&self) -> Instant {
        *self.valid_until.lock()
    }

    fn set_valid_until(&self, valid_until: Instant) {
        *self.valid_until.lock() = valid_until;
    }
}

/// Interprets the result of a write. The status 409 means that another replica was faster.
fn attempt_result(written: Result<Lease, kube::Error>, name: &str) -> Result<Attempt, LeaseError> {
    match written {
        Ok(_) => Ok(Attempt::Acquired),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(Attempt::Conflict),
        Err(source) => Err(LeaseError::Request {
            action: "write",
            name: name.to_owned(),
            source: Box::new(source),
        }),
    }
}

#[cfg(test)]
mod tests;
