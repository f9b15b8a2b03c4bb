//! Pure: builds the launcher Pod from the workers' template, by the rules of [`launcher_rules`].

use std::collections::BTreeSet;

use ipu_api::labels;
use ipu_api::naming;
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvVar, Pod, PodSpec, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::launcher_names::{self, CONTAINER};
use super::{
    AgentDelivery, PodSettings, access, agent, agent_files, environment, launcher_labels,
    launcher_rules, metadata, workers,
};
use crate::facts::partition::PlacedPartition;
use crate::pod_set::{self, Role};
use crate::validate::{ValidJob, ValidLauncher};

/// Whether the launcher is created together with its workers, and the agent holds its command back
/// until they are Ready.
///
/// Init containers of the user run before the agent. Those of a launcher can rely on running
/// workers, so such a launcher is created after them.
pub fn is_held(job: &ValidJob) -> bool {
    let runs = launcher_rules::run_init_containers(job);
    !runs.contains(&true)
}

/// Builds the launcher Pod of a run. `placed` is the partition of the first instance. The executor
/// adds the pull secrets of the workers' ServiceAccount.
pub fn launcher(
    job: &ValidJob,
    command: &ValidLauncher,
    settings: &PodSettings,
    (placed, run): (&PlacedPartition, i64),
) -> Pod {
    let mut meta = metadata(job, naming::launcher(&job.name));
    let mut annotations = launcher_names::annotations(job);
    // The workers' network of the release: the launcher only starts processes, over the network of
    // Pods.
    let has_release_network = annotations.remove(labels::NETWORK_ANNOTATION).is_some();
    if has_release_network {
        annotations.remove(labels::NETWORK_ATTACHMENTS_ANNOTATION);
    }
    let mut spec = launcher_rules::pod(&job.template.spec);
    launcher_rules::keep_init_containers(&mut spec, job);
    launcher_names::rename_init_containers(&mut spec);
    for container in spec.init_containers.iter_mut().flatten() {
        let env = container.env.as_deref_mut().unwrap_or_default();
        launcher_names::resolve_variables(env, job, None);
    }
    launcher_names::resolve_volumes(&mut spec, job, &mut annotations);
    let mut container = container(job, command, settings, placed);
    if has_release_network {
        launcher_rules::drop_memory_lock(&mut container);
    }
    agent::add_to_pod(&mut spec, job, settings, &container);
    agent::mount(&mut container);
    if agent::delivery(job, settings) == AgentDelivery::Image {
        agent_files::add_to_launcher(&mut annotations, &mut spec, &mut container, job, settings);
    }
    let shares_rights = access::shares_rights(job, settings);
    if is_held(job) {
        // A launcher with shared rights reads no Pod.
        agent::hold(&mut spec, &mut container, !shares_rights);
        annotations.insert(labels::START_ANNOTATION.to_owned(), labels::HELD.to_owned());
    } else {
        annotations.remove(labels::START_ANNOTATION);
    }
    spec.containers = vec![container];
    keep_used_claims(&mut spec);
    let account = if shares_rights {
        naming::SHARED_LAUNCHERS.to_owned()
    } else {
        access::account_name(job, command)
    };
    spec.service_account_name = Some(account);
    spec.automount_service_account_token = Some(true);
    // A second launcher of a run would start the program twice.
    workers::leave_restarts_to_the_job(&mut spec);
    // Annotations configure networks and injected sidecars.
    meta.annotations = Some(annotations);
    launcher_labels::add(job, &mut meta);
    pod_set::add_to_pod(job, Role::Launcher, &mut spec, &mut meta);
    // poprun also calls the V-IPU controller, and host paths exist on the workers' nodes.
    workers::select_node(&mut spec, placed);
    mark(&mut meta, placed, run);
    launcher_names::resolve_labels(&mut spec, &job.template, &mut meta);
    Pod {
        metadata: meta,
        spec: Some(spec),
        status: None,
    }
}

/// Returns the variables of the operator for the launcher as a ConfigMap, if the launcher refers to
/// it.
pub fn config_map(job: &ValidJob, placed: &PlacedPartition) -> Option<ConfigMap> {
    let refers = environment::comes_first(&job.template.first);
    refers.then(|| environment::config_map(job, &environment::of_launcher(job, placed)))
}

/// Adds the annotations and labels of the operator.
fn mark(meta: &mut ObjectMeta, placed: &PlacedPartition, run: i64) {
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
}

fn container(
    job: &ValidJob,
    launcher: &ValidLauncher,
    settings: &PodSettings,
    placed: &PlacedPartition,
) -> Container {
    let first = &job.template.first;
    let mut container = Container {
        name: CONTAINER.to_owned(),
        command: Some(command(job, launcher)),
        env: Some(variables(job, launcher)),
        resources: resources(launcher, settings),
        ..launcher_rules::container(first)
    };
    environment::give(&mut container, job, environment::of_launcher(job, placed));
    launcher_rules::drop_mounts_of_workers(&mut container);
    container
}

/// Returns the launcher's command. That of an interactive job waits and ends by itself.
fn command(job: &ValidJob, launcher: &ValidLauncher) -> Vec<String> {
    match launcher.interactive_seconds {
        None => launcher.command.clone(),
        Some(seconds) => {
            let mut words = agent::idle(&job.template.spec);
            words.extend(["--seconds".to_owned(), seconds.to_string()]);
            words
        }
    }
}

/// Returns the user's variables.
fn variables(job: &ValidJob, launcher: &ValidLauncher) -> Vec<EnvVar> {
    let template = &job.template;
    let mut of_template = template.first.env.clone().unwrap_or_default();
    let unnamed = Some(template.first.name.as_str());
    launcher_names::resolve_variables(&mut of_template, job, unnamed);
    let mut of_launcher = launcher.env.clone();
    launcher_names::resolve_variables(&mut of_launcher, job, None);
    environment::merge(of_template, of_launcher)
}

/// Returns the user's resources, or the admin's default. `None`: neither has any.
fn resources(launcher: &ValidLauncher, settings: &PodSettings) -> Option<ResourceRequirements> {
    let resources = launcher.resources.as_ref();
    resources.or(settings.launcher_resources.as_ref()).cloned()
}

/// Removes the claims of devices that no container of the Pod uses: only the workers use them.
fn keep_used_claims(spec: &mut PodSpec) {
    let containers = spec.init_containers.iter().flatten();
    let containers = containers.chain(&spec.containers);
    let used: BTreeSet<String> = containers
        .filter_map(|container| container.resources.as_ref()?.claims.as_ref())
        .flatten()
        .map(|claim| claim.name.clone())
        .collect();
    if let Some(claims) = &mut spec.resource_claims {
        claims.retain(|claim| used.contains(&claim.name));
    }
    spec.resource_claims = spec
        .resource_claims
        .take()
        .filter(|claims| !claims.is_empty());
}
