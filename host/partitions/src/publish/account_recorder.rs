//! Observes the IPUs of all V-IPU controllers while this replica leads, and keeps their accounts.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use ipu_api::ipuaccounting::IPUAccounting;
use ipu_runtime::clock;
use ipu_text::explain;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::ApiResource;
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use vipu_client::inventory::Report;

use crate::accounting::Accounts;
use crate::accounting::observation::{ControllerReport, LedgerUse, UsedPartitions};
use crate::accounting::pod_readiness::PodReadiness;
use crate::accounting::stored::stored;
use crate::leader::Context;

/// Time between two reads of the controllers. A partition that others create is seen as late as
/// that.
const PERIOD: Duration = Duration::from_secs(5);

/// Shortest time between two observations, so that a burst of changes is one.
const BATCH_DELAY: Duration = Duration::from_millis(250);

/// Changes that are taken at once.
const BATCH: usize = 1_024;

/// IPUAccountings that are read at once: each has the periods of a month.
const PAGE: u32 = 32;

/// Time between two attempts to read the accounts of the leader before.
const RETRY: Duration = Duration::from_secs(10);

/// Keeps the accounts of the leader.
struct Recorder {
    context: Arc<Context>,
    pods: PodReadiness,
    used: Mutex<UsedPartitions>,
    reports: Mutex<Vec<ControllerReport>>,
}

/// Keeps the accounts until `stop`.
pub async fn run(context: Arc<Context>, stop: CancellationToken) {
    let recorder = Recorder {
        context,
        pods: PodReadiness::default(),
        used: Mutex::default(),
        reports: Mutex::default(),
    };
    let context = &recorder.context;
    let recording = async {
        recorder.resume().await;
        context.watched.once_listed().await;
        futures::join!(recorder.read_controllers(), recorder.follow_changes())
    };
    let following = recorder.pods.follow(&context.client, &context.scope, |id| {
        context.pod_waits.pod_ended(id);
    });
    let both = Box::pin(async { futures::join!(recording, following) });
    let _ = stop.run_until_cancelled(both).await;
}

impl Recorder {
    /// Continues the accounts of the previous leader, which may have been this replica. Counting
    /// starts after the IPUAccountings are read, because the new accounts continue them.
    async fn resume(&self) {
        loop {
            match previous(&self.context.client).await {
                Ok(mut accounts) => {
                    let store = &self.context.accounts;
                    accounts.prefer_own(store.inactive());
                    *store.accounts() = accounts;
                    return;
                }
                // The kind is not served, so there are no accounts.
                Err(kube::Error::Api(status)) if status.code == 404 => return,
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "failed to read the accounts of IPU-seconds in IPUAccountings; trying again"
                    );
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Reads all controllers again and again.
    async fn read_controllers(&self) {
        loop {
            let reports = self.context.pool.reports().await;
            self.take_reports(&reports);
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Observes after each change of an IPUPartition or a Pod.
    async fn follow_changes(&self) {
        let ledger = &self.context.watched;
        let mut names = pin!(ledger.names().ready_chunks(BATCH));
        let (mut released, mut pods) = (ledger.released(), self.pods.changes());
        loop {
            tokio::select! {
                Some(_) = names.next() => {}
                Ok(()) = released.changed() => {}
                Ok(()) = pods.changed() => {}
                else => return,
            }
            self.observe(&self.ledger_use());
            tokio::time::sleep(BATCH_DELAY).await;
        }
    }

    fn take_reports(&self, reports: &[Report]) {
        let ledger = self.ledger_use();
        let reports = reports.iter().map(|report| ledger.report(report));
        *self.reports.lock() = reports.collect();
        self.observe(&ledger);
    }

    fn ledger_use(&self) -> LedgerUse {
        let pods = |namespace: &Arc<str>, id| self.pods.of(namespace, id);
        let mut used = self.used.lock();
        self.context.watched.read(|cache| {
            let smallest_waiting = cache.smallest_waiting();
            let briefs = cache.briefs().map(|(brief, _)| brief);
            LedgerUse::of(briefs, smallest_waiting, pods, &mut used, clock::now())
        })
    }

    fn observe(&self, ledger: &LedgerUse) {
        let observed = ledger.observed(&self.reports.lock());
        let is_kept = |name: &str| ledger.has_controller(name);
        // Before the first reports, no controller counts as gone.
        if !observed.is_empty() || self.context.pool.controllers().is_empty() {
            let mut accounts = self.context.accounts.accounts();
            accounts.observe(&observed, is_kept, clock::now());
        }
    }
}

/// The accounts in all IPUAccountings, also those of controllers that are not in the list now. An
/// unreadable object must not stop the others.
async fn previous(client: &Client) -> Result<Accounts, kube::Error> {
    let kind = ApiResource::erase::<IPUAccounting>(&());
    let objects = Api::<DynamicObject>::all_with(client.clone(), &kind);
    let mut params = ListParams::default().limit(PAGE);
    let mut accounts = Accounts::default();
    loop {
        let page = objects.list(&params).await?;
        for object in page.items {
            let name = object.name_any();
            match stored(object) {
                Ok(record) => accounts.resume(&record.address, &record.accounting, record.ipus),
                Err(error) => tracing::warn!(
                    name,
                    error = explain(&error),
                    "an account of IPU-seconds is not continued"
                ),
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(accounts),
        }
    }
}
