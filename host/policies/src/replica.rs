//! Has ready what this process is to ask, asks what is active, and says both.

use std::sync::Arc;
use std::time::Duration;

use ipu_api::ipupolicy::{Hook, IPUPolicy, Match, ModuleSource};
use ipu_guest_host::{LoadError, Terms};
use ipu_runtime::clock;
use ipu_runtime::panics;
use ipu_text::explain;
use kube::Client;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::board::{self, Replica};
use super::guests::Guests;
use super::lineup::{lineup, members};
use super::matching::Matching;
use super::report::{Report, Wanted, wanted};
use super::shelf::{Failure, Read, Ready, Shelf, Version};
use super::source::{REGISTRIES, Sources};
use super::watch::PolicyStore;

/// How often the counts are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Longest time to fetch a module.
const FETCH: Duration = Duration::from_mins(1);

/// Modules from registries that are in memory before their turn. A slow registry holds up few others.
pub const FETCHED: usize = REGISTRIES;

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
        turns: Turns::default(),
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
    turns: Turns,
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
                let looking = self.look(&policies, &mut shelf, &mut preparing);
                if let Err(panicked) = panics::caught(looking).await {
                    tracing::error!(
                        "failed to follow the IPUPolicies; the active ones stay active: {panicked}"
                    );
                }
            }
            self.tell(shelf.report(&self.name, self.hooks, &policies));
        }
    }

    /// One look at all policies: begins what is to be made ready, and asks what is active.
    async fn look(&self, policies: &[IPUPolicy], shelf: &mut Shelf, preparing: &mut Preparing) {
        let wanted = wanted(policies.iter(), self.hooks);
        let members = members(policies.iter());
        for (version, wanted) in shelf.unread(&wanted, &members) {
            shelf.read(version, read(wanted).await);
        }
        let named: Vec<_> = wanted.iter().map(|one| one.spec.module.clone()).collect();
        let active: Vec<_> = members.iter().map(|one| one.spec.module.clone()).collect();
        let due = shelf.begin(wanted, Instant::now());
        if !due.is_empty() {
            let sources = self.sources.clone();
            tokio::spawn(async move { sources.prune(&named, &active).await });
        }
        for wanted in due {
            let (guests, sources) = (self.guests.clone(), self.sources.clone());
            let turns = self.turns.clone();
            let version = (wanted.uid.clone(), wanted.generation);
            let matching = shelf.matching(&version);
            preparing.spawn(async move {
                let prepared = prepare((&guests, &sources), &turns, matching, wanted);
                (version, Box::pin(caught(prepared)).await)
            });
        }
        shelf.asked_are(&members);
        for hook in self.hooks {
            let lineup = lineup(&members, *hook);
            let roster = shelf.roster(&lineup, &members, *hook, clock::now());
            self.guests.put(*hook, roster);
        }
        if !shelf.is_loading(&members) {
            self.guests.set_loaded();
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

/// Modules are made ready one after the other: each takes a core for seconds, and memory.
#[derive(Clone)]
struct Turns {
    making: Arc<Semaphore>,
    fetched: Arc<Semaphore>,
}

/// The turn of a module, until this is dropped.
struct Turn {
    _permits: [Option<OwnedSemaphorePermit>; 2],
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            making: Arc::new(Semaphore::new(1)),
            fetched: Arc::new(Semaphore::new(FETCHED)),
        }
    }
}

impl Turns {
    /// Waits for the turn of a module, and fetches it then. One from a registry, which may be slow, is fetched before.
    async fn take<T, E>(
        &self,
        is_remote: bool,
        fetch: impl Future<Output = Result<T, E>>,
    ) -> Result<(T, Turn), E> {
        // Neither is ever closed.
        let permit =
            async |semaphore: &Arc<Semaphore>| semaphore.clone().acquire_owned().await.ok();
        if is_remote {
            let place = permit(&self.fetched).await;
            let fetched = fetch.await?;
            let turn = Turn {
                _permits: [permit(&self.making).await, place],
            };
            return Ok((fetched, turn));
        }
        let turn = Turn {
            _permits: [permit(&self.making).await, None],
        };
        Ok((fetch.await?, turn))
    }
}

/// What `spec.match` means. Expressions are parsed off the async threads.
async fn read(wanted: Option<Match>) -> Read {
    let read = move || panics::caught_now(|| Matching::new(wanted.as_ref()));
    match spawn_blocking(read)
        .await
        .map_err(panics::Panicked::from)
        .flatten()
    {
        Ok(Ok(matching)) => Ok(Arc::new(matching)),
        Ok(Err(error)) => Err(explain(&error)),
        Err(panicked) => Err(format!("failed to read spec.match: {panicked}")),
    }
}

/// A panic while a version is made ready is a fault of ours, which must not leave that version loading
/// for ever.
async fn caught(preparing: impl Future<Output = Result<Ready, Failure>>) -> Result<Ready, Failure> {
    let ended = panics::caught(preparing).await;
    ended.unwrap_or_else(|_| {
        Err(Failure {
            reason: "making it ready ended in a panic, which the operator's log reports; \
                     the operator tries again"
                .to_owned(),
            is_final: false,
            mends: true,
        })
    })
}

/// Fetches, checks, compiles and tries one version.
async fn prepare(
    (guests, sources): (&Guests, &Sources),
    turns: &Turns,
    matching: Read,
    wanted: Wanted,
) -> Result<Ready, Failure> {
    let spec = wanted.spec;
    let matching = matching.map_err(|reason| Failure {
        reason,
        is_final: true,
        mends: false,
    })?;
    let is_remote = spec.module.oci.is_some();
    let (bytes, _turn) = turns.take(is_remote, fetch(sources, &spec.module)).await?;
    let limits = spec.limits.unwrap_or_default();
    let settings = spec.settings.clone().map_or_else(
        || "{}".to_owned(),
        |settings| Value::Object(settings).to_string(),
    );
    let terms = Terms {
        settings,
        deadline: limits
            .deadline_milliseconds
            .map(|time| Duration::from_millis(time.into())),
        memory: limits.memory_mebibytes.map(|size| (size as usize) << 20),
        output: limits.output_kibibytes.map(|size| (size as usize) << 10),
    };
    let slot = spec.hook.into();
    let prepared = guests.policies().prepare(slot, bytes, terms).await;
    sources.trim().await;
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
        matching,
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::*;

    #[tokio::test]
    async fn a_module_is_in_memory_once_it_has_its_turn_and_few_from_registries_are_before() {
        for (is_remote, most) in [(false, 1), (true, FETCHED)] {
            let (turns, held, seen) = (Turns::default(), AtomicUsize::new(0), AtomicUsize::new(0));
            let prepared = (0..50).map(async |_| {
                let fetch = async {
                    tokio::task::yield_now().await;
                    seen.fetch_max(held.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    Ok::<(), ()>(())
                };
                let _turn = turns.take(is_remote, fetch).await.unwrap();
                tokio::task::yield_now().await;
                held.fetch_sub(1, Ordering::SeqCst);
            });
            join_all(prepared).await;
            assert_eq!(seen.load(Ordering::SeqCst), most);
        }
    }

    #[tokio::test]
    async fn a_registry_that_never_answers_holds_up_no_module_that_is_here() {
        let turns = Turns::default();
        let never = std::future::pending::<Result<(), ()>>();
        let mut waiting = Box::pin(turns.take(true, never));
        assert!(futures::poll!(&mut waiting).is_pending());
        let here = turns.take(false, async { Ok::<_, ()>(1) }).await;
        assert_eq!(here.map(|(module, _)| module).ok(), Some(1));
    }

    #[tokio::test]
    async fn a_version_whose_preparation_panics_has_failed_and_is_tried_again() {
        let failure = caught(async { panic!("a fault of ours") })
            .await
            .unwrap_err();
        assert!(!failure.is_final);
        assert!(failure.reason.contains("panic"), "{}", failure.reason);
    }
}
