//! Watches the webhook configurations of other releases, and decides whether this release is
//! inactive.

use std::collections::BTreeSet;

use futures::StreamExt;
use ipu_api::labels;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::api::PartialObjectMeta;
use kube::runtime::{reflector, watcher};
use kube::{Client, ResourceExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::conflict::{self, Claim};
use super::watch::{cluster_wide, refused};
use super::{Conflict, Scope};
use crate::wait;

/// Selects the webhook configurations of this operator.
const OURS: &str = "app.kubernetes.io/part-of=ipu-operator";

/// A webhook configuration. Only the metadata is read.
type Configuration = PartialObjectMeta<MutatingWebhookConfiguration>;

/// Whether this release is inactive. Cheap to clone; all clones share the state.
#[derive(Clone, Debug)]
pub struct Conflicts {
    known: watch::Receiver<Known>,
    others: watch::Receiver<Option<BTreeSet<String>>>,
}

/// Updates [`Conflicts`].
#[derive(Debug)]
pub struct ConflictWatch {
    mine: Claim,
    known: watch::Sender<Known>,
    /// Namespaces of the other releases.
    others: watch::Sender<Option<BTreeSet<String>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    NotYet,
    /// The releases that make this release inactive. Empty: none.
    Conflicts(Vec<Conflict>),
}

/// Conflicts of the release with this webhook configuration. They are unknown until the watch is
/// followed.
pub fn conflicts(
    namespace: &str,
    configuration: &str,
    scope: &Scope,
) -> (Conflicts, ConflictWatch) {
    let (publish_known, known) = watch::channel(Known::NotYet);
    let (publish_others, others) = watch::channel(None);
    let mine = Claim {
        configuration: configuration.to_owned(),
        namespace: namespace.to_owned(),
        scope: scope.clone(),
        since: None,
    };
    let watch = ConflictWatch {
        mine,
        known: publish_known,
        others: publish_others,
    };
    (Conflicts { known, others }, watch)
}

impl Default for Conflicts {
    /// There is no other release.
    fn default() -> Self {
        Self {
            known: watch::channel(Known::Conflicts(Vec::new())).1,
            others: watch::channel(Some(BTreeSet::new())).1,
        }
    }
}

impl Conflicts {
    /// Conflicts with these older releases, of a release for the whole cluster.
    #[cfg(any(test, feature = "fixtures"))]
    pub fn with(older: &[Claim]) -> Self {
        let (conflicts, watch) = conflicts("here", "mine", &Scope::Cluster);
        watch.update(older);
        conflicts
    }

    /// The current conflicts, oldest release first.
    pub fn current(&self) -> Vec<Conflict> {
        match &*self.known.borrow() {
            Known::Conflicts(conflicts) => conflicts.clone(),
            Known::NotYet => Vec::new(),
        }
    }

    /// Namespaces of all other releases, whatever they serve. `None`: not known yet.
    pub fn other_releases(&self) -> Option<BTreeSet<String>> {
        self.others.borrow().clone()
    }

    /// Waits until it is known that there is no conflict.
    pub async fn wait_none(&self) {
        let is_none = |known: &Known| matches!(known, Known::Conflicts(all) if all.is_empty());
        wait::until(self.known.clone(), is_none).await;
    }

    /// Waits until there is a conflict.
    pub async fn wait_any(&self) {
        let is_any = |known: &Known| matches!(known, Known::Conflicts(all) if !all.is_empty());
        wait::until(self.known.clone(), is_any).await;
    }
}

impl ConflictWatch {
    /// Follows the webhook configurations until `stop`. Without the right to read those of other
    /// releases, there is no conflict.
    pub async fn follow(self, client: Client, stop: CancellationToken) {
        let (store, writer) = reflector::store();
        let config = watcher::Config::default().labels(OURS);
        let events = cluster_wide::<Configuration>(&client, config);
        let mut events =
            Box::pin(reflector::reflector(writer, events).take_until(stop.cancelled_owned()));
        let mut is_listed = false;
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    is_listed |= matches!(event, watcher::Event::InitDone);
                    if is_listed {
                        let all = store.state();
                        self.update(&all.iter().map(|found| claim(found)).collect::<Vec<_>>());
                    }
                }
                Err(error) if refused(&error) == Some(403) => {
                    self.report_forbidden(&error);
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to watch the webhook configurations of other releases; trying again");
                }
            }
        }
    }

    /// Compares the claims, and publishes and logs a change.
    fn update(&self, claims: &[Claim]) {
        let mut claims_of_mine = claims.iter();
        let found = claims_of_mine.find(|claim| claim.configuration == self.mine.configuration);
        let mine = Claim {
            since: found.and_then(|found| found.since),
            ..self.mine.clone()
        };
        let others = claims
            .iter()
            .filter(|claim| claim.namespace != self.mine.namespace);
        let others = others.map(|claim| claim.namespace.clone()).collect();
        self.others.send_replace(Some(others));
        let conflicts = conflict::conflicts(&mine, claims);
        let message = conflicts.first().map(Conflict::message);
        let next = Known::Conflicts(conflicts);
        let is_news = self.known.send_if_modified(|known| {
            let is_news = *known != next;
            *known = next;
            is_news
        });
        match message {
            Some(message) if is_news => tracing::error!("this release is inactive: {message}"),
            None if is_news => {
                tracing::info!(
                    "no other release serves the namespaces of this one: {}",
                    mine.scope
                );
            }
            _ => {}
        }
    }

    fn report_forbidden(&self, error: &watcher::Error) {
        let is_news = self.known.send_if_modified(|known| {
            let is_news = *known == Known::NotYet;
            if is_news {
                *known = Known::Conflicts(Vec::new());
            }
            is_news
        });
        if is_news {
            tracing::warn!(
                %error,
                "whether another release serves the same namespaces is unknown, because this account may not \
                 list MutatingWebhookConfigurations"
            );
        }
    }
}

/// Reads the claim of a release from its webhook configuration. An unreadable one claims the whole
/// cluster: an unnecessarily inactive release is better than two that do the same work.
fn claim(found: &Configuration) -> Claim {
    let annotation = |name: &str| found.annotations().get(name).map(String::as_str);
    let since = found.metadata.creation_timestamp.as_ref();
    Claim {
        configuration: found.name_any(),
        namespace: annotation(labels::OPERATOR_NAMESPACE)
            .unwrap_or_default()
            .to_owned(),
        scope: annotation(labels::WATCH_NAMESPACES)
            .unwrap_or_default()
            .parse()
            .unwrap_or_default(),
        since: since.map(|time| time.0),
    }
}
