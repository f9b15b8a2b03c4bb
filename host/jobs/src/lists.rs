//! Which first lists of what is followed are complete. Until all are, no job is reconciled: it would look as
//! if nothing belonged to it.

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

/// How often it is said that a list is not complete.
const SAY: Duration = Duration::from_secs(30);

/// How many kinds are followed.
const KINDS: usize = 6;

/// Which first lists are complete.
#[derive(Debug)]
pub(super) struct Lists {
    kinds: [Kind; KINDS],
    counts: Jobs,
}

#[derive(Debug)]
struct Kind {
    name: String,
    /// Lists that are not complete yet.
    left: AtomicUsize,
    complete: SetOnce<()>,
}

impl Lists {
    /// None is.
    pub(super) fn new(counts: Jobs, scope: &Scope) -> Self {
        let each = scope.namespaces().map_or(1, BTreeSet::len);
        let kinds = [
            (IPUJob::kind(&()), 1),
            (Pod::kind(&()), 1),
            (IPUPartition::kind(&()), 1),
            (ServiceAccount::kind(&()), each),
            (Role::kind(&()), each),
            (RoleBinding::kind(&()), each),
        ];
        let kinds = kinds.map(|(kind, watches)| {
            counts.listed(&kind, false);
            Kind {
                name: kind.into_owned(),
                left: watches.into(),
                complete: SetOnce::new(),
            }
        });
        Self { kinds, counts }
    }

    /// Notes that the first list of a watch of this kind is complete.
    pub(super) fn complete(&self, kind: &str) {
        let kind = self.kinds.iter().find(|one| one.name == kind);
        if let Some(kind) = kind.filter(|kind| kind.left.fetch_sub(1, Ordering::Relaxed) == 1) {
            self.counts.listed(&kind.name, true);
            // It is the last one.
            let _ = kind.complete.set(());
        }
    }

    /// Waits until all objects of this kind were listed.
    pub(super) async fn once_complete<K: Resource<DynamicType = ()>>(&self) {
        if let Some(kind) = self.kinds.iter().find(|one| one.name == K::kind(&())) {
            kind.complete.wait().await;
        }
    }

    /// Says which kinds are not listed, again and again, until all are.
    pub(super) async fn tell(&self) {
        for kind in &self.kinds {
            while timeout(SAY, kind.complete.wait()).await.is_err() {
                tracing::warn!(
                    kind = kind.name,
                    "no job is reconciled before a first list is complete; may the controller list and watch this kind in every namespace that it serves?"
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
    async fn a_kind_is_listed_once_it_is_in_every_namespace_and_a_metric_tells_which_is_not() {
        let (counts, mut registry) = (Jobs::default(), Registry::default());
        counts.register(&mut registry);
        let names = ["a", "b"].map(str::to_owned).into();
        let lists = Lists::new(counts, &Scope::Namespaces(Arc::new(names)));
        let told = |kind: &str| {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            let line = format!("watch_listed{{kind=\"{kind}\"}} ");
            let found = text.lines().find_map(|one| one.strip_prefix(&line));
            found.map(str::to_owned)
        };
        let is_complete = || lists.once_complete::<Role>().now_or_never().is_some();
        let state = || (is_complete(), told("Role"));
        for _ in ["a", "b"] {
            assert_eq!(state(), (false, Some("0".to_owned())));
            lists.complete("Role");
        }
        assert_eq!(state(), (true, Some("1".to_owned())));
        assert_eq!(
            told("Pod").as_deref(),
            Some("0"),
            "of another kind nothing is known"
        );
    }
}
