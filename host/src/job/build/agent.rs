//! Pure: puts `ipu-agent` and the job's files into a Pod, whatever image its containers have.

use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, EmptyDirVolumeSource, PodSpec, SeccompProfile,
    SecurityContext, Volume, VolumeMount,
};

use super::{PodSettings, config};
use crate::job::validate::ValidJob;
use crate::names;

/// Where the agent is, in every container that it is put into.
pub const FOLDER: &str = "/ipu-operator-agent";

/// The agent's program there.
pub const PROGRAM: &str = "/ipu-operator-agent/ipu-agent";

/// Name of the init container and of the volume.
const AGENT: &str = "ipu-operator-agent";

/// Name of the volume with the job's files.
const JOB: &str = "ipu-operator-job";

/// User of the agent's image.
const USER: i64 = 65_532;

/// Adds the init container that installs the agent, and both volumes.
pub fn add_to_pod(spec: &mut PodSpec, job: &ValidJob, settings: &PodSettings) {
    // First, so that the user's own init containers can use the agent's folder as well.
    spec.init_containers
        .get_or_insert_default()
        .insert(0, install(settings));
    spec.volumes
        .get_or_insert_default()
        .extend([agent_volume(), job_volume(job)]);
}

/// Mounts both volumes into a container.
pub fn mount(container: &mut Container) {
    container.volume_mounts.get_or_insert_default().extend([
        VolumeMount {
            name: AGENT.to_owned(),
            mount_path: FOLDER.to_owned(),
            read_only: Some(true),
            ..VolumeMount::default()
        },
        VolumeMount {
            name: JOB.to_owned(),
            mount_path: config::FOLDER.to_owned(),
            read_only: Some(true),
            ..VolumeMount::default()
        },
    ]);
}

fn install(settings: &PodSettings) -> Container {
    Container {
        name: AGENT.to_owned(),
        image: Some(settings.launcher_image.clone()),
        image_pull_policy: settings.launcher_image_pull_policy.clone(),
        command: Some(["/ipu-agent", "install", FOLDER].map(str::to_owned).into()),
        // What the strictest Pod security standard asks for, so that the user's Pod decides.
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                ..Capabilities::default()
            }),
            read_only_root_filesystem: Some(true),
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![VolumeMount {
            name: AGENT.to_owned(),
            mount_path: FOLDER.to_owned(),
            ..VolumeMount::default()
        }]),
        ..Container::default()
    }
}

fn agent_volume() -> Volume {
    Volume {
        name: AGENT.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    }
}

/// Open MPI passes the path of the script on to the workers and gives up, with an exit code that
/// says nothing, where it is not executable.
fn job_volume(job: &ValidJob) -> Volume {
    Volume {
        name: JOB.to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: names::config_map(&job.name),
            default_mode: Some(0o555),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    }
}
