//! Hears that a job's files or rights were removed, and has the job looked at, which makes them again.

use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use futures::channel::mpsc::UnboundedSender;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Resource;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};

use super::context::Context;
use super::kept::{self, JobRef};
use crate::names;

/// Follows all four kinds until it is dropped. Only what is removed is of interest, so nothing is
/// kept of them, and their content stays where it is.
pub(super) async fn follow(context: Arc<Context>, touched: UnboundedSender<JobRef>) {
    tokio::join!(
        follow_kind::<ConfigMap>(&context, &touched),
        follow_kind::<ServiceAccount>(&context, &touched),
        follow_kind::<Role>(&context, &touched),
        follow_kind::<RoleBinding>(&context, &touched),
    );
}

async fn follow_kind<K>(context: &Context, touched: &UnboundedSender<JobRef>)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Send + 'static,
{
    let ours = watcher::Config::default().labels(names::JOB_UID_LABEL);
    let objects: Api<PartialObjectMeta<K>> = Api::all(context.client.clone());
    let mut events = pin!(watcher(objects, ours).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Delete(object)) => {
                if let Some(job) = kept::owner(&object.metadata) {
                    context.unsettle(&job);
                    // Nobody listens any more where the controller ends.
                    let _ = touched.unbounded_send(job);
                }
            }
            Ok(_) => {}
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, kind = %K::kind(&()), "a watch was interrupted, and begins again");
            }
        }
    }
}
