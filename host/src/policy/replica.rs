//! Has ready what this process is to ask, asks what is in force, and says both.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
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
use crate::api::ipupolicy::{Hook, IPUPolicy, ModuleSource};
use crate::clock;
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

/// Versions that are being made ready.
type Preparing = JoinSet<(Version, Result<Ready, Failure>)>;

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
        changes.mark_changed();
        let mut policies = Vec::new();
        while !stop.is_cancelled() {
            let again = shelf
                .next()
                .map(|again| again.saturating_duration_since(Instant::now()));
            let is_due = tokio::select! {
                () = stop.cancelled() => false,
                changed = changes.changed() => changed.is_ok(),
                Some(ended) = preparing.join_next() => {
                    let (version, outcome) = ended.expect("it is not aborted, and its panics are caught");
                    shelf.end(&version, outcome, Instant::now());
                    true
                },
                () = sleep(again.unwrap_or(Duration::MAX)), if again.is_some() => true,
                () = sleep(LOOK) => false,
            };
            if is_due {
                policies = self.policies.all();
                self.look(&policies, &mut shelf, &mut preparing);
            }
            self.tell(shelf.report(&self.name, self.hooks, &policies));
        }
    }

    /// One look at all policies: begins what is to be made ready, and asks what is in force.
    fn look(&self, policies: &[IPUPolicy], shelf: &mut Shelf, preparing: &mut Preparing) {
        let wanted = wanted(policies.iter(), self.hooks);
        let named: Vec<_> = wanted.iter().map(|one| one.spec.module.clone()).collect();
        let due = shelf.begin(wanted, Instant::now());
        if !due.is_empty() {
            let sources = self.sources.clone();
            tokio::spawn(async move { sources.prune(named.iter()).await });
        }
        for wanted in due {
            let (guests, sources) = (self.guests.clone(), self.sources.clone());
            let turn = self.one_at_a_time.clone();
            preparing.spawn(async move {
                let version = (wanted.uid.clone(), wanted.generation);
                let prepared = caught(prepare(&guests, &sources, &turn, wanted));
                (version, prepared.await)
            });
        }
        let members = members(policies.iter());
        shelf.asked_are(&members);
        for hook in self.hooks {
            let lineup = lineup(&members, *hook);
            let roster = shelf.roster(&lineup, &members, *hook, clock::now());
            self.guests.put(*hook, roster);
        }
    }

    fn tell(&self, report: Report) {
        self.told.send_if_modified(|told| {
            let is_news = *told != report;
            *told = report;
            is_news
        });
    }
}

/// A panic while a version is made ready is a fault of ours, which must not leave that version loading
/// for ever.
async fn caught(preparing: impl Future<Output = Result<Ready, Failure>>) -> Result<Ready, Failure> {
    let ended = AssertUnwindSafe(preparing).catch_unwind().await;
    ended.unwrap_or_else(|_| {
        Err(Failure {
            reason: "making it ready ended in a panic, which the operator's log tells; \
                     it is tried again"
                .to_owned(),
            is_final: false,
            mends: true,
        })
    })
}

/// Fetches, checks, compiles and tries one version.
async fn prepare(
    guests: &Guests,
    sources: &Sources,
    turn: &Semaphore,
    wanted: Wanted,
) -> Result<Ready, Failure> {
    let spec = wanted.spec;
    let matching = Matching::new(spec.match_.as_ref()).map_err(|error| Failure {
        reason: explain(&error),
        is_final: true,
        mends: false,
    })?;
    let bytes = fetch(sources, &spec.module).await?;
    let _turn = turn.acquire().await;
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
        fuel: limits.fuel,
    };
    let slot = spec.hook.into();
    let prepared = guests.policies().prepare(slot, bytes, terms).await;
    let guest = prepared.map_err(|error| {
        let mends = matches!(error, LoadError::Panicked(_));
        Failure {
            is_final: !mends,
            mends,
            reason: explain(&error),
        }
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

/// The module, for which there is only so much time. What is refused may still be signed later, or by
/// another key.
async fn fetch(sources: &Sources, module: &ModuleSource) -> Result<Vec<u8>, Failure> {
    let failure = |reason, is_final| Failure {
        reason,
        is_final,
        mends: true,
    };
    if let Ok(fetched) = timeout(FETCH, sources.fetch(module)).await {
        return fetched.map_err(|error| failure(explain(&error), error.is_refusal()));
    }
    let seconds = FETCH.as_secs();
    let reason = format!("its source gave no answer within {seconds} s");
    Err(failure(reason, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_version_whose_preparation_panics_has_failed_and_is_tried_again() {
        let failure = caught(async { panic!("a fault of ours") })
            .await
            .unwrap_err();
        assert!(!failure.is_final);
        assert!(failure.reason.contains("panic"), "{}", failure.reason);
    }
}
