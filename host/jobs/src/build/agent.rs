//! Pure: puts `ipu-agent` and the files for mpirun into a Pod, regardless of the images of its
//! containers.

use std::collections::BTreeMap;

use ipu_api::labels::{self, AGENT_VOLUME};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, DownwardAPIVolumeSource, EmptyDirVolumeSource, ImageVolumeSource,
    PodSpec, ResourceRequirements, SeccompProfile, SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{PodSettings, access, downward_file, hostfile, uses_host_network};
use crate::validate::ValidJob;

/// Folder of the agent and the files, in every container that mounts them.
pub const FOLDER: &str = "/ipu-operator-agent";

/// Path of the agent's program.
pub const PROGRAM: &str = "/ipu-operator-agent/ipu-agent";

/// Name of the script in the folder, which mpirun calls instead of ssh.
pub const KUBEEXEC: &str = "kubeexec.sh";

/// Name of the list of workers in the folder.
pub const HOSTFILE: &str = "hostfile";

/// Folder with the file that releases the command of a launcher.
const START_FOLDER: &str = "/ipu-operator-start";

/// Name of the volume of that folder.
const START: &str = "ipu-operator-start";

/// Name of the file in the folder.
const START_FILE: &str = "start";

/// Names and fields of the files there with which the agent follows its Pod.
pub const OWN_POD: [(&str, &str); 2] = [("name", "metadata.name"), ("uid", "metadata.uid")];

/// Maximum length of the hostfile as an annotation and the annotations of the template together, in
/// bytes. All annotations of a Pod have at most 256 KiB, and the operator adds some.
const ANNOTATIONS_MAX: usize = 128 << 10;

/// Resources that decide the quality of service, and that quotas and limit ranges may require.
const COUNTED: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Grace period of a Pod whose template sets none, in seconds.
const GRACE_PERIOD: i64 = 30;

/// Part of the grace period that the agent keeps for its own end, in seconds.
const RESERVED: i64 = 2;

/// How the agent gets into the Pods of a job with a launcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentDelivery {
    /// An init container copies it into a folder.
    #[default]
    Init,
    /// The kubelet mounts its image.
    Image,
}

/// Returns the delivery for a job. If the list of its workers is too long for an annotation, an
/// init container writes it.
pub fn delivery(job: &ValidJob, settings: &PodSettings) -> AgentDelivery {
    let annotations = job.template.metadata.annotations.iter().flatten();
    let length: usize = annotations
        .map(|(key, value)| key.len() + value.len())
        .sum();
    if hostfile::max_length(job).saturating_add(length) > ANNOTATIONS_MAX {
        return AgentDelivery::Init;
    }
    settings.agent_delivery
}

/// Returns the seconds that the processes of a container have after SIGTERM, from the grace period
/// of their Pod.
pub fn grace_seconds(period: Option<i64>) -> i64 {
    let period = period.unwrap_or(GRACE_PERIOD);
    period.saturating_sub(RESERVED).max(1)
}

/// Returns the command of a container in which others start processes.
pub fn idle(template: &PodSpec) -> Vec<String> {
    let seconds = grace_seconds(template.termination_grace_period_seconds).to_string();
    let words = [PROGRAM, "idle", "--grace-seconds", &seconds];
    let shares = [template.share_process_namespace, template.host_pid].contains(&Some(true));
    let shares = shares.then_some("--shares-processes");
    words.into_iter().chain(shares).map(str::to_owned).collect()
}

/// Adds the volume with the agent and the files: the agent's image, or a folder that an init
/// container fills. `main` is the container that uses them.
pub fn add_to_pod(spec: &mut PodSpec, job: &ValidJob, settings: &PodSettings, main: &Container) {
    let volume = match delivery(job, settings) {
        AgentDelivery::Image => {
            let pull_policy = settings.launcher_image_pull_policy.as_deref();
            image_volume(&settings.launcher_image, pull_policy)
        }
        AgentDelivery::Init => {
            // The first init container, so that the user's init containers can use the folder too.
            spec.init_containers
                .get_or_insert_default()
                .insert(0, install(job, settings, main));
            Volume {
                name: AGENT_VOLUME.to_owned(),
                empty_dir: Some(EmptyDirVolumeSource::default()),
                ..Volume::default()
            }
        }
    };
    spec.volumes.get_or_insert_default().push(volume);
}

/// The volume with the agent's image.
pub fn image_volume(image: &str, pull_policy: Option<&str>) -> Volume {
    Volume {
        name: AGENT_VOLUME.to_owned(),
        image: Some(ImageVolumeSource {
            pull_policy: pull_policy.map(str::to_owned),
            reference: Some(image.to_owned()),
        }),
        ..Volume::default()
    }
}

/// Mounts the volume into a container.
pub fn mount(container: &mut Container) {
    let mounts = container.volume_mounts.get_or_insert_default();
    mounts.push(VolumeMount {
        name: AGENT_VOLUME.to_owned(),
        mount_path: FOLDER.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    });
}

/// Holds the command of a launcher back until the annotation of its Pod releases it. The kubelet
/// writes the annotation into a file, up to a second later, and a launcher that may follow its own
/// Pod sees it at once (`follows_own_pod`).
pub fn hold(spec: &mut PodSpec, container: &mut Container, follows_own_pod: bool) {
    let mut files = vec![downward_file::of_annotation(
        START_FILE,
        labels::START_ANNOTATION,
    )];
    if follows_own_pod {
        files.extend(OWN_POD.map(|(name, field)| downward_file::of_field(name, field)));
    }
    spec.volumes.get_or_insert_default().push(Volume {
        name: START.to_owned(),
        downward_api: Some(DownwardAPIVolumeSource {
            items: Some(files),
            ..DownwardAPIVolumeSource::default()
        }),
        ..Volume::default()
    });
    container
        .volume_mounts
        .get_or_insert_default()
        .push(VolumeMount {
            name: START.to_owned(),
            mount_path: START_FOLDER.to_owned(),
            read_only: Some(true),
            ..VolumeMount::default()
        });
    let file = format!("{START_FOLDER}/{START_FILE}");
    let words = [PROGRAM, "hold", &file, "--"].map(str::to_owned);
    let command = container.command.take().unwrap_or_default();
    container.command = Some(words.into_iter().chain(command).collect());
}

fn install(job: &ValidJob, settings: &PodSettings, main: &Container) -> Container {
    let workers = hostfile::workers(job).to_string();
    let words = ["/ipu-agent", "install", FOLDER, "--job", &job.name];
    let words = words.into_iter().chain(["--workers", &workers]);
    let command = words.map(str::to_owned).chain(known_workers(job, settings));
    Container {
        name: AGENT_VOLUME.to_owned(),
        image: Some(settings.launcher_image.clone()),
        image_pull_policy: settings.launcher_image_pull_policy.clone(),
        command: Some(command.collect()),
        resources: resources(main),
        security_context: Some(security_context(main)),
        volume_mounts: Some(vec![VolumeMount {
            name: AGENT_VOLUME.to_owned(),
            mount_path: FOLDER.to_owned(),
            ..VolumeMount::default()
        }]),
        ..Container::default()
    }
}

/// Returns what a launcher with shared rights must know of its workers, because it cannot read
/// their Pods.
pub(super) fn known_workers(job: &ValidJob, settings: &PodSettings) -> Vec<String> {
    if !access::shares_rights(job, settings) {
        return Vec::new();
    }
    let container = ["--container", &job.template.first.name];
    let has_host_network = uses_host_network(job, settings);
    let host_network = has_host_network.then_some("--host-network");
    let words = container.into_iter().chain(host_network);
    words.map(str::to_owned).collect()
}

/// Returns the resources of the container that uses the agent. Init containers run before the
/// others, so this requests nothing more. Without them, the Pod would lose the class Guaranteed,
/// and quotas would refuse it.
fn resources(main: &Container) -> Option<ResourceRequirements> {
    let resources = main.resources.as_ref()?;
    let counted = |list: &Option<BTreeMap<String, Quantity>>| {
        let list = list.iter().flatten();
        let counted = list.filter(|(name, _)| COUNTED.contains(&name.as_str()));
        let counted: BTreeMap<_, _> = counted
            .map(|(name, quantity)| (name.clone(), quantity.clone()))
            .collect();
        (!counted.is_empty()).then_some(counted)
    };
    let (limits, requests) = (counted(&resources.limits), counted(&resources.requests));
    (limits.is_some() || requests.is_some()).then_some(ResourceRequirements {
        limits,
        requests,
        claims: None,
    })
}

/// Returns the strictest security context, so that only the user's Pod matters. The user is that of
/// the other container, which has the user of the Pod if it names none: a namespace may allow
/// certain users only.
pub fn security_context(main: &Container) -> SecurityContext {
    let main = main.security_context.clone().unwrap_or_default();
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".to_owned()]),
            ..Capabilities::default()
        }),
        read_only_root_filesystem: Some(true),
        run_as_group: main.run_as_group,
        run_as_non_root: main.run_as_non_root,
        run_as_user: main.run_as_user,
        // The other container must be able to read the volume.
        se_linux_options: main.se_linux_options,
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            ..SeccompProfile::default()
        }),
        ..SecurityContext::default()
    }
}
