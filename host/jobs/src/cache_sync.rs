//! Tracks the first list of each watched kind. No job is reconciled before the lists are complete,
//! because the job would seem to have no objects.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ipu_api::ipujob::IPUJob;
use ipu_api::ipupartition::IPUPartition;
use ipu_runtime::scope::Scope;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Resource;
use tokio::sync::SetOnce;
use tokio::time::timeout;

use crate::metrics::Jobs;

/// Interval of the log line about incomplete lists.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// Number of watched kinds.
const KINDS: usize = 6;

/// The watched kinds, and whether the first list of each is complete.
#[derive(Debug)]
pub(super) struct CacheSync {
    kinds: [Kind; KINDS],
    counts: Jobs,
}

#[derive(Debug)]
struct Kind {
    name: String,
    /// Number of incomplete lists.
    incomplete: AtomicUsize,
    complete: SetOnce<()>,
}

impl CacheSync {
    /// No list is complete yet.
    pub(super) fn new(counts: Jobs, scope: &Scope) -> Self {
        let per_namespace = scope.namespaces().map_or(1, BTreeSet::len);
        let kinds = [
            (IPUJob::kind(&()), 1),
            (Pod::kind(&()), 1),
            (IPUPartition::kind(&()), 1),
            (ServiceAccount::kind(&()), per_namespace),
            (Role::kind(&()), per_namespace),
            (RoleBinding::kind(&()), per_namespace),
        ];
        let kinds = kinds.map(|(kind, watches)| {
            counts.listed(&kind, false);
            Kind {
                name: kind.into_owned(),
                incomplete: watches.into(),
                complete: SetOnce::new(),
            }
        });
        Self { kinds, counts }
    }

    /// Records that the first list of a watch of this kind is complete.
    pub(super) fn mark_synced(&self, kind: &str) {
        let kind = self.kinds.iter().find(|one| one.name == kind);
        if let Some(kind) = kind.filter(|kind| kind.incomplete.fetch_sub(1, Ordering::Relaxed) == 1)
        {
            self.counts.listed(&kind.name, true);
            // Only the last list gets here.
            let _ = kind.complete.set(());
        }
    }

    /// Waits until all first lists of this kind are complete.
    pub(super) async fn wait_synced<K: Resource<DynamicType = ()>>(&self) {
        if let Some(kind) = self.kinds.iter().find(|one| one.name == K::kind(&())) {
            kind.complete.wait().await;
        }
    }

    /// Logs the incomplete kinds at intervals until all are complete.
    pub(super) async fn log_unsynced(&self) {
        for kind in &self.kinds {
            while timeout(LOG_INTERVAL, kind.complete.wait()).await.is_err() {
                tracing::warn!(
                    kind = kind.name,
                    "no job is reconciled before a first list is complete: check that the controller may list and watch this kind in its namespaces"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[tokio::test]
    async fn a_kind_is_listed_in_all_namespaces_or_a_metric_names_it() {
        let (counts, mut registry) = (Jobs::default(), Registry::default());
        counts.register(&mut registry);
        let names = ["a", "b"].map(str::to_owned).into();
        let lists = CacheSync::new(counts, &Scope::Namespaces(Arc::new(names)));
        let reason = |kind: &str| {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            let line = format!("watch_listed{{kind=\"{kind}\"}} ");
            let found = text.lines().find_map(|one| one.strip_prefix(&line));
            found.map(str::to_owned)
        };
        let is_complete = || lists.wait_synced::<Role>().now_or_never().is_some();
        let state = || (is_complete(), reason("Role"));
        for _ in ["a", "b"] {
            assert_eq!(state(), (false, Some("0".to_owned())));
            lists.mark_synced("Role");
        }
        assert_eq!(state(), (true, Some("1".to_owned())));
        assert_eq!(
            reason("Pod").as_deref(),
            Some("0"),
            "of another kind nothing is known"
        );
    }
}
