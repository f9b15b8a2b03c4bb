//! Which first lists of what is followed are complete. Until all are, no job is reconciled: it would look as
//! if nothing belonged to it.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Resource;
use tokio::sync::SetOnce;
use tokio::time::timeout;

use crate::api::ipujob::IPUJob;
use crate::api::ipupartition::IPUPartition;
use crate::metrics::jobs::Jobs;

/// How often it is said that a list is not complete.
const SAY: Duration = Duration::from_secs(30);

/// How many kinds are followed.
const KINDS: usize = 6;

/// Which first lists are complete.
#[derive(Debug)]
pub(super) struct Lists {
    kinds: [(String, SetOnce<()>); KINDS],
    counts: Jobs,
}

impl Lists {
    /// None is.
    pub(super) fn new(counts: Jobs) -> Self {
        let kinds = [
            IPUJob::kind(&()),
            Pod::kind(&()),
            IPUPartition::kind(&()),
            ServiceAccount::kind(&()),
            Role::kind(&()),
            RoleBinding::kind(&()),
        ];
        for kind in &kinds {
            counts.listed(kind, false);
        }
        let kinds = kinds.map(|kind| (kind.into_owned(), SetOnce::new()));
        Self { kinds, counts }
    }

    /// Notes that a list of this kind is complete.
    pub(super) fn complete(&self, kind: &str) {
        // Every later list is complete where the first one was.
        if self.of(kind).is_some_and(|list| list.set(()).is_ok()) {
            self.counts.listed(kind, true);
        }
    }

    /// Waits until a list of this kind is complete.
    pub(super) async fn once_complete<K: Resource<DynamicType = ()>>(&self) {
        if let Some(list) = self.of(&K::kind(&())) {
            list.wait().await;
        }
    }

    /// Says which kinds are not listed, again and again, until all are.
    pub(super) async fn tell(&self) {
        for (kind, list) in &self.kinds {
            while timeout(SAY, list.wait()).await.is_err() {
                tracing::warn!(
                    kind,
                    "no job is reconciled before a first list is complete; may the controller list and watch this kind in every namespace that it serves?"
                );
            }
        }
    }

    fn of(&self, kind: &str) -> Option<&SetOnce<()>> {
        let mut kinds = self.kinds.iter();
        kinds.find(|(of, _)| of == kind).map(|(_, list)| list)
    }
}
