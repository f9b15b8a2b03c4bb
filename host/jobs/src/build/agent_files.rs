//! Pure: the files for mpirun of a launcher that mounts the agent's image: annotations, which the
//! kubelet writes into files.

use std::collections::BTreeMap;

use ipu_api::labels;
use k8s_openapi::api::core::v1::{
    Container, DownwardAPIVolumeFile, DownwardAPIVolumeSource, PodSpec, Volume, VolumeMount,
};

use super::agent::{FOLDER, HOSTFILE, KUBEEXEC, PROGRAM};
use super::{PodSettings, agent, downward_file, hostfile};
use crate::validate::ValidJob;

/// Name of the volume with the files of a launcher.
const FILES: &str = "ipu-operator-files";

/// A file: the annotation with its content, its name, and its mode.
pub type File = (&'static str, &'static str, i32, String);

/// The files for mpirun.
pub fn of_launcher(hostfile: String, kubeexec: String) -> [File; 2] {
    [
        (labels::HOSTFILE_ANNOTATION, HOSTFILE, 0o444, hostfile),
        (labels::KUBEEXEC_ANNOTATION, KUBEEXEC, 0o555, kubeexec),
    ]
}

/// Gives a launcher that mounts the agent's image the files for mpirun.
pub fn add_to_launcher(
    annotations: &mut BTreeMap<String, String>,
    spec: &mut PodSpec,
    container: &mut Container,
    job: &ValidJob,
    settings: &PodSettings,
) {
    let hostfile = hostfile::hostfile(&job.name, hostfile::workers(job));
    let files = of_launcher(hostfile, kubeexec(job, settings));
    add(annotations, spec, container, files);
}

/// Adds files to a Pod that mounts the agent's image. The image has files at the same paths,
/// because it is read-only, so that the runtime cannot create the targets of these mounts.
pub fn add(
    annotations: &mut BTreeMap<String, String>,
    spec: &mut PodSpec,
    container: &mut Container,
    files: impl IntoIterator<Item = File>,
) {
    let mut items = Vec::new();
    for (annotation, name, mode, content) in files {
        annotations.insert(annotation.to_owned(), content);
        items.push(DownwardAPIVolumeFile {
            mode: Some(mode),
            ..downward_file::of_annotation(name, annotation)
        });
        container
            .volume_mounts
            .get_or_insert_default()
            .push(VolumeMount {
                name: FILES.to_owned(),
                mount_path: format!("{FOLDER}/{name}"),
                sub_path: Some(name.to_owned()),
                read_only: Some(true),
                ..VolumeMount::default()
            });
    }
    spec.volumes.get_or_insert_default().push(Volume {
        name: FILES.to_owned(),
        downward_api: Some(DownwardAPIVolumeSource {
            items: Some(items),
            ..DownwardAPIVolumeSource::default()
        }),
        ..Volume::default()
    });
}

/// The script that mpirun calls instead of ssh, as `ipu-agent install` writes it.
pub fn kubeexec(job: &ValidJob, settings: &PodSettings) -> String {
    let known = agent::known_workers(job, settings);
    let words = [PROGRAM, "exec", "--job", &job.name].map(str::to_owned);
    let agent: Vec<String> = words.into_iter().chain(known).collect();
    format!(
        "#!/bin/sh\n\
         # Called by mpirun instead of ssh: kubeexec.sh <worker> <command of a shell>...\n\
         POD=\"$1\"\n\
         shift\n\
         exec {agent} \"$POD\" -- /bin/sh -c \"$*\"\n",
        agent = agent.join(" "),
    )
}
