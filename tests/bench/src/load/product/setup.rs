//! How the operator is set up for a measurement, and its installation.

use std::process::Command;

use cluster::command;
use cluster::control_plane::ControlPlane;
use cluster::settings::Settings;
use cluster::tools::Tools;
use vipu_simulator::Simulator;

use super::super::LoadError;
use super::super::vipu_controllers::entries;
use super::RELEASE;

/// IPUs of each simulated V-IPU controller: as many as the largest machines of this kind had.
const IPUS: u32 = 4096;

/// Number of V-IPU controllers: two IPUs for each of more jobs than are ever submitted.
const CONTROLLERS: usize = 8;

/// The rights of launchers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LauncherRights {
    /// Each job has its own.
    #[default]
    OfJob,
    /// Those of a namespace share theirs.
    Shared,
}

/// What differs between measurements.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Setup {
    /// Number of V-IPU controllers.
    pub(in super::super) controllers: usize,
    /// IPUs of each of them.
    pub(in super::super) ipus: u32,
    /// The rights of launchers.
    pub(in super::super) rights: LauncherRights,
    /// Whether etcd flushes each write to disk.
    pub(in super::super) fsync: bool,
}

impl Default for Setup {
    /// With V-IPU controllers that have free capacity for all.
    fn default() -> Self {
        Self {
            controllers: CONTROLLERS,
            ipus: IPUS,
            rights: LauncherRights::OfJob,
            fsync: false,
        }
    }
}

/// The values of the chart, as arguments of Helm.
pub(super) fn values(
    [webhooks, _, _, _, _]: [u16; 5],
    simulators: &[Simulator],
    rights: LauncherRights,
) -> Vec<String> {
    // Helm splits a value at each comma.
    let entries = entries(simulators).join("\\,");
    let mut values = vec![
        format!("--set-string=global.vipuControllers={entries}"),
        format!("--set=admissionWebhooks.port={webhooks}"),
        // The address of the Service leads to this machine, so its port is the webhooks' own.
        format!("--set=admissionWebhooks.service.servicePort={webhooks}"),
    ];
    if rights == LauncherRights::Shared {
        values.push("--set=launcher.sharedRights=true".to_owned());
    }
    values
}

/// Installs the chart as a user does. Its Pods never run: there is no node for them.
pub(super) fn install(
    settings: &Settings,
    tools: &Tools,
    plane: &ControlPlane,
    values: &[String],
) -> Result<(), LoadError> {
    let mut helm = Command::new(tools.program("helm"));
    helm.args(["install", RELEASE, "charts/ipu-operator"])
        .args(["--namespace", RELEASE, "--create-namespace"])
        .args(values)
        .arg("--kubeconfig")
        .arg(plane.kubeconfig())
        .current_dir(&settings.checkout);
    command::run(&mut helm).map_err(|source| LoadError::Command {
        action: "install the chart",
        source,
    })
}
