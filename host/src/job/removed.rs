//! Hears that a job's files or rights were removed, and has the job looked at, which makes them again.

use std::fmt::Debug;
use std::sync::Arc;

use futures::channel::mpsc::UnboundedSender;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Resource;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};

use super::context::Context;
use super::kept::{self, JobRef};
use super::watches::follow_kind;
use crate::names;
use crate::scope;

/// Follows all four kinds until it is dropped. Only what is removed is of interest, so nothing is
/// kept of them, and their content stays where it is.
pub(super) async fn follow(context: Arc<Context>, touched: UnboundedSender<JobRef>) {
    tokio::join!(
        follow_removals::<ConfigMap>(&context, &touched),
        follow_removals::<ServiceAccount>(&context, &touched),
        follow_removals::<Role>(&context, &touched),
        follow_removals::<RoleBinding>(&context, &touched),
    );
}

async fn follow_removals<K>(context: &Context, touched: &UnboundedSender<JobRef>)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Send + 'static,
{
    let ours = watcher::Config::default().labels(names::JOB_UID_LABEL);
    let (client, scope) = (&context.client, &context.settings.scope);
    let events = scope::watch::watch(client, scope, ours);
    let hear = |event: Event<PartialObjectMeta<K>>| {
        let Event::Delete(object) = event else {
            return None;
        };
        let job = kept::owner(&object.metadata)?;
        context.unsettle(&job);
        Some(job)
    };
    follow_kind(&K::kind(&()), events, hear, touched).await;
}
