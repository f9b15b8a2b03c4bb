//! Watches the ServiceAccounts, Roles and RoleBindings of jobs. A change triggers a reconcile,
//! which restores them.

use std::fmt::Debug;
use std::sync::Arc;

use futures::channel::mpsc::UnboundedSender;
use futures::future::join_all;
use ipu_api::labels;
use ipu_runtime::scope;
use ipu_runtime::trimmed::{Trimmed, untrimmed};
use ipu_runtime::watch_store::version;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Resource;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};

use super::context::Context;
use super::job_object::{self, JobRef};
use super::plan::DependentKind;
use super::verified::Verified;
use super::watches::follow_kind;

/// Watches all three kinds until it is dropped. It reads only metadata: versions are enough.
pub(super) async fn follow(context: Arc<Context>, triggers: UnboundedSender<Arc<JobRef>>) {
    tokio::join!(
        follow_dependents::<ServiceAccount>(&context, DependentKind::ServiceAccount, &triggers),
        follow_dependents::<Role>(&context, DependentKind::Role, &triggers),
        follow_dependents::<RoleBinding>(&context, DependentKind::RoleBinding, &triggers),
    );
}

async fn follow_dependents<K>(
    context: &Context,
    kind: DependentKind,
    triggers: &UnboundedSender<Arc<JobRef>>,
) where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Send + 'static,
{
    let owned = watcher::Config::default().labels(labels::JOB_UID_LABEL);
    let (client, scope) = (&context.client, &context.settings.scope);
    let watches = scope::watch::in_each::<Trimmed<PartialObjectMeta<K>>>(client, scope, &owned);
    let follow = watches.into_iter().map(async |(namespace, events)| {
        let list = (kind, &*namespace);
        let apply = |event| apply_event::<K>(&mut context.verified.lock(), list, untrimmed(event));
        follow_kind(&context.cache_sync, events, apply, triggers).await;
    });
    join_all(follow).await;
}

/// Applies an event of the watch of one namespace, or of all. Returns the jobs to reconcile.
pub(super) fn apply_event<K>(
    verified: &mut Verified,
    (kind, namespace): (DependentKind, &str),
    event: Event<PartialObjectMeta<K>>,
) -> Vec<Arc<JobRef>> {
    let (object, is_delete) = match event {
        Event::Init => {
            verified.begin_list(kind, namespace);
            return Vec::new();
        }
        Event::InitDone => return verified.end_list(kind, namespace),
        Event::Apply(object) | Event::InitApply(object) => (object, false),
        Event::Delete(object) => (object, true),
    };
    let Some(job) = job_object::owner(&object.metadata) else {
        return Vec::new();
    };
    let job: Arc<JobRef> = job.into();
    let changed = if is_delete {
        verified.invalidate(job.uid, kind)
    } else {
        let version = version(&object.metadata);
        verified.observe((kind, namespace), Arc::clone(&job), version)
    };
    changed.then_some(job).into_iter().collect()
}
