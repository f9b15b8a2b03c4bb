//! Metrics of partitions, of the IPUs of V-IPU controllers, and of their usage, read for each
//! scrape from the working data of the proxy.

pub mod machines;
pub mod summary;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures::future::{OptionFuture, join};
use ipu_api::ipupartition::IPUPartition;
use ipu_policies::namespace_usage::Namespaces;
use ipu_runtime::{clock, metrics};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use self::machines::Machines;
use self::summary::{Summary, most};
use crate::accounting::AccountStore;
use crate::controllers::{ControllerPool, ControllerState};
use crate::store::Brief;
use crate::store::watch::Watched;

/// Longest wait for a controller. Prometheus has a timeout of ten seconds. A slower controller
/// counts as unreachable.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// The sources of the metrics.
#[derive(Clone)]
pub struct Sources {
    /// Every IPUPartition.
    pub partitions: Watched,
    /// The V-IPU controllers.
    pub pool: Arc<ControllerPool>,
    /// IPUs of each namespace, in use and requested.
    pub namespaces: Namespaces,
    /// The accounts of IPU-seconds.
    pub accounts: AccountStore,
    /// The IPU-Machines of partitions. `None`: they are not read.
    pub machines: Option<Machines>,
}

/// A gauge by one label.
type By = Family<[(&'static str, String); 1], Gauge>;

impl Sources {
    /// Registers the gauges that are read at each scrape.
    pub async fn expose(&self, now: &mut Registry) {
        let ready = self.ready();
        let machines = self.machines.as_ref();
        let reading = machines.map(|machines| machines.refresh(&ready, &self.pool));
        join(self.expose_controllers(now), OptionFuture::from(reading)).await;
        if let Some(machines) = machines {
            machines.expose(&ready, now);
        }
        let partitions = &self.partitions;
        let summary = partitions.read(|cache| Summary::of(cache.briefs(), clock::now()));
        expose_partitions(now, &summary);
        self.expose_namespaces(now);
        self.expose_accounts(now);
    }

    /// The ready partitions, if their IPU-Machines are read.
    fn ready(&self) -> Vec<Arc<IPUPartition>> {
        let is_read = self.machines.is_some();
        let ready = |brief: &Brief| is_read && machines::is_ready(brief);
        self.partitions.read(|cache| cache.some(ready))
    }

    async fn expose_controllers(&self, now: &mut Registry) {
        let (up, open, failed) = (By::default(), By::default(), By::default());
        let (ipus, used, largest) = (By::default(), By::default(), By::default());
        let withheld = By::default();
        let cordons = self.pool.cordons();
        for (controller, state) in self.pool.states_within(ANSWER_LIMIT).await {
            let is_open = !cordons.contains_key(&controller.name);
            let failure_stats = self.pool.failure_stats(&controller.name);
            let name = [("vipu_controller", controller.name)];
            open.get_or_create(&name).set(i64::from(is_open));
            failed
                .get_or_create(&name)
                .set(failure_stats.failed_partitions.into());
            let answered = state.filter(|state| state.view.unreachable.is_none());
            up.get_or_create(&name).set(i64::from(answered.is_some()));
            if let Some(state) = answered {
                let held = state.withheld.as_ref().map_or(0, |held| held.ipus);
                withheld.get_or_create(&name).set(held.into());
                let ControllerState { view, .. } = state;
                ipus.get_or_create(&name).set(view.total_ipus.into());
                used.get_or_create(&name).set(view.used_ipus.into());
                largest.get_or_create(&name).set(view.largest_free.into());
            }
        }
        let controllers = now.sub_registry_with_prefix("vipu");
        controllers.register(
            "controller_up",
            "Whether the V-IPU controller answers: 1 or 0",
            up,
        );
        controllers.register(
            "controller_open",
            "Whether new partitions may be created on the V-IPU controller: 0 if it is cordoned or drained",
            open,
        );
        controllers.register(
            "controller_failed_partitions",
            "How often partitions on the V-IPU controller went into error within the last day",
            failed,
        );
        controllers.register("ipus", "IPUs that the V-IPU controller has", ipus);
        controllers.register(
            "ipus_used",
            "IPUs of the V-IPU controller that are in partitions, of the operator or of others, or withheld",
            used,
        );
        controllers.register(
            "ipus_withheld",
            "IPUs that the V-IPU controller shows as free and that IPUPartitions still hold: it has lost its state",
            withheld,
        );
        controllers.register(
            "ipus_largest_free",
            "IPUs of the largest partition that fits on the V-IPU controller now",
            largest,
        );
    }

    /// Only the leader has accounts.
    fn expose_accounts(&self, now: &mut Registry) {
        let sums: Family<[(&str, String); 2], Counter<f64, AtomicU64>> = Family::default();
        let accounts = self.accounts.accounts();
        for (controller, states) in accounts.seconds() {
            for (state, seconds) in states {
                let labels = [
                    ("state", state.name().to_owned()),
                    ("vipu_controller", controller.to_owned()),
                ];
                sums.get_or_create(&labels).inc_by(seconds);
            }
        }
        drop(accounts);
        now.sub_registry_with_prefix("vipu").register_with_unit(
            "ipu",
            "IPU-seconds of the V-IPU controller since the accounting began, each in exactly one state",
            Unit::Seconds,
            sums,
        );
    }

    fn expose_namespaces(&self, now: &mut Registry) {
        let (held, waiting) = (By::default(), By::default());
        for (namespace, usage) in most(self.namespaces.usages()) {
            let name = [("owner_namespace", namespace)];
            held.get_or_create(&name).set(usage.ipus.into());
            waiting.get_or_create(&name).set(usage.waiting_ipus.into());
        }
        now.register(
            "namespace_ipus",
            "IPUs of the partitions that a namespace has; all but the largest namespaces are _other",
            held,
        );
        now.register(
            "namespace_ipus_waiting",
            "IPUs of the partitions for which a namespace waits; all but the largest namespaces are _other",
            waiting,
        );
    }
}

fn expose_partitions(now: &mut Registry, summary: &Summary) {
    let partitions: Family<[(&str, String); 2], Gauge> = Family::default();
    for ((phase, controller), count) in &summary.counts {
        let labels = [
            ("phase", (*phase).to_owned()),
            ("vipu_controller", controller.clone()),
        ];
        partitions
            .get_or_create(&labels)
            .set(metrics::count(*count));
    }
    now.register(
        "partitions",
        "IPUPartitions, by phase and V-IPU controller (none: not placed)",
        partitions,
    );
    let unknown = By::default();
    for (reason, count) in &summary.state_unknown {
        let label = [("reason", (*reason).to_owned())];
        unknown.get_or_create(&label).set(metrics::count(*count));
    }
    now.register(
        "partitions_state_unknown",
        "IPUPartitions whose state on a V-IPU controller is unknown, by the reason of their condition StateUnknown",
        unknown,
    );
    let longest: Gauge<f64, AtomicU64> = Gauge::default();
    longest.set(summary.longest_wait);
    now.register_with_unit(
        "partition_longest_wait",
        "The longest time that a partition has waited; 0 if none waits",
        Unit::Seconds,
        longest,
    );
}
