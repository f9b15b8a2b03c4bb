//! Pure: builds the launcher Pod from the template's first container.

use ipu_api::labels;
use ipu_api::naming;
use k8s_openapi::api::core::v1::{Affinity, Container, EnvVar, Pod, PodSpec};

use super::{PodSettings, agent, environment, metadata, workers};
use crate::facts::partition::PlacedPartition;
use crate::pod_set::{self, Role};
use crate::validate::{ValidJob, ValidLauncher};

/// Name of the launcher's container.
const CONTAINER: &str = "launcher";

/// Builds the launcher Pod of a run. `placed` is the partition of the first instance.
///
/// The Pod has the parts of the template that the user's command may need. It has no sidecars, resources or host network,
/// because it only starts other processes.
pub fn launcher(
    job: &ValidJob,
    command: &ValidLauncher,
    settings: &PodSettings,
    (placed, run): (&PlacedPartition, i64),
) -> Pod {
    let template = &job.template.spec;
    let mut spec = PodSpec {
        containers: vec![container(job, command, placed)],
        volumes: template.volumes.clone(),
        image_pull_secrets: template.image_pull_secrets.clone(),
        security_context: template.security_context.clone(),
        service_account_name: Some(naming::launcher(&job.name)),
        automount_service_account_token: Some(true),
        node_selector: template.node_selector.clone(),
        tolerations: template.tolerations.clone(),
        affinity: node_affinity(template),
        scheduler_name: template.scheduler_name.clone(),
        priority_class_name: template.priority_class_name.clone(),
        runtime_class_name: template.runtime_class_name.clone(),
        host_aliases: template.host_aliases.clone(),
        dns_config: template.dns_config.clone(),
        termination_grace_period_seconds: template.termination_grace_period_seconds,
        restart_policy: Some("Never".to_owned()),
        ..PodSpec::default()
    };
    agent::add_to_pod(&mut spec, job, settings);
    let mut meta = metadata(job, naming::launcher(&job.name));
    // Annotations configure networks and injected sidecars. Labels are not copied, because Services and disruption budgets
    // that select the workers would also select the launcher.
    meta.annotations
        .clone_from(&job.template.metadata.annotations);
    pod_set::add_to_pod(job, Role::Launcher, &mut spec, &mut meta);
    // poprun also calls the V-IPU controller, and host paths exist on the workers' nodes.
    workers::select_node(&mut spec, placed);
    let annotations = meta.annotations.get_or_insert_default();
    for key in [
        labels::MAIN_CONTAINER_ANNOTATION,
        labels::DEFAULT_CONTAINER_ANNOTATION,
    ] {
        annotations.insert(key.to_owned(), CONTAINER.to_owned());
    }
    let labels = meta.labels.get_or_insert_default();
    labels.insert(labels::RUN_LABEL.to_owned(), run.to_string());
    labels.insert(
        labels::ROLE_LABEL.to_owned(),
        Role::Launcher.label().to_owned(),
    );
    labels.insert(labels::PARTITION_ID_LABEL.to_owned(), placed.id.clone());
    Pod {
        metadata: meta,
        spec: Some(spec),
        status: None,
    }
}

fn container(job: &ValidJob, launcher: &ValidLauncher, placed: &PlacedPartition) -> Container {
    let first = &job.template.first;
    let mut container = Container {
        name: CONTAINER.to_owned(),
        image: first.image.clone(),
        image_pull_policy: first.image_pull_policy.clone(),
        command: Some(command(launcher)),
        env: Some(variables(first, launcher, placed)),
        env_from: first.env_from.clone(),
        working_dir: first.working_dir.clone(),
        security_context: first.security_context.clone(),
        volume_mounts: first.volume_mounts.clone(),
        volume_devices: first.volume_devices.clone(),
        ..Container::default()
    };
    agent::mount(&mut container);
    container
}

/// Returns the launcher's command. That of an interactive job waits and ends by itself.
fn command(launcher: &ValidLauncher) -> Vec<String> {
    match launcher.interactive_seconds {
        None => launcher.command.clone(),
        Some(seconds) => {
            let words = [agent::PROGRAM, "idle", "--seconds"].map(str::to_owned);
            words.into_iter().chain([seconds.to_string()]).collect()
        }
    }
}

fn variables(first: &Container, launcher: &ValidLauncher, placed: &PlacedPartition) -> Vec<EnvVar> {
    let of_first = first.env.clone().unwrap_or_default();
    let own = environment::merge(of_first, launcher.env.clone());
    environment::merge(environment::of_launcher(placed), own)
}

/// Copies only the node affinity. The anti-affinity between workers would also apply to the launcher.
fn node_affinity(template: &PodSpec) -> Option<Affinity> {
    let node_affinity = template.affinity.as_ref()?.node_affinity.clone()?;
    Some(Affinity {
        node_affinity: Some(node_affinity),
        ..Affinity::default()
    })
}
