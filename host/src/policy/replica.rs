//! Has ready what this process is to ask, asks what is in force, and says both.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::board::{self, Replica};
use super::guests::Guests;
use super::lineup::{lineup, members};
use super::matching::Matching;
use super::report::{Report, Wanted, wanted};
use super::shelf::{Failure, Ready, Shelf, Version};
use super::source::Sources;
use super::watch::PolicyStore;
use crate::agent::explain;
use crate::api::ipupolicy::Hook;
use crate::wasm::{LoadError, Terms};

/// How often the counts are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Longest time to fetch a module.
const FETCH: Duration = Duration::from_mins(1);

/// Follows the policies until `stop`.
pub async fn run(
    client: Client,
    replica: Replica,
    hooks: &[Hook],
    guests: Guests,
    sources: Sources,
    policies: PolicyStore,
    stop: CancellationToken,
) {
    let (told, reports) = watch::channel(Report {
        replica: replica.name.clone(),
        hooks: hooks.to_vec(),
        ..Report::default()
    });
    let follower = Follower {
        name: replica.name.clone(),
        hooks,
        guests,
        sources,
        policies,
        one_at_a_time: Arc::new(Semaphore::new(1)),
        told,
    };
    let writing = board::write(client, replica, reports, stop.clone());
    futures::join!(follower.follow(&stop), writing);
}

struct Follower<'a> {
    name: String,
    hooks: &'a [Hook],
    guests: Guests,
    sources: Sources,
    policies: PolicyStore,
    /// Modules are made ready one after the other: each takes a core for seconds.
    one_at_a_time: Arc<Semaphore>,
    told: watch::Sender<Report>,
}

impl Follower<'_> {
    async fn follow(&self, stop: &CancellationToken) {
        if stop
            .run_until_cancelled(self.policies.known())
            .await
            .is_none()
        {
            return;
        }
        let mut shelf = Shelf::default();
        let mut preparing = JoinSet::new();
        let mut changes = self.policies.changes();
        while !stop.is_cancelled() {
            changes.mark_unchanged();
            self.look(&mut shelf, &mut preparing);
            let again = shelf
                .next()
                .map(|again| again.saturating_duration_since(Instant::now()));
            tokio::select! {
                () = stop.cancelled() => {}
                _ = changes.changed() => {}
                Some(ended) = preparing.join_next() => match ended {
                    Ok((version, outcome)) => shelf.end(&version, outcome, Instant::now()),
                    Err(error) => tracing::error!(%error, "making a policy ready ended in a panic"),
                },
                () = sleep(again.unwrap_or(LOOK).min(LOOK)) => {}
            }
        }
    }

    /// One look at all policies: begins what is to be made ready, asks what is in force, says both.
    fn look(&self, shelf: &mut Shelf, preparing: &mut JoinSet<(Version, Result<Ready, Failure>)>) {
        let policies = self.policies.all();
        for wanted in shelf.begin(wanted(policies.iter(), self.hooks), Instant::now()) {
            let (guests, sources) = (self.guests.clone(), self.sources.clone());
            let turn = self.one_at_a_time.clone();
            preparing.spawn(async move {
                let _turn = turn.acquire_owned().await;
                let version = (wanted.uid.clone(), wanted.generation);
                (version, prepare(&guests, &sources, wanted).await)
            });
        }
        let members = members(policies.iter());
        shelf.asked_are(&members);
        for hook in self.hooks {
            let lineup = lineup(&members, *hook);
            let roster = shelf.roster(&lineup, &members, *hook, Timestamp::now());
            self.guests.put(*hook, roster);
        }
        let report = shelf.report(&self.name, self.hooks, &policies);
        self.told.send_if_modified(|told| {
            let is_news = *told != report;
            *told = report;
            is_news
        });
    }
}

/// Fetches, checks, compiles and tries one version.
async fn prepare(guests: &Guests, sources: &Sources, wanted: Wanted) -> Result<Ready, Failure> {
    let spec = wanted.spec;
    let matching = Matching::new(spec.match_.as_ref()).map_err(|error| Failure {
        reason: explain(&error),
        is_final: true,
    })?;
    let fetched = timeout(FETCH, sources.fetch(&spec.module)).await;
    let bytes = match fetched {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) => {
            return Err(Failure {
                reason: explain(&error),
                is_final: false,
            });
        }
        Err(_) => {
            return Err(Failure {
                reason: format!("its source gave no answer within {} s", FETCH.as_secs()),
                is_final: false,
            });
        }
    };
    let limits = spec.limits.unwrap_or_default();
    let settings = spec.settings.clone().map_or_else(
        || "{}".to_owned(),
        |settings| Value::Object(settings).to_string(),
    );
    let terms = Terms {
        name: wanted.name,
        settings,
        deadline: limits
            .deadline_milliseconds
            .map(|time| Duration::from_millis(time.into())),
        memory: limits.memory_mebibytes.map(|size| (size as usize) << 20),
        output: limits.output_kibibytes.map(|size| (size as usize) << 10),
    };
    let slot = spec.hook.into();
    let prepared = guests.policies().prepare(slot, bytes, terms).await;
    let guest = prepared.map_err(|error| Failure {
        is_final: !matches!(error, LoadError::Panicked(_)),
        reason: explain(&error),
    })?;
    Ok(Ready {
        digest: guest.digest().map(ToString::to_string).unwrap_or_default(),
        guest,
        matching: Arc::new(matching),
        on_error: spec.on_error(),
        meter: Arc::default(),
        asked_since: None,
    })
}
