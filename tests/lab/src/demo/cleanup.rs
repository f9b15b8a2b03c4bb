//! Asks the V-IPU controllers themselves whether anything was left behind.

use std::net::SocketAddr;
use std::time::Duration;

use cluster::wait::{Seen, WaitedTooLong, until};
use ipu_api::ipupartition::ControllerRef;
use vipu_client::client::{Deadlines, VipuClient};
use vipu_client::error::VipuError;

/// A simulated V-IPU controller of the run.
#[derive(Clone, Debug)]
pub struct Controller {
    /// How people call it: `pod1`.
    pub name: String,
    /// `host:port` as the operator's list has it.
    pub address: String,
    /// Where this machine reaches it.
    pub reached_at: SocketAddr,
    /// Where this machine orders its faults.
    pub faults_at: SocketAddr,
    /// The node that carries its label.
    pub node: String,
}

/// Something was left behind, or it could not be found out.
#[derive(Debug, thiserror::Error)]
pub enum CleanupError {
    /// The controller could not be asked.
    #[error("failed to list the partitions of {controller}")]
    List {
        /// Name of the controller.
        controller: String,
        /// Why.
        #[source]
        source: VipuError,
    },
    /// There are partitions that should be gone.
    #[error(transparent)]
    Left(#[from] WaitedTooLong),
}

/// Ids of all partitions on a controller, whoever made them.
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
