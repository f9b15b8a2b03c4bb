//! All metrics of one process, in one registry for Prometheus.
//!
//! Counters count events where they happen. Gauges are computed at each scrape from the state of
//! the process.

pub mod endpoint;
mod process;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::future::BoxFuture;
use prometheus_client::registry::Registry;

use ipu_admission::callers::Callers;
use ipu_admission::metrics::Admission;
use ipu_admission::pod_trial::PodTrial;
use ipu_admission::scale::StoredJobs;
use ipu_admission::server::WebhookContext;
use ipu_guest_host::metrics::GuestCalls;
use ipu_jobs::metrics::{JobMetrics, Jobs};
use ipu_policies::active_policies::ActivePolicies;
use ipu_ports::certificates::served::ServedCertificates;
use ipu_ports::metrics::Refused;
use ipu_runtime::api_client::ApiCalls;
use ipu_runtime::lease::LeadershipStatus;
use ipu_runtime::metrics::PREFIX;
use ipu_runtime::panics;
use ipu_runtime::release::{Process, ReleaseOptions};
use ipu_runtime::scope::Conflicts;
use ipu_runtime::scope::conflicts::{ConflictWatch, conflicts};
use ipu_runtime::served_group::ServedGroup;
use ipu_runtime::work_queue::metrics::AllReconciles;

/// The counters of one process. Cheap to clone; all clones count the same.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Requests of the API server to the webhooks.
    pub admission: Admission,
    /// Requests to the API server.
    pub api: ApiCalls,
    /// The certificates that this process serves.
    pub certificates: ServedCertificates,
    /// Calls of guests.
    pub guests: GuestCalls,
    /// Starts, restarts and ends of jobs.
    pub jobs: Jobs,
    /// Connections and requests that the ports refused.
    pub refused: Refused,
    /// Reconciles of the kinds that the process reconciles.
    pub reconciles: AllReconciles,
    /// Whether this replica reconciles.
    pub leading: LeadershipStatus,
    /// Whether this replica activates versions of policies.
    pub policies: LeadershipStatus,
    /// The older releases that make this one inactive.
    pub conflicts: Conflicts,
}

/// Computes the gauges in a registry of their own.
type Now = Arc<dyn Fn() -> BoxFuture<'static, Registry> + Send + Sync>;

/// The metrics under the names of Kubernetes' Go libraries, in a registry without a prefix.
type Standard = Arc<dyn Fn() -> Registry + Send + Sync>;

/// All metrics of a process, ready to be read.
#[derive(Clone)]
pub struct Exposed {
    counted: Arc<Registry>,
    standard: Standard,
    now: Now,
}

impl Metrics {
    /// Counters at zero, for a process of a release. Another release may serve the same namespaces.
    pub fn of_release(release: &ReleaseOptions) -> (Self, ConflictWatch) {
        let (namespace, configuration) = (&release.namespace, release.configuration());
        let (conflicts, watch) = conflicts(namespace, configuration, &release.scope);
        let metrics = Self {
            conflicts,
            ..Self::default()
        };
        (metrics, watch)
    }

    /// The counters of the job reconciler.
    pub fn of_jobs(&self) -> JobMetrics {
        JobMetrics {
            jobs: self.jobs.clone(),
            reconciles: self.reconciles.of_kind("ipujob"),
        }
    }

    /// The counters of the webhooks.
    pub fn of_webhooks(
        &self,
        callers: Callers,
        kueue: ServedGroup,
        pod_trial: PodTrial,
        jobs: StoredJobs,
    ) -> WebhookContext {
        WebhookContext {
            callers,
            admission: self.admission.clone(),
            refused: self.refused.clone(),
            conflicts: self.conflicts.clone(),
            kueue,
            pod_trial,
            jobs,
        }
    }

    /// The metrics of the controller process.
    pub fn of_controller(&self, guests: ActivePolicies) -> Exposed {
        let mut registry = self.registry();
        self.admission.register(&mut registry);
        self.jobs.register(&mut registry);
        let metrics = self.clone();
        let standard = self.standard(Process::Controller);
        Exposed::new(registry, standard, move || {
            let mut now = metrics.gauges(Process::Controller, &guests);
            metrics.jobs.expose(&mut now);
            Box::pin(std::future::ready(now))
        })
    }

    /// The metrics of the vipu-proxy process.
    pub fn of_proxy(
        &self,
        guests: ActivePolicies,
        sources: ipu_partitions::metrics::Sources,
    ) -> Exposed {
        let registry = self.registry();
        let metrics = self.clone();
        let standard = self.standard(Process::VipuProxy);
        Exposed::new(registry, standard, move || {
            let mut now = metrics.gauges(Process::VipuProxy, &guests);
            let sources = sources.clone();
            Box::pin(async move {
                sources.expose(&mut now).await;
                now
            })
        })
    }

    /// The counters of both processes.
    fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix(PREFIX);
        process::register(&mut registry);
        panics::register(&mut registry);
        self.api.register(&mut registry);
        self.guests.register(&mut registry);
        self.refused.register(&mut registry);
        self.reconciles.register(&mut registry);
        registry
    }

    /// The counters and gauges that dashboards of other controllers show, too.
    fn standard(&self, process: Process) -> Standard {
        let metrics = self.clone();
        Arc::new(move || {
            let mut standard = Registry::default();
            metrics.api.register_standard(&mut standard);
            metrics.reconciles.register_standard(&mut standard);
            process::leading_standard(&mut standard, process, &metrics.leading, &metrics.policies);
            standard
        })
    }

    /// The gauges of both processes.
    fn gauges(&self, process: Process, guests: &ActivePolicies) -> Registry {
        let mut now = Registry::with_prefix(PREFIX);
        process::leading(&mut now, process, &self.leading, &self.policies);
        process::conflict(&mut now, &self.conflicts);
        self.certificates.expose(&mut now);
        ipu_policies::metrics::expose(&mut now, process, guests);
        now
    }
}

impl Exposed {
    fn new(
        counted: Registry,
        standard: Standard,
        now: impl Fn() -> BoxFuture<'static, Registry> + Send + Sync + 'static,
    ) -> Self {
        Self {
            counted: Arc::new(counted),
            standard,
            now: Arc::new(now),
        }
    }

    /// All metrics, in the text format of OpenMetrics 1.0.
    pub async fn text(&self) -> Result<String, std::fmt::Error> {
        use prometheus_client::encoding::text;
        let now = (self.now)().await;
        let mut buffer = String::new();
        text::encode_registry(&mut buffer, &self.counted)?;
        text::encode_registry(&mut buffer, &(self.standard)())?;
        text::encode_registry(&mut buffer, &now)?;
        text::encode_eof(&mut buffer)?;
        Ok(buffer)
    }
}
