//! The Job controller of kube-controller-manager, alone, which creates the launchers of MPIJobs.

use std::path::Path;

use cluster::control_plane::{ControlPlane, flags};
use cluster::supervisor::{Program, Supervisor};
use cluster::tools::Tools;

use super::{LoadError, accounts};

/// Namespace of the accounts of Kubernetes' own controllers.
const NAMESPACE: &str = "kube-system";

/// The account to which Kubernetes binds the rights of the Job controller.
const ACCOUNT: &str = "job-controller";

/// Starts it, with its own account.
pub(super) async fn start(
    tools: &Tools,
    plane: &ControlPlane,
    folder: &Path,
) -> Result<Supervisor, LoadError> {
    accounts::create(plane, (NAMESPACE, ACCOUNT)).await?;
    let account = accounts::kubeconfig_of(plane, folder, (NAMESPACE, ACCOUNT)).await?;
    let program = Program {
        name: "kube-controller-manager",
        path: tools.program("kube-controller-manager").to_owned(),
        args: flags::job_controller(&account),
        env: Vec::new(),
        log: folder.join("job-controller.log"),
    };
    Supervisor::start(vec![program])
        .map_err(|source| LoadError::Start("kube-controller-manager", source))
}
