//! Pure: builds the worker Pods: the user's whole template, and the operator's additions.

use ipu_api::labels;
use ipu_api::naming;
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, NodeSelectorRequirement, Pod, PodSpec, SecurityContext,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{PodSettings, agent, environment, metadata};
use crate::facts::partition::PlacedPartition;
use crate::node_affinity;
use crate::pod_set::{self, Role};
use crate::validate::ValidJob;

/// Action of a restart rule that restarts the program too.
const RESTART_ALL: &str = "RestartAllContainers";

/// Builds worker `gcd` of `instance` in a run of the job. All its containers get the environment,
/// because a sidecar may use the IPUs too.
pub fn worker(
    job: &ValidJob,
    settings: &PodSettings,
    (instance, gcd, run): (u32, u32, i64),
    placed: &PlacedPartition,
) -> Pod {
    let mut spec = job.template.spec.clone();
    let mut first = job.template.first.clone();
    if job.launcher.is_some() {
        idle(&mut first, &job.template.spec);
        agent::add_to_pod(&mut spec, job, settings, &first);
        set_host_name(&mut spec, job, job.worker_index(instance, gcd));
    }
    spec.containers = std::iter::once(first)
        .chain(job.template.others.iter().cloned())
        .collect();
    for container in &mut spec.containers {
        environment::give(container, job, environment::of_worker(job, placed, gcd));
    }
    if settings.worker_host_network {
        use_host_network(&mut spec);
    }
    if settings.avoid_failed_nodes {
        avoid_failed_nodes(&mut spec);
    }
    let mut template = job.template.metadata.clone();
    pod_set::add_to_pod(job, Role::Worker, &mut spec, &mut template);
    select_node(&mut spec, placed);
    leave_restarts_to_the_job(&mut spec);
    Pod {
        metadata: worker_metadata(job, &template, (instance, gcd, run), placed),
        spec: Some(spec),
        status: None,
    }
}

/// Returns the variables of the operator for a worker as a ConfigMap, if one of its containers
/// refers to it.
pub fn config_map(job: &ValidJob, gcd: u32, placed: &PlacedPartition) -> Option<ConfigMap> {
    let template = &job.template;
    let mut containers = std::iter::once(&template.first).chain(&template.others);
    let refers = containers.any(environment::comes_first);
    refers.then(|| environment::config_map(job, &environment::of_worker(job, placed, gcd)))
}

/// Adds the label of the nodes that reach the partition's V-IPU controller. An entry of the user
/// with the same key has the same value: `facts::partition` does not report the partition as ready
/// otherwise.
pub(super) fn select_node(spec: &mut PodSpec, placed: &PlacedPartition) {
    spec.node_selector.get_or_insert_default().insert(
        placed.controller.label_key.clone(),
        placed.controller.label_value.clone(),
    );
}

/// Leaves restarts to the job, because a restarted program would find its partition in an unknown
/// state. Other containers may restart, but not the program with them.
pub(super) fn leave_restarts_to_the_job(spec: &mut PodSpec) {
    spec.restart_policy = Some("Never".to_owned());
    if let Some(first) = spec.containers.first_mut() {
        first.restart_policy = None;
        first.restart_policy_rules = None;
    }
    let init_containers = spec.init_containers.iter_mut().flatten();
    for container in init_containers.chain(&mut spec.containers) {
        if let Some(rules) = &mut container.restart_policy_rules {
            rules.retain(|rule| rule.action != RESTART_ALL);
        }
    }
}

/// Requires nodes whose checks of ipu-node did not fail.
fn avoid_failed_nodes(spec: &mut PodSpec) {
    node_affinity::require(spec, |term| {
        let expressions = term.match_expressions.get_or_insert_default();
        expressions.push(NodeSelectorRequirement {
            key: labels::IPU_READY_LABEL.to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(vec![labels::IPU_NOT_READY.to_owned()]),
        });
    });
}

fn worker_metadata(
    job: &ValidJob,
    template: &ObjectMeta,
    (instance, gcd, run): (u32, u32, i64),
    placed: &PlacedPartition,
) -> ObjectMeta {
    let mut meta = metadata(
        job,
        naming::worker(&job.name, job.worker_index(instance, gcd)),
    );
    let mut labels = template.labels.clone().unwrap_or_default();
    labels.extend(meta.labels.take().unwrap_or_default());
    labels.extend(
        [
            (labels::ROLE_LABEL, Role::Worker.label().to_owned()),
            (labels::INSTANCE_LABEL, instance.to_string()),
            (labels::GCD_LABEL, gcd.to_string()),
            (labels::PARTITION_ID_LABEL, placed.id.clone()),
            (labels::RUN_LABEL, run.to_string()),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    );
    let mut annotations = template.annotations.clone().unwrap_or_default();
    annotations.insert(
        labels::TEMPLATE_HASH_ANNOTATION.to_owned(),
        job.template.hash.clone(),
    );
    annotations.insert(
        labels::CANONICAL_TEMPLATE_HASH_ANNOTATION.to_owned(),
        job.template.canonical_hash.clone(),
    );
    annotations.insert(
        labels::MAIN_CONTAINER_ANNOTATION.to_owned(),
        job.template.first.name.clone(),
    );
    annotations
        .entry(labels::DEFAULT_CONTAINER_ANNOTATION.to_owned())
        .or_insert_with(|| job.template.first.name.clone());
    meta.labels = Some(labels);
    meta.annotations = Some(annotations);
    meta.finalizers.clone_from(&template.finalizers);
    meta
}

/// Makes the container wait until the launcher starts processes in it. Its probes check the
/// program, which does not run yet: they would keep the launcher from its start, or end the worker.
fn idle(container: &mut Container, template: &PodSpec) {
    container.command = Some(agent::idle(template));
    container.args = None;
    container.startup_probe = None;
    container.readiness_probe = None;
    container.liveness_probe = None;
    agent::mount(container);
}

/// Gives the worker a host name that no other worker of the job has, because Open MPI 5 identifies
/// workers by their host names. One in the template takes precedence.
fn set_host_name(spec: &mut PodSpec, job: &ValidJob, index: u32) {
    let chosen = spec.hostname.take();
    spec.hostname = chosen.or_else(|| naming::worker_host_name(&job.name, index));
}

/// Gives access to the node's RDMA card, as in Graphcore's operator.
fn use_host_network(spec: &mut PodSpec) {
    spec.host_network = Some(true);
    // With ClusterFirst, a Pod on the host network cannot resolve names of the cluster.
    if matches!(spec.dns_policy.as_deref(), None | Some("ClusterFirst")) {
        spec.dns_policy = Some("ClusterFirstWithHostNet".to_owned());
    }
    for container in &mut spec.containers {
        let context: &mut SecurityContext = container.security_context.get_or_insert_default();
        context.privileged = Some(true);
        // Kubernetes refuses a privileged container without privilege escalation.
        if context.allow_privilege_escalation == Some(false) {
            context.allow_privilege_escalation = None;
        }
    }
}
