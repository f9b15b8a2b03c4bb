//! What both processes count and measure, for Prometheus: families by area, all of one process in one
//! registry that is handed down from its start.
//!
//! What happens is counted where it happens, by atomic counters. What stands is not counted but read
//! for each scrape, from what the process holds anyway.

pub mod admission;
pub mod api;
mod bounded;
pub mod connections;
pub mod guests;
pub mod jobs;
pub mod partitions;
pub mod process;
pub mod reconcile;
pub mod serve;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::future::BoxFuture;
use prometheus_client::registry::Registry;

use crate::lease::Leading;
use crate::policy::Process;
use crate::policy::guests::Guests;
use crate::release::ReleaseOptions;
use crate::scope::Conflicts;
use crate::scope::conflicts::{ConflictWatch, conflicts};

/// What the name of every metric starts with.
const PREFIX: &str = "ipu_operator";

/// Everything that one process counts. Cheap to clone; all clones count the same.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Requests of the API server to the webhooks.
    pub admission: admission::Admission,
    /// Requests to the API server.
    pub api: api::ApiCalls,
    /// Calls of guests.
    pub guests: guests::GuestCalls,
    /// What becomes of jobs.
    pub jobs: jobs::Jobs,
    /// What the ports refused.
    pub refused: connections::Refused,
    /// Reconciles of the one kind that the process reconciles.
    pub reconciles: reconcile::Reconciles,
    /// Whether this replica reconciles.
    pub leading: Leading,
    /// Whether this replica activates versions of policies.
    pub policies: Leading,
    /// Whether the release has to rest, because another one was there first.
    pub conflicts: Conflicts,
}

/// A number of things as a gauge has it.
fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Reads what stands now into a registry of its own.
type Now = Arc<dyn Fn() -> BoxFuture<'static, Registry> + Send + Sync>;

/// All metrics of a process, as they are read.
#[derive(Clone)]
pub struct Exposed {
    counted: Arc<Registry>,
    now: Now,
}

impl Metrics {
    /// Nothing counted yet, for a process of a release that may meet others.
    pub fn of_release(release: &ReleaseOptions) -> (Self, ConflictWatch) {
        let (namespace, configuration) = (&release.namespace, release.configuration());
        let (conflicts, watch) = conflicts(namespace, configuration, &release.scope);
        let metrics = Self {
            conflicts,
            ..Self::default()
        };
        (metrics, watch)
    }

    /// What the controller process exposes.
    pub fn of_controller(&self, guests: Guests) -> Exposed {
        let mut registry = self.registry(Process::Controller);
        self.admission.register(&mut registry);
        self.jobs.register(&mut registry);
        let metrics = self.clone();
        Exposed::new(registry, move || {
            let mut now = metrics.standing(Process::Controller, &guests);
            metrics.jobs.expose(&mut now);
            Box::pin(std::future::ready(now))
        })
    }

    /// What the vipu-proxy process exposes.
    pub fn of_proxy(&self, guests: Guests, sources: partitions::Sources) -> Exposed {
        let registry = self.registry(Process::VipuProxy);
        let metrics = self.clone();
        Exposed::new(registry, move || {
            let mut now = metrics.standing(Process::VipuProxy, &guests);
            let sources = sources.clone();
            Box::pin(async move {
                sources.expose(&mut now).await;
                now
            })
        })
    }

    /// What both processes count.
    fn registry(&self, process: Process) -> Registry {
        let mut registry = Registry::with_prefix(PREFIX);
        process::register(&mut registry);
        crate::panics::register(&mut registry);
        self.api.register(&mut registry);
        self.guests.register(&mut registry);
        self.refused.register(&mut registry);
        self.reconciles.register(&mut registry, process);
        registry
    }

    /// What stands now in both processes.
    fn standing(&self, process: Process, guests: &Guests) -> Registry {
        let mut now = Registry::with_prefix(PREFIX);
        process::leading(&mut now, process, &self.leading, &self.policies);
        process::conflict(&mut now, &self.conflicts);
        guests::expose(&mut now, process, guests);
        now
    }
}

impl Exposed {
    fn new(
        counted: Registry,
        now: impl Fn() -> BoxFuture<'static, Registry> + Send + Sync + 'static,
    ) -> Self {
        Self {
            counted: Arc::new(counted),
            now: Arc::new(now),
        }
    }

    /// All metrics, in the text format of OpenMetrics 1.0.
    pub async fn text(&self) -> Result<String, std::fmt::Error> {
        use prometheus_client::encoding::text;
        let now = (self.now)().await;
        let mut buffer = String::new();
        text::encode_registry(&mut buffer, &self.counted)?;
        text::encode_registry(&mut buffer, &now)?;
        text::encode_eof(&mut buffer)?;
        Ok(buffer)
    }
}
