//! Hears that a job's rights were edited or removed, and has the job looked at, which brings them back.

use std::fmt::Debug;
use std::sync::Arc;

use futures::channel::mpsc::UnboundedSender;
use futures::future::join_all;
use ipu_api::names;
use ipu_runtime::scope;
use ipu_runtime::trimmed::{Trimmed, untrimmed};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Resource;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};

use super::context::Context;
use super::kept::{self, JobRef};
use super::plan::File;
use super::settled::Settled;
use super::watches::follow_kind;

/// Follows all three kinds until it is dropped. Only their versions are of interest, so that their content
/// stays where it is.
pub(super) async fn follow(context: Arc<Context>, touched: UnboundedSender<Arc<JobRef>>) {
    tokio::join!(
        follow_files::<ServiceAccount>(&context, File::ServiceAccount, &touched),
        follow_files::<Role>(&context, File::Role, &touched),
        follow_files::<RoleBinding>(&context, File::RoleBinding, &touched),
    );
}

async fn follow_files<K>(context: &Context, file: File, touched: &UnboundedSender<Arc<JobRef>>)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Send + 'static,
{
    let ours = watcher::Config::default().labels(names::JOB_UID_LABEL);
    let (client, scope) = (&context.client, &context.settings.scope);
    let watches = scope::watch::in_each::<Trimmed<PartialObjectMeta<K>>>(client, scope, &ours);
    let follow = watches.into_iter().map(async |(namespace, events)| {
        let of = (file, &*namespace);
        let hear = |event| hear::<K>(&mut context.settled(), of, untrimmed(event));
        follow_kind(&context.lists, &K::kind(&()), events, hear, touched).await;
    });
    join_all(follow).await;
}

/// Takes in what the watch of a namespace tells, or of all of them. Answers the jobs that have to be looked at.
pub(super) fn hear<K>(
    settled: &mut Settled,
    (file, namespace): (File, &str),
    event: Event<PartialObjectMeta<K>>,
) -> Vec<Arc<JobRef>> {
    let (object, is_gone) = match event {
        Event::Init => {
            settled.begin_list(file, namespace);
            return Vec::new();
        }
        Event::InitDone => return settled.end_list(file, namespace),
        Event::Apply(object) | Event::InitApply(object) => (object, false),
        Event::Delete(object) => (object, true),
    };
    let Some(job) = kept::owner(&object.metadata) else {
        return Vec::new();
    };
    let changed = if is_gone {
        settled.removed(job.uid)
    } else {
        settled.told((file, namespace), job.uid, kept::version(&object.metadata))
    };
    if changed {
        vec![job.into()]
    } else {
        Vec::new()
    }
}
