//! Reads from the V-IPU controllers themselves whether partitions remain.

use std::net::SocketAddr;
use std::time::Duration;

use cluster::wait::{Seen, WaitedTooLong, until};
use ipu_api::ipupartition::ControllerRef;
use vipu_client::client::{Deadlines, VipuClient};
use vipu_client::error::VipuError;

/// A simulated V-IPU controller of this run.
#[derive(Clone, Debug)]
pub struct Controller {
    /// Its short name: `pod1`.
    pub name: String,
    /// `host:port`, as in the operator's list.
    pub address: String,
    /// Its address for this machine.
    pub reached_at: SocketAddr,
    /// The address of its fault orders, for this machine.
    pub faults_at: SocketAddr,
    /// The node that has its label.
    pub node: String,
}

/// Partitions remain, or the controller did not answer.
#[derive(Debug, thiserror::Error)]
pub enum CleanupError {
    /// The controller did not answer.
    #[error("failed to list the partitions of {controller}")]
    List {
        /// Name of the controller.
        controller: String,
        /// The error of the request.
        #[source]
        source: VipuError,
    },
    /// Partitions remain that should have been removed.
    #[error(transparent)]
    Left(#[from] WaitedTooLong),
}

/// Ids of all partitions on a controller, no matter who created them.
pub async fn partitions_of(controller: &Controller) -> Result<Vec<String>, CleanupError> {
    let failed = |source| CleanupError::List {
        controller: controller.name.clone(),
        source,
    };
    let reached_at = ControllerRef {
        name: controller.name.clone(),
        host: controller.reached_at.ip().to_string(),
        port: controller.reached_at.port(),
        label_key: String::new(),
        label_value: String::new(),
    };
    let client = VipuClient::new(&reached_at, Deadlines::default()).map_err(failed)?;
    let listed = client.list().await.map_err(failed)?;
    Ok(listed.into_iter().map(|partition| partition.id).collect())
}

/// Waits until a controller lists no partition.
pub async fn none_left(controller: &Controller) -> Result<(), CleanupError> {
    until(
        format!("{} to list no partition", controller.name),
        Duration::from_mins(1),
        || async {
            let left = partitions_of(controller).await?;
            Ok::<_, CleanupError>(Seen::when(left, Vec::is_empty))
        },
    )
    .await?;
    Ok(())
}
