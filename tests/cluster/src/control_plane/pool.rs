//! Control planes that are lent to one test after the other: a start takes seconds, and the removal
//! of all objects of a test some milliseconds. There are as many as tests run at the same time.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use http::{Request, Uri};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use super::admission::{AdmissionError, once_forgotten};
use super::contents::{Contents, ContentsError};
use super::idle::IdleItems;
use super::{ControlPlane, ControlPlaneError};
use crate::kubeconfig::ClientError;
use crate::wait::{Seen, WaitedTooLong, until};

/// Keys of CRDs in etcd.
const DEFINITIONS: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

/// The namespaces that an API server creates after its start.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Longest wait on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

static IDLE: IdleItems<Pooled> = IdleItems::new();

/// Failure to lend a control plane.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// It could not be started.
    #[error(transparent)]
    Start(#[from] ControlPlaneError),
    /// There is no client.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The objects of its last user could not be removed.
    #[error("failed to remove the objects of the last user of a control plane")]
    Contents(#[from] ContentsError),
    /// The API server denies requests for its last user.
    #[error("failed to remove webhooks and policies of the last user of a control plane")]
    Admission(#[from] AdmissionError),
    /// The API server still serves a CRD of its last user.
    #[error(transparent)]
    Waited(#[from] WaitedTooLong),
}

/// A control plane of the pool.
struct Pooled {
    control_plane: ControlPlane,
    /// The objects of a new API server.
    empty: Contents,
    /// The same with those of a preparation, after the first one.
    prepared: Option<Contents>,
    /// Whether the last user wanted the prepared ones.
    is_prepared: bool,
}

impl Pooled {
    async fn start() -> Result<Self, PoolError> {
        let control_plane = ControlPlane::start().await?;
        once_complete(&control_plane.client().await?).await?;
        Ok(Self {
            empty: Contents::read(&control_plane.etcd()).await?,
            prepared: None,
            is_prepared: false,
            control_plane,
        })
    }

    /// Removes the objects of the last user.
    async fn restore(&mut self, to_prepared: bool) -> Result<(), PoolError> {
        let etcd = self.control_plane.etcd();
        let contents = match &mut self.prepared {
            Some(prepared) if to_prepared => prepared,
            _ => &mut self.empty,
        };
        let removed = contents.restore(&etcd).await?;
        if removed.is_empty() {
            return Ok(());
        }
        let client = self.control_plane.client().await?;
        if once_forgotten(&client, &removed).await? {
            contents.restore(&etcd).await?;
        }
        let kept = groups(contents.keys());
        let mut gone = groups(removed.iter());
        gone.retain(|group| !kept.contains(group));
        once_not_served(&client, &gone).await
    }

    /// Removes the objects of the last user. If the API server or a process of that user keeps
    /// writing, the control plane ends, and a new one takes its place.
    async fn or_new(mut self, to_prepared: bool) -> Result<Self, PoolError> {
        match self.restore(to_prepared).await {
            Ok(()) => Ok(self),
            Err(PoolError::Contents(ContentsError::Unsettled(_))) => Self::start().await,
            Err(error) => Err(error),
        }
    }

    /// Creates the objects of `prepare`, which runs if it has not run before.
    async fn prepare(&mut self, prepare: impl AsyncFnOnce(Client)) -> Result<(), PoolError> {
        if self.prepared.is_none() {
            prepare(self.control_plane.client().await?).await;
            self.prepared = Some(Contents::read(&self.control_plane.etcd()).await?);
        }
        self.is_prepared = true;
        Ok(())
    }
}

/// Waits until an API server has created its own objects.
async fn once_complete(client: &Client) -> Result<(), PoolError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    until("the API server's own objects", PATIENCE, async || {
        // It is ready when its roles exist, and creates namespaces in the background.
        client.request_text(ready()).await?;
        let all = namespaces.list(&ListParams::default()).await?;
        let names: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
        Ok::<_, kube::Error>(Seen::when(names, |names| {
            NAMESPACES
                .iter()
                .all(|own| names.iter().any(|name| name == own))
        }))
    })
    .await?;
    Ok(())
}

fn ready() -> Request<Vec<u8>> {
    let mut request = Request::new(Vec::new());
    *request.uri_mut() = Uri::from_static("/readyz");
    request
}

/// The groups of the CRDs among these keys.
fn groups<'a>(keys: impl Iterator<Item = &'a String>) -> BTreeSet<&'a str> {
    let names = keys.filter_map(|key| key.strip_prefix(DEFINITIONS));
    names
        .filter_map(|name| Some(name.split_once('.')?.1))
        .collect()
}

/// Waits until the API server serves none of these groups.
async fn once_not_served(client: &Client, groups: &BTreeSet<&str>) -> Result<(), PoolError> {
    if groups.is_empty() {
        return Ok(());
    }
    let what = format!("the API server to serve none of {groups:?}");
    until(what, PATIENCE, async || {
        let served = client.list_api_groups().await?;
        let names = served.groups.into_iter().map(|group| group.name);
        let left = names.filter(|name| groups.contains(name.as_str()));
        let left: Vec<String> = left.collect();
        Ok::<_, kube::Error>(Seen::when(left, Vec::is_empty))
    })
    .await?;
    Ok(())
}

/// A control plane that one test uses. Its objects are removed before the next test uses it. If the
/// test fails, it ends.
pub struct Loan {
    /// Taken when it is dropped.
    lent: Option<Lent>,
}

enum Lent {
    OfPool(Pooled),
    /// Ends with the loan.
    Own(ControlPlane),
}

/// Lends a control plane without any objects.
pub async fn lend() -> Result<Loan, PoolError> {
    let mut plane = match IDLE.take(|plane| !plane.is_prepared) {
        Some(idle) => idle.or_new(false).await?,
        None => Pooled::start().await?,
    };
    plane.is_prepared = false;
    Ok(Loan::of(Lent::OfPool(plane)))
}

/// Lends a control plane with the objects that `prepare` has created for this user or an earlier
/// one. It must be the same function in all of a process.
pub async fn lend_prepared(prepare: impl AsyncFnOnce(Client)) -> Result<Loan, PoolError> {
    let mut plane = match IDLE.take(|plane| plane.is_prepared) {
        Some(idle) => idle.or_new(true).await?,
        None => Pooled::start().await?,
    };
    plane.prepare(prepare).await?;
    Ok(Loan::of(Lent::OfPool(plane)))
}

impl Loan {
    fn of(lent: Lent) -> Self {
        Self { lent: Some(lent) }
    }
}

impl From<ControlPlane> for Loan {
    /// A control plane that ends with the loan.
    fn from(own: ControlPlane) -> Self {
        Self::of(Lent::Own(own))
    }
}

impl Deref for Loan {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        let lent = self.lent.as_ref();
        match lent.expect("only its drop takes it") {
            Lent::OfPool(plane) => &plane.control_plane,
            Lent::Own(own) => own,
        }
    }
}

impl DerefMut for Loan {
    fn deref_mut(&mut self) -> &mut ControlPlane {
        let lent = self.lent.as_mut();
        match lent.expect("only its drop takes it") {
            Lent::OfPool(plane) => &mut plane.control_plane,
            Lent::Own(own) => own,
        }
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(Lent::OfPool(plane)) = self.lent.take()
            && !std::thread::panicking()
        {
            IDLE.put(plane);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_of_crds() {
        let removed = [
            "/registry/namespaces/a.b".to_owned(),
            format!("{DEFINITIONS}ipujobs.graphcore.ai"),
            format!("{DEFINITIONS}ipupolicies.graphcore.ai"),
            format!("{DEFINITIONS}workloads.kueue.x-k8s.io"),
        ];
        let expected = ["graphcore.ai", "kueue.x-k8s.io"];
        assert_eq!(groups(removed.iter()), BTreeSet::from(expected));
    }
}
