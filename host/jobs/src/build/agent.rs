//! Pure: installs `ipu-agent` and the files for mpirun in a Pod, regardless of the images of its containers.

use k8s_openapi::api::core::v1::{
    Capabilities, Container, EmptyDirVolumeSource, PodSpec, SeccompProfile, SecurityContext,
    Volume, VolumeMount,
};

use super::PodSettings;
use crate::validate::ValidJob;

/// Folder of the agent and the files, in every container that mounts them.
pub const FOLDER: &str = "/ipu-operator-agent";

/// Path of the agent's program.
pub const PROGRAM: &str = "/ipu-operator-agent/ipu-agent";

/// Name of the script in the folder, which mpirun calls instead of ssh.
pub const KUBEEXEC: &str = "kubeexec.sh";

/// Name of the list of workers in the folder.
pub const HOSTFILE: &str = "hostfile";

/// Name of the init container and of the volume.
const AGENT: &str = "ipu-operator-agent";

/// User of the agent's image.
const USER: i64 = 65_532;

/// Adds the init container that installs the agent and the files, and their volume.
pub fn add_to_pod(spec: &mut PodSpec, job: &ValidJob, settings: &PodSettings) {
    // The first init container, so that the user's init containers can use the folder too.
    spec.init_containers
        .get_or_insert_default()
        .insert(0, install(job, settings));
    spec.volumes.get_or_insert_default().push(Volume {
        name: AGENT.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    });
}

/// Mounts the volume into a container.
pub fn mount(container: &mut Container) {
    let mounts = container.volume_mounts.get_or_insert_default();
    mounts.push(VolumeMount {
        name: AGENT.to_owned(),
        mount_path: FOLDER.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    });
}

fn install(job: &ValidJob, settings: &PodSettings) -> Container {
    let workers = job.instances.saturating_mul(job.size.workers).to_string();
    let command = ["/ipu-agent", "install", FOLDER, "--job", &job.name];
    let command = command.into_iter().chain(["--workers", &workers]);
    Container {
        name: AGENT.to_owned(),
        image: Some(settings.launcher_image.clone()),
        image_pull_policy: settings.launcher_image_pull_policy.clone(),
        command: Some(command.map(str::to_owned).collect()),
        // The agent satisfies the strictest Pod security standard, so that only the user's Pod matters.
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
